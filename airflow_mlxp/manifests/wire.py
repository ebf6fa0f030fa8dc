"""Values in wire form: plain JSON types, from mappings, sequences and objects of the ``kubernetes`` packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_mlxp.errors import InvalidArgument


def is_model(value: object) -> bool:
    """Whether this is an object of the models of ``kubernetes`` or ``kubernetes_asyncio``."""
    kind = type(value)
    return isinstance(getattr(kind, "attribute_map", None), Mapping) and isinstance(getattr(kind, "openapi_types", None), Mapping)


def fields_of(model: Any) -> dict[str, Any]:
    """The fields of such an object under their names in manifests; what is None is left out, as the client itself does."""
    values = {key: getattr(model, attribute) for attribute, key in type(model).attribute_map.items()}
    return {key: value for key, value in values.items() if value is not None}


def unwrapped(value: Any) -> Any:
    """The value with every object of the client's models in it as a mapping; everything else as it is."""
    if is_model(value):
        return {key: unwrapped(item) for key, item in fields_of(value).items()}
    if type(value) is dict:
        return {key: unwrapped(item) for key, item in value.items()}
    return type(value)(unwrapped(item) for item in value) if type(value) in (list, tuple) else value


def plain(value: Any, path: str) -> Any:
    """A copy in plain JSON types; ``path`` names the value in errors.

    Raises:
        InvalidArgument: A key that is no text, or a value that JSON doesn't have.
    """
    if is_model(value):
        value = fields_of(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidArgument(path, key, expected="keys that are text", fix="quote the key")
        return {key: plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if value is None or isinstance(value, str | int | float):
        return value
    raise InvalidArgument(path, type(value).__name__, expected="a value that JSON has", fix="give it in wire form")
