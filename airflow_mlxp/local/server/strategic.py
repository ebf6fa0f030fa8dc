"""Strategic merge patch: lists of built-in kinds are merged by the key that the Kubernetes API declares for them.

Supported directives: ``$patch`` (delete, replace, merge), ``$retainKeys``, ``$deleteFromPrimitiveList/<list>``;
``$setElementOrder/<list>`` gives the order.
"""

from __future__ import annotations

from typing import Any

MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "secrets": "name",
    "podIPs": "ip",
    "hostIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
}
"""``patchMergeKey`` of the lists in the kinds that the server knows. ``ports`` differs: see ``_merge_key``."""
_PRIMITIVE = {"finalizers"}


def merge(target: Any, patch: Any, name: str = "") -> Any:
    """The target with a strategic merge patch applied; neither is changed. ``name`` is the field that holds the value."""
    if isinstance(patch, dict):
        return _merge_object(target if isinstance(target, dict) else {}, patch)
    if isinstance(patch, list):
        return _merge_list(target if isinstance(target, list) else [], patch, name)
    return patch


def _merge_object(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    plain = {key: value for key, value in patch.items() if not _is_directive(key)}
    result = {} if directive == "replace" else dict(target)
    if (retained := patch.get("$retainKeys")) is not None:
        result = {key: value for key, value in result.items() if key in retained}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            result[field] = [item for item in result.get(field) or () if item not in value]
    for key, value in plain.items():
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value, key)
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            field = key.partition("/")[2]
            if field in result:
                result[field] = _ordered(result[field], order, field)
    return result


def _is_directive(key: str) -> bool:
    return key in {"$patch", "$retainKeys"} or key.startswith(("$deleteFromPrimitiveList/", "$setElementOrder/"))


def _merge_key(name: str, items: list[Any]) -> str | None:
    if name != "ports":
        return MERGE_KEYS.get(name)
    return "containerPort" if any("containerPort" in item for item in items if isinstance(item, dict)) else "port"


def _merge_list(target: list[Any], patch: list[Any], name: str) -> list[Any]:
    if name in _PRIMITIVE:
        return [*target, *(item for item in patch if item not in target)]
    key = _merge_key(name, patch)
    if key is None:
        return patch
    changes = [item for item in patch if isinstance(item, dict)]
    if any(item == {"$patch": "replace"} for item in changes):
        return [item for item in changes if item != {"$patch": "replace"}]
    result = list(target)
    for change in changes:
        at = next((n for n, item in enumerate(result) if item.get(key) == change.get(key)), None)
        if change.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(merge({}, change))
        else:
            result[at] = merge(result[at], change)
    return result


def _ordered(items: list[Any], order: list[Any], name: str) -> list[Any]:
    """The items in the order of the directive; what it doesn't name keeps its place behind what it followed."""
    key = _merge_key(name, items)
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def rank(item: Any) -> int:
        value = item.get(key) if isinstance(item, dict) and key else item
        return wanted.index(value) if value in wanted else -1

    ranks, last = [], -1
    for item in items:
        own = rank(item)
        last = own if own >= 0 else last
        ranks.append(last)
    return [item for _, item in sorted(zip(ranks, items, strict=True), key=lambda pair: pair[0])]
