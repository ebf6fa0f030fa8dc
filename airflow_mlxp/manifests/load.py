"""A user's manifest, brought to plain wire form; mistakes that the API server would report badly are named with their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_mlxp.errors import InvalidArgument

if TYPE_CHECKING:
    from airflow_mlxp.workloads.base import Api

_TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
_ARGUMENT = "manifest"


def load(manifest: Mapping[str, Any] | str | None, api: Api) -> tuple[dict[str, Any], list[str]]:
    """A new dict of plain JSON types with the right ``apiVersion`` and ``kind``, and the warnings about what was mended.

    None gives an empty manifest. The input is never changed.

    Raises:
        InvalidArgument: No YAML, not exactly one document, another kind, or a value that has no wire form; the text says where.
    """
    given = _parsed(manifest) if isinstance(manifest, str) else (manifest or {})
    if not isinstance(given, Mapping):
        raise InvalidArgument(_ARGUMENT, type(given).__name__, expected=f"a mapping or YAML text of one {api.kind}")
    _check_kind(given, api)
    warnings: list[str] = []
    plain = _plain(given, _ARGUMENT, warnings)
    return {"apiVersion": api.api_version, "kind": api.kind} | plain, warnings


def _parsed(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Leaves dates as the text they are: JSON has none."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        documents = [document for document in yaml.load_all(text, Loader=Loader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{_ARGUMENT} line {mark.line + 1}, column {mark.column + 1}" if mark else _ARGUMENT
        problem = getattr(error, "problem", None) or str(error)
        fix = "keys of one mapping must start in the same column"
        raise InvalidArgument(place, problem, expected="valid YAML", fix=fix) from error
    if len(documents) != 1:
        raise InvalidArgument(_ARGUMENT, f"{len(documents)} documents", expected="exactly one YAML document")
    return documents[0]


def _check_kind(manifest: Mapping[str, Any], api: Api) -> None:
    for key, wanted in (("kind", api.kind), ("apiVersion", api.api_version)):
        if (given := manifest.get(key, wanted)) != wanted:
            same = isinstance(given, str) and given.lower() == wanted.lower()
            fix = f"write it exactly so: {wanted}" if same else "use the operator of that kind"
            raise InvalidArgument(f"{_ARGUMENT}.{key}", given, expected=repr(wanted), fix=fix)


def _plain(value: Any, path: str, warnings: list[str]) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidArgument(path, key, expected="keys that are text", fix="quote the key")
        return {key: _entry(key, item, f"{path}.{key}", warnings) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise InvalidArgument(path, type(value).__name__, expected="a value that JSON has", fix="give the manifest in wire form")


def _entry(key: str, value: Any, path: str, warnings: list[str]) -> Any:
    if key not in _TEXT_MAPS or value is None:
        return _plain(value, path, warnings)
    if not isinstance(value, Mapping):
        fix = "write 'key: value' instead of 'key=value'" if isinstance(value, str) and "=" in value else ""
        raise InvalidArgument(path, value, expected="a mapping of text to text", fix=fix)
    return {name: _text(item, f"{path}.{name}", warnings) for name, item in _plain(value, path, warnings).items()}


def _text(value: Any, path: str, warnings: list[str]) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, bool | int | float):
        raise InvalidArgument(path, value, expected="text")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    warnings.append(f"{path}: {value!r} is sent as the text {text!r}; quote it in the manifest")
    return text
