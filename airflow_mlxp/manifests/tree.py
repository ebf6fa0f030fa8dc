"""Small steps through a manifest under construction: get or make, fill, settle, merge by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests.unset import Unset


def child(node: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key, made when absent.

    Raises:
        InvalidArgument: Something else stands there.
    """
    if node.get(key) is None:
        node[key] = {}
    found = node[key]
    if not isinstance(found, dict):
        raise InvalidArgument(key, found, expected="a mapping")
    return found


def items(node: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The list of mappings under a key, made when absent.

    Raises:
        InvalidArgument: Something else stands there.
    """
    if node.get(key) is None:
        node[key] = []
    found = node[key]
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise InvalidArgument(key, found, expected="a list of mappings")
    return found


def fill(node: dict[str, Any], key: str, value: object) -> None:
    """Set what is absent; None fills nothing."""
    if value is not None and node.get(key) is None:
        node[key] = value


def settle(node: dict[str, Any], key: str, given: object, default: object = None) -> None:
    """Set what was given, remove for None, fill with the default for ``UNSET``."""
    if isinstance(given, Unset):
        fill(node, key, default)
    elif given is None:
        node.pop(key, None)
    else:
        node[key] = given


def put(node: dict[str, Any], key: str, given: object) -> None:
    """Set what was given; None means not given."""
    if given is not None:
        node[key] = given


def merge_named(entries: list[dict[str, Any]], new: Iterable[dict[str, Any]], key: str = "name") -> None:
    """Replace entries with the same name in their place, append the others."""
    for entry in new:
        index = next((i for i, old in enumerate(entries) if old.get(key) == entry[key]), None)
        if index is None:
            entries.append(entry)
        else:
            entries[index] = entry


_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_COMMAND_FIX = "give each word as an element, or ['bash', '-c', '...'] for a shell line"


def texts(values: Sequence[object], argument: str, *, fix: str = _COMMAND_FIX) -> list[str]:
    """Words, of a command line unless ``fix`` says otherwise; numbers become text.

    Raises:
        InvalidArgument: One text instead of a list, or an element that is neither text nor number.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgument(argument, values, expected="a list of texts", fix=fix)
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidArgument(f"{argument}[{index}]", value, expected="text or a number")
    return [str(value) for value in values]


def text_map(values: Mapping[str, object], argument: str, *, reserved: str = "") -> dict[str, str]:
    """A mapping of text to text, as labels, annotations and node selectors are.

    Raises:
        InvalidArgument: No mapping, a key of ours (``reserved`` prefix), or a value that is no text: ``false`` and ``1`` mean
            something else than ``"false"`` and ``"1"`` to a reader.
    """
    if not isinstance(values, Mapping):
        raise InvalidArgument(argument, values, expected="a mapping of text to text")
    for key, value in values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgument(f"{argument}[{key!r}]", value, expected="text", fix="quote it")
        if reserved and key.startswith(reserved):
            raise InvalidArgument(argument, key, expected=f"keys that don't start with {reserved!r}", fix="those are set for you")
    return {key: str(value) for key, value in values.items()}


def label_map(values: Mapping[str, object], argument: str, *, reserved: str = "") -> dict[str, str]:
    """A mapping of labels; see ``text_map``.

    Raises:
        InvalidArgument: See ``text_map``, or a key or value that Kubernetes takes for no label.
    """
    labels = text_map(values, argument, reserved=reserved)
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not _LABEL.fullmatch(name) or (slash and not _OBJECT_NAME.fullmatch(prefix)):
            raise InvalidArgument(argument, key, expected="keys such as 'team' or 'example.com/team', of at most 63 characters")
        if value and not _LABEL.fullmatch(value):
            words = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
            raise InvalidArgument(f"{argument}[{key!r}]", value, expected=words)
    return labels


def object_name(value: object, argument: str) -> str | None:
    """The name of a Kubernetes object (DNS-1123 subdomain), or None when not given.

    Raises:
        InvalidArgument: Anything else.
    """
    if value is not None and not (isinstance(value, str) and _OBJECT_NAME.fullmatch(value)):
        raise InvalidArgument(argument, value, expected="the name of an object: lower-case letters, digits, '-' and '.'")
    return value


def one_of(value: Any, argument: str, allowed: Sequence[str]) -> Any:
    """The value itself when it is UNSET, None or one of the allowed texts.

    Raises:
        InvalidArgument: Anything else.
    """
    if value is None or isinstance(value, Unset) or value in allowed:
        return value
    raise InvalidArgument(argument, value, expected="one of " + ", ".join(allowed))


def is_unset(value: object) -> bool:
    """Whether an argument was not given."""
    return isinstance(value, Unset)


def is_flag(value: object) -> bool:
    """Whether the value is true or false, or the text that a template makes of them."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ("true", "false"))


def flag(value: object, argument: str) -> bool:
    """True or false.

    Raises:
        InvalidArgument: Anything else; ``"yes"`` and ``1`` too.
    """
    if not is_flag(value):
        raise InvalidArgument(argument, value, expected="True or False")
    return value if isinstance(value, bool) else str(value).strip().lower() == "true"


def text(value: object, argument: str) -> str | None:
    """Text, or None when not given.

    Raises:
        InvalidArgument: Anything else.
    """
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(argument, value, expected="text")
    return value
