"""Strategic merge patch by the rules of the Kubernetes API server, on what has been built (Kubernetes, strategic merge patch).

Lists of a pod template are merged by the keys that the API declares for them, for a Job and a PyTorchJob alike; other lists are
replaced. ``null`` removes a field. Directives: ``$patch`` (``delete`` or ``replace``), ``$retainKeys``,
``$deleteFromPrimitiveList/<list>`` and ``$setElementOrder/<list>``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.workloads.base import Api

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ownerReferences": "uid",
}
"""``patchMergeKey`` of the lists of metadata and pod specs (Kubernetes API)."""
_PRIMITIVE_LISTS = frozenset({"finalizers"})
"""Lists of texts with ``patchStrategy: merge``."""

_PATCH, _RETAIN, _DELETE_FROM, _ORDER = "$patch", "$retainKeys", "$deleteFromPrimitiveList/", "$setElementOrder/"


def apply(manifest: dict[str, Any], overrides: object, api: Api) -> dict[str, Any]:
    """The manifest with the ``overrides`` argument merged into it.

    Raises:
        InvalidArgument: No mapping, another kind, a name (``name`` sets it), or a patch that the API server would not take.
    """
    patch = wire.plain(overrides, "overrides")
    if not isinstance(patch, dict):
        raise InvalidArgument("overrides", type(overrides).__name__, expected="a mapping, as a manifest")
    for key, wanted in (("kind", api.kind), ("apiVersion", api.api_version)):
        if patch.get(key, wanted) != wanted:
            raise InvalidArgument(f"overrides.{key}", patch[key], expected=repr(wanted))
    metadata = patch.get("metadata")
    if isinstance(metadata, dict) and "name" in metadata:
        raise InvalidArgument("overrides.metadata.name", metadata["name"], expected="no name", fix="give the argument name")
    return merge(manifest, patch)


def merge(target: Mapping[str, Any], patch: Mapping[str, Any], path: str = "overrides") -> dict[str, Any]:
    """A new mapping: the target with the patch applied. Neither is changed; ``path`` is how errors name the patch.

    Raises:
        InvalidArgument: An unknown directive, or an element of a merged list without its key.
    """
    directive = patch.get(_PATCH)
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive is not None:
        raise InvalidArgument(f"{path}.{_PATCH}", directive, expected="delete or replace")
    merged = _retained(target, patch)
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            field = key.removeprefix(_DELETE_FROM)
            merged[field] = [item for item in merged.get(field) or () if item not in value]
        elif not key.startswith("$"):
            _set(merged, key, value, f"{path}.{key}")
    for key, order in patch.items():
        field = key.removeprefix(_ORDER)
        if field != key and isinstance(merged.get(field), list):
            merged[field] = _ordered(merged[field], order, target.get(field) or [], field)
    return merged


def _retained(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    kept = patch.get(_RETAIN)
    return {key: value for key, value in target.items() if kept is None or key in kept}


def _set(merged: dict[str, Any], key: str, value: Any, path: str) -> None:
    """Write one field of a patch: null removes, mappings and lists of a known key merge, everything else replaces."""
    old = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict) and isinstance(old, dict):
        merged[key] = merge(old, value, path)
    elif isinstance(value, dict) and value.get(_PATCH) == "delete":
        merged.pop(key, None)
    elif isinstance(value, list) and key in _MERGE_KEYS:
        before = old if isinstance(old, list) else []
        merged[key] = _ordered(_merged_list(before, value, _MERGE_KEYS[key], path), value, before, key)
    elif isinstance(value, list) and key in _PRIMITIVE_LISTS and isinstance(old, list):
        merged[key] = _ordered([*old, *(item for item in value if item not in old)], value, old, key)
    else:
        merged[key] = _new(value, path)


def _new(value: Any, path: str) -> Any:
    """A value that meets no old one: without its nulls and directives."""
    if isinstance(value, dict):
        return merge({}, value, path)
    return [_new(item, path) for item in value] if isinstance(value, list) else value


def _merged_list(old: Sequence[Any], patch: Sequence[Any], key: str, path: str) -> list[Any]:
    for index, item in enumerate(patch):
        if not isinstance(item, dict) or (key not in item and item.get(_PATCH) != "replace"):
            raise InvalidArgument(f"{path}[{index}]", item, expected=f"a mapping with {key}: the list is merged by it")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_new(item, path) for item in patch if _PATCH not in item]
    result = list(old)
    for item in patch:
        at = next((index for index, entry in enumerate(result) if entry.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            result = [entry for entry in result if entry.get(key) != item[key]]
        elif at is None:
            result.append(_new(item, path))
        else:
            result[at] = merge(result[at], item, f"{path}[{item[key]!r}]")
    return result


def _ordered(items: list[Any], order: Sequence[Any], before: Sequence[Any], field: str) -> list[Any]:
    """The items in the server's order: those that the patch names as it names them, the others woven in.

    One of the others comes first only where it stood in front of the next named item ``before``; so new items come first.
    """
    key = _MERGE_KEYS.get(field)

    def identities(entries: Sequence[Any]) -> list[Any]:
        return [entry.get(key) if isinstance(entry, dict) else entry for entry in entries]

    wanted, place = identities(order), {identity: index for index, identity in enumerate(identities(before))}
    known = dict(zip(identities(items), items, strict=True))
    named = sorted((identity for identity in known if identity in wanted), key=wanted.index)
    others = sorted((identity for identity in known if identity not in wanted), key=lambda identity: place.get(identity, 0))
    woven = []
    while named and others:
        stood_before = named[0] in place and place.get(others[0], len(place)) < place[named[0]]
        woven.append((others if stood_before else named).pop(0))
    return [known[identity] for identity in [*woven, *named, *others]]
