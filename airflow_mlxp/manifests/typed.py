"""Arguments that are parts of a manifest, checked against the schema of the kind: a misspelt field is told while parsing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_mlxp import schemas
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import wire

_FIX = "check the spelling; fields that this version does not know go into overrides"
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_WORDS = {"object": "a mapping", "array": "a list", "string": "text", "boolean": "true or false", "integer": "a whole number"}


def mapping(value: object, definition: str, argument: str, *, kind: str, partial: bool = False) -> dict[str, Any]:
    """The value in wire form, when it is one of the schema's ``definition`` (such as ``V1Affinity``) for the kind.

    A ``partial`` one is to be merged into another: it needs no field, and may hold the directives of a merge.

    Raises:
        InvalidArgument: A field that the schema doesn't have, one that is missing, or a value of another type; the text names
            the place.
    """
    plain = wire.plain(value, argument)
    known = schemas.schema_for(kind)["$defs"]
    _Check(known=known, partial=partial).value(plain, known[definition], argument)
    found: dict[str, Any] = plain
    return found


def mappings(values: object, definition: str, argument: str, *, kind: str) -> list[dict[str, Any]]:
    """A list of such mappings.

    Raises:
        InvalidArgument: No list, or see ``mapping``.
    """
    if not isinstance(values, list | tuple):
        raise InvalidArgument(argument, values, expected="a list of mappings, as in a manifest")
    return [mapping(value, definition, f"{argument}[{index}]", kind=kind) for index, value in enumerate(values)]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Check:
    known: dict[str, Any]
    partial: bool

    def value(self, value: Any, schema: dict[str, Any], path: str) -> None:
        while "$ref" in schema:
            schema = self.known[schema["$ref"].rpartition("/")[2]]
        if alternatives := schema.get("anyOf"):
            self.value(value, next((one for one in alternatives if _has_type(value, one)), alternatives[-1]), path)
            return
        if not _has_type(value, schema):
            raise InvalidArgument(path, value, expected=_words(schema))
        if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            raise InvalidArgument(path, value, expected="a Kubernetes quantity such as 4, '500m' or '16Gi'")
        if isinstance(value, list):
            for index, item in enumerate(value):
                self.value(item, schema.get("items", {}), f"{path}[{index}]")
        if isinstance(value, dict):
            self._fields(value, schema, path)

    def _fields(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in () if self.partial else schema.get("required", ()):
            if value.get(name) is None:
                raise InvalidArgument(path, sorted(value), expected=f"the field {name}")
        for name, item in value.items():
            below = properties.get(name, others)
            if self.partial and name.startswith("$"):
                continue
            if below is False:
                raise InvalidArgument(f"{path}.{name}", item, expected=f"one of the fields {', '.join(properties)}", fix=_FIX)
            if item is not None and isinstance(below, dict):
                self.value(item, below, f"{path}.{name}")


def _has_type(value: Any, schema: dict[str, Any]) -> bool:
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted or []
    if not names:
        return True
    # Python counts a bool as an int; the wire does not.
    return any(isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in names)


def _words(schema: dict[str, Any]) -> str:
    wanted = schema["type"]
    return " or ".join(_WORDS.get(name, "a number") for name in ([wanted] if isinstance(wanted, str) else wanted))
