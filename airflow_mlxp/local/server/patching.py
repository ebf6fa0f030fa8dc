"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

import copy
from typing import Any

from airflow_mlxp.local.server import problem


def merge(target: Any, patch: Any) -> Any:
    """The target with a merge patch applied; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def go_text(value: Any) -> str:
    """A JSON value as Go prints it by ``%v``, which is how the server shows a strategic merge patch."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
    return str(value)


def apply_operations(document: Any, operations: Any) -> Any:
    """The document with the operations of a JSON patch applied; the document is not changed.

    Raises:
        ApiError: BadRequest for what is no patch; Invalid (422) when an operation can't be applied or a ``test`` fails.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise problem.bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    root = {"": copy.deepcopy(document)}
    try:
        for operation in operations:
            _apply(root, operation)
        return root[""]
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise problem.patch_not_applicable() from error


def _apply(root: dict[str, Any], operation: dict[str, Any]) -> None:
    steps = _steps(operation["path"])
    match operation["op"]:
        case "test":
            if not _meets(root, steps, operation["value"]):
                raise ValueError("test failed")
        case "add":
            _add(root, steps, copy.deepcopy(operation["value"]))
        case "replace":
            _get(root, steps)
            _set(root, steps, copy.deepcopy(operation["value"]))
        case "remove":
            _remove(root, steps)
        case "move":
            source = _steps(operation["from"])
            value = _get(root, source)
            _remove(root, source)
            _add(root, steps, value)
        case "copy":
            _add(root, steps, copy.deepcopy(_get(root, _steps(operation["from"]))))
        case unknown:
            raise ValueError(f"unexpected operation {unknown}")


def _meets(root: dict[str, Any], steps: list[str], expected: Any) -> bool:
    """Whether the value at a path is the expected; null is also met by a field that isn't there."""
    try:
        found = _get(root, steps)
    except (KeyError, IndexError):
        return expected is None
    return _same(found, expected)


def _same(left: Any, right: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _steps(pointer: str) -> list[str]:
    """The steps of a JSON pointer, below an artificial root so that every step has a container."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]


def _index(container: list[Any], step: str, *, end: bool = False) -> int:
    if step == "-" and end:
        return len(container)
    index = int(step)
    if not 0 <= index < len(container) + end or step != str(index):
        raise IndexError(step)
    return index


def _child(container: Any, step: str) -> Any:
    return container[_index(container, step)] if isinstance(container, list) else container[step]


def _get(root: Any, steps: list[str]) -> Any:
    for step in steps:
        root = _child(root, step)
    return root


def _add(root: Any, steps: list[str], value: Any) -> None:
    container = _get(root, steps[:-1])
    if isinstance(container, list):
        container.insert(_index(container, steps[-1], end=True), value)
    else:
        container[steps[-1]] = value


def _set(root: Any, steps: list[str], value: Any) -> None:
    container = _get(root, steps[:-1])
    if isinstance(container, list):
        container[_index(container, steps[-1])] = value
    else:
        container[steps[-1]] = value


def _remove(root: Any, steps: list[str]) -> None:
    container = _get(root, steps[:-1])
    if isinstance(container, list):
        del container[_index(container, steps[-1])]
    else:
        del container[steps[-1]]
