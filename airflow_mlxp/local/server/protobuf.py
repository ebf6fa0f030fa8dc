"""Reads the few kinds that kubectl creates in protobuf (``kubectl create secret`` and the like).

The body is a magic number and a ``runtime.Unknown`` that holds the object; field numbers are those of the ``generated.proto``
files of Kubernetes. Everything else is exchanged in JSON.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

Message = dict[int, tuple[str, "Callable[[Any], Any]", str]]
"""Field number to name, decoder and shape: ``one``, ``list`` or ``map``."""


def _text(value: Any) -> str:
    return str(value, "utf-8")


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _message(fields: Message) -> Callable[[Any], dict[str, Any]]:
    return lambda raw: _decode(raw, fields)


def _one(name: str, decoder: Callable[[Any], Any] = _text) -> tuple[str, Callable[[Any], Any], str]:
    return name, decoder, "one"


def _map(name: str, decoder: Callable[[Any], Any] = _text) -> tuple[str, Callable[[Any], Any], str]:
    return name, decoder, "map"


_OBJECT_META: Message = {
    1: _one("name"),
    2: _one("generateName"),
    3: _one("namespace"),
    11: _map("labels"),
    12: _map("annotations"),
    14: ("finalizers", _text, "list"),
}
_METADATA = _one("metadata", _message(_OBJECT_META))
_QUANTITY: Message = {1: _one("string")}
_RESOURCE_ATTRIBUTES: Message = {
    number: _one(name)
    for number, name in enumerate(("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1)
}
_ACCESS: Message = {
    1: _one("resourceAttributes", _message(_RESOURCE_ATTRIBUTES)),
    2: _one("nonResourceAttributes", _message({1: _one("path"), 2: _one("verb")})),
}
_HARD = _map("hard", lambda raw: _decode(raw, _QUANTITY).get("string", "0"))
_CONTAINER: Message = {
    1: _one("name"),
    2: _one("image"),
    3: ("command", _text, "list"),
    4: ("args", _text, "list"),
    5: _one("workingDir"),
    13: _one("terminationMessagePath"),
    14: _one("imagePullPolicy"),
    20: _one("terminationMessagePolicy"),
}
_POD_SPEC: Message = {2: ("containers", _message(_CONTAINER), "list"), 3: _one("restartPolicy")}
_POD_TEMPLATE: Message = {1: _METADATA, 2: _one("spec", _message(_POD_SPEC))}
_DELETE_OPTIONS: Message = {
    1: _one("gracePeriodSeconds", int),
    2: _one("preconditions", _message({1: _one("uid"), 2: _one("resourceVersion")})),
    3: _one("orphanDependents", bool),
    4: _one("propagationPolicy"),
    5: ("dryRun", _text, "list"),
}
_KINDS: dict[str, Message] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Job": {1: _METADATA, 2: _one("spec", _message({6: _one("template", _message(_POD_TEMPLATE))}))},
    "Secret": {1: _METADATA, 2: _map("data", _base64), 3: _one("type"), 4: _map("stringData"), 5: _one("immutable", bool)},
    "ConfigMap": {1: _METADATA, 2: _map("data"), 3: _map("binaryData", _base64), 4: _one("immutable", bool)},
    "ResourceQuota": {1: _METADATA, 2: _one("spec", _message({1: _HARD, 2: ("scopes", _text, "list")}))},
    "Namespace": {1: _METADATA},
    "ServiceAccount": {1: _METADATA},
    "SelfSubjectAccessReview": {1: _METADATA, 2: _one("spec", _message(_ACCESS))},
    "SelfSubjectRulesReview": {1: _METADATA, 2: _one("spec", _message({1: _one("namespace")}))},
    "SelfSubjectReview": {1: _METADATA},
}


class UnreadError(Exception):
    """The object has a field that is not read here."""


def decode(body: bytes) -> dict[str, Any] | None:
    """The object in a body; None for a kind, or an object with a field, that is not read here.

    Raises:
        ValueError: for what is no such body.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message")
    type_meta: Message = {1: _one("apiVersion"), 2: _one("kind")}
    unknown = _decode(body[len(_MAGIC) :], {1: _one("type", _message(type_meta)), 2: _one("raw", bytes)})
    kind = unknown.get("type", {})
    fields = _KINDS.get(kind.get("kind", ""))
    try:
        return None if fields is None else {**kind, **_decode(unknown.get("raw", b""), fields)}
    except UnreadError:
        return None


def _decode(raw: bytes, fields: Message) -> dict[str, Any]:
    """A message as a dict.

    Raises:
        UnreadError: for a field that the table doesn't name, unless it is empty: nothing may get lost unnoticed.
    """
    result: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number not in fields:
            if not _is_empty(value):
                raise UnreadError(number)
            continue
        name, decoder, shape = fields[number]
        if shape == "list":
            result.setdefault(name, []).append(decoder(value))
        elif shape == "map":
            entry = dict(_fields(value))
            result.setdefault(name, {})[_text(entry.get(1, b""))] = decoder(entry.get(2, b""))
        elif value or not isinstance(value, bytes):
            result[name] = decoder(value)
    return result


def _is_empty(value: Any) -> bool:
    """Whether a field holds nothing: Go writes empty strings, zeros and structs of them too."""
    if not isinstance(value, bytes):
        return not value
    try:
        return all(_is_empty(inner) for _, inner in _fields(value))
    except (ValueError, KeyError):
        return False


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and undecoded values of a message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, at = _varint(raw, at)
            yield number, value
        elif wire_type == 2:
            size, at = _varint(raw, at)
            yield number, raw[at : at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[wire_type]


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw):
            raise ValueError("unexpected EOF")
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
