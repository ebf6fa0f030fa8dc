"""A user's manifest, brought to plain wire form; mistakes that the API server would report badly are named with their place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import copied, documents, wire

if TYPE_CHECKING:
    from airflow_mlxp.workloads.base import Api

_TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})
_TEXT_LISTS = frozenset({"command", "args"})
_ARGUMENT = "manifest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A manifest in wire form, a copy of the user's."""

    manifest: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    """What was mended, one sentence each."""
    notes: list[str] = field(default_factory=list)
    """What was left out because the server had written it."""


def load(manifest: object, api: Api) -> Loaded:
    """The manifest (mapping, object of the ``kubernetes`` package, YAML or JSON text) with the right ``apiVersion`` and ``kind``.

    None gives an empty manifest. The input is never changed. What a server adds to an object is left out.

    Raises:
        InvalidArgument: No YAML, not exactly one document, another kind, or a value that has no wire form; the text says where.
    """
    given = documents.parse(manifest, _ARGUMENT) if isinstance(manifest, str) else ({} if manifest is None else manifest)
    if not isinstance(given, Mapping) and not wire.is_model(given):
        raise InvalidArgument(_ARGUMENT, type(given).__name__, expected=f"a mapping or YAML text of one {api.kind}")
    plain = wire.plain(given, _ARGUMENT)
    _check_kind(plain, api)
    warnings: list[str] = []
    mended = _mended(plain, _ARGUMENT, warnings)
    notes = copied.clean(mended)
    return Loaded(manifest={"apiVersion": api.api_version, "kind": api.kind} | mended, warnings=warnings, notes=notes)


def _check_kind(manifest: Mapping[str, Any], api: Api) -> None:
    for key, wanted in (("kind", api.kind), ("apiVersion", api.api_version)):
        if (given := manifest.get(key, wanted)) != wanted:
            same = isinstance(given, str) and given.lower() == wanted.lower()
            fix = f"write it exactly so: {wanted}" if same else "use the operator of that kind"
            raise InvalidArgument(f"{_ARGUMENT}.{key}", given, expected=repr(wanted), fix=fix)


def _mended(value: Any, path: str, warnings: list[str]) -> Any:
    """The value with numbers and truth values as text where only text is possible."""
    if isinstance(value, list):
        return [_mended(item, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {key: _entry(key, item, f"{path}.{key}", warnings) for key, item in value.items()}


def _entry(key: str, value: Any, path: str, warnings: list[str]) -> Any:
    if key in _TEXT_MAPS and value is not None:
        if not isinstance(value, dict):
            fix = "write 'key: value' instead of 'key=value'" if isinstance(value, str) and "=" in value else ""
            raise InvalidArgument(path, value, expected="a mapping of text to text", fix=fix)
        return {name: _text(item, f"{path}.{name}", warnings) for name, item in value.items()}
    if key in _TEXT_LISTS and isinstance(value, list):
        return [_text(item, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    if key == "env" and isinstance(value, list):
        return [_variable(item, f"{path}[{index}]", warnings) for index, item in enumerate(value)]
    return _mended(value, path, warnings)


def _variable(entry: Any, path: str, warnings: list[str]) -> Any:
    if not isinstance(entry, dict) or isinstance(entry.get("value", ""), str | None):
        return _mended(entry, path, warnings)
    return entry | {"value": _text(entry["value"], f"{path}.value", warnings)}


def _text(value: Any, path: str, warnings: list[str]) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, bool | int | float):
        raise InvalidArgument(path, value, expected="text")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    warnings.append(f"{path}: {value!r} is sent as the text {text!r}; quote it in the manifest")
    return text
