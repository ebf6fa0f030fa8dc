"""Volumes of the training container by mount path, and shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_mlxp import naming, quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import tree, typed, wire
from airflow_mlxp.manifests.spec import Volume

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a mount path inside the container
SHARED_MEMORY = "shared-memory"

_CLAIM, _HOST_PATH = "persistentVolumeClaim", "hostPath"
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SOURCES = {"claim": "a PersistentVolumeClaim", "secret": "a Secret", "config_map": "a ConfigMap"}


def mount(pod: dict[str, Any], container: dict[str, Any], volumes: Mapping[str, object], *, kind: str) -> None:
    """Mount each volume at its path; a mount of the manifest at the same path is replaced.

    Raises:
        InvalidArgument: No mapping, a path that is not absolute, a name that no such object can have, or a hostPath.
    """
    if not isinstance(volumes, Mapping):
        raise InvalidArgument("volumes", volumes, expected="a mapping of mount paths to claims, such as {'/data': 'my-claim'}")
    for path, given in volumes.items():
        if not isinstance(path, str) or not path.startswith("/") or ":" in path:
            raise InvalidArgument("volumes", path, expected="absolute mount paths as keys, such as '/data'")
        argument = f"volumes[{path!r}]"
        volume = _volume(given, argument)
        source, name = _source(volume, path, argument, kind=kind)
        entry: dict[str, Any] = {"name": _added(pod, name, source), "mountPath": path}
        tree.put(entry, "subPath", tree.text(volume.sub_path, f"{argument}.sub_path") or None)
        tree.put(entry, "readOnly", tree.flag(volume.read_only, f"{argument}.read_only") or None)
        unmount(pod, container, path, replacement=entry)


def unmount(pod: dict[str, Any], container: dict[str, Any], path: str, *, replacement: dict[str, Any] | None = None) -> None:
    """Take away, or replace, what is mounted at a path, with its volume when nothing else mounts it."""
    mounts = tree.items(container, "volumeMounts")
    replaced = frozenset(old.get("name") for old in mounts if old.get("mountPath") == path)
    if replacement is not None:
        tree.merge_named(mounts, [replacement], key="mountPath")
    else:
        container["volumeMounts"] = [old for old in mounts if old.get("mountPath") != path]
    _drop_unused(pod, replaced)
    for owner, key in ((container, "volumeMounts"), (pod, "volumes")):
        if not owner[key]:
            del owner[key]


def share_memory(
    pod: dict[str, Any], container: dict[str, Any], given: object, *, default: bool, source: Mapping[str, Any] | None
) -> None:
    """Mount an ``emptyDir`` at /dev/shm as the ``shared_memory`` argument says; ``default`` is its meaning when not given.

    Raises:
        InvalidArgument: Neither a truth value nor a size.
    """
    wanted: object = default if tree.is_unset(given) else given
    if isinstance(wanted, bool) or wanted is None or tree.is_flag(wanted):
        if tree.flag(wanted or False, "shared_memory"):
            fill_shared_memory(pod, container, source)
        elif not tree.is_unset(given):
            unmount(pod, container, SHARED_MEMORY_PATH)
        return
    if not isinstance(wanted, str):
        raise InvalidArgument("shared_memory", wanted, expected="True, False, or a size such as '64Gi'")
    sized = {"emptyDir": {**(source or {"medium": "Memory"}), "sizeLimit": quantity.memory(wanted, "shared_memory")}}
    entry = {"name": _added(pod, SHARED_MEMORY, sized), "mountPath": SHARED_MEMORY_PATH}
    unmount(pod, container, SHARED_MEMORY_PATH, replacement=entry)


def fill_shared_memory(pod: dict[str, Any], container: dict[str, Any], source: Mapping[str, Any] | None) -> None:
    """Mount an ``emptyDir`` of this source at /dev/shm unless something is mounted there."""
    mounts = tree.items(container, "volumeMounts")
    if source is not None and not any(entry.get("mountPath") == SHARED_MEMORY_PATH for entry in mounts):
        mounts.append({"name": _added(pod, SHARED_MEMORY, {"emptyDir": dict(source)}), "mountPath": SHARED_MEMORY_PATH})


def host_paths(pod: Mapping[str, Any]) -> list[str]:
    """Names of the pod's volumes that are folders of the node."""
    return [str(volume.get("name")) for volume in pod.get("volumes") or [] if volume.get(_HOST_PATH) is not None]


def mounts_claims(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has a PersistentVolumeClaim."""
    return any(volume.get(_CLAIM) is not None for volume in pod.get("volumes") or [])


def _volume(given: object, argument: str) -> Volume:
    if isinstance(given, Volume):
        return given
    if isinstance(given, str):
        return Volume(claim=given)
    if isinstance(given, Mapping) or wire.is_model(given):
        return Volume(source=wire.plain(given, argument))
    raise InvalidArgument(argument, given, expected="the name of a PersistentVolumeClaim, or a Volume")


def _source(volume: Volume, path: str, argument: str, *, kind: str) -> tuple[dict[str, Any], str]:
    """The volume source in wire form, and the name that the volume has when it is free."""
    given = [name for name in (*_SOURCES, "empty_dir", "source") if getattr(volume, name)]
    if len(given) != 1:
        words = "exactly one of claim, secret, config_map, empty_dir and source"
        raise InvalidArgument(argument, given, expected=words)
    if given[0] == "source":
        return _any_source(volume.source, f"{argument}.source", kind=kind)
    if given[0] == "empty_dir":
        return {"emptyDir": _empty_dir(volume.empty_dir, f"{argument}.empty_dir")}, naming.slug(f"scratch{path}", 50)
    name = getattr(volume, given[0])
    if not isinstance(name, str) or not _OBJECT_NAME.fullmatch(name):
        raise InvalidArgument(argument, name, expected=f"the name of {_SOURCES[given[0]]}, or a Volume")
    return _named_source(volume, given[0], name, argument)


def _named_source(volume: Volume, source: str, name: str, argument: str) -> tuple[dict[str, Any], str]:
    if source == "claim":
        return {_CLAIM: {"claimName": name}}, _volume_name(name, "claim")
    files: dict[str, Any] = {}
    if volume.items:
        items = tree.text_map(volume.items, f"{argument}.items")
        files["items"] = [{"key": key, "path": path} for key, path in items.items()]
    if volume.default_mode is not None:
        files["defaultMode"] = quantity.whole(volume.default_mode, f"{argument}.default_mode", minimum=0)
    if source == "secret":
        return {"secret": {"secretName": name, **files}}, _volume_name(name, "secret")
    return {"configMap": {"name": name, **files}}, _volume_name(name, "config")


def _empty_dir(given: bool | str, argument: str) -> dict[str, Any]:
    return {} if tree.is_flag(given) and tree.flag(given, argument) else {"sizeLimit": quantity.memory(given, argument)}


def _any_source(given: Mapping[str, Any], argument: str, *, kind: str) -> tuple[dict[str, Any], str]:
    whole = wire.plain(given, argument)
    name = whole.pop("name", None) if isinstance(whole, dict) else None
    if isinstance(whole, dict) and _HOST_PATH in whole:
        fix = "use a PersistentVolumeClaim; a folder of the node can still be mounted with overrides"
        raise InvalidArgument(argument, _HOST_PATH, expected="no folder of the node", fix=fix)
    source = typed.mapping({"name": "volume", **whole} if isinstance(whole, dict) else whole, "V1Volume", argument, kind=kind)
    del source["name"]
    if len(source) != 1:
        raise InvalidArgument(argument, sorted(source), expected="exactly one volume source, such as {'nfs': {...}}")
    return source, _volume_name(str(name), "volume") if name else naming.slug(next(iter(source)), 50)


def _volume_name(name: str, fallback: str) -> str:
    return name if _VOLUME_NAME.fullmatch(name) else f"{naming.slug(name, 50) or fallback}-{naming.digest(name, 8)}"


def _drop_unused(pod: dict[str, Any], names: frozenset[object]) -> None:
    """Take out those of the named volumes that nothing mounts any more: their claim need not exist."""
    both = [*tree.items(pod, "containers"), *(pod.get("initContainers") or [])]
    mounted = {entry.get("name") for one in both for entry in one.get("volumeMounts") or []}
    pod["volumes"] = [volume for volume in tree.items(pod, "volumes") if volume.get("name") not in names - mounted]


def _added(pod: dict[str, Any], name: str, source: dict[str, Any]) -> str:
    """Name of the pod's volume with this source; added under ``name``, or under another one when that is taken."""
    volumes = tree.items(pod, "volumes")
    other_name = f"{name[:54].rstrip('-')}-{naming.digest(repr(source), 8)}"
    for volume in volumes:
        same = {key: value for key, value in volume.items() if key != "name"} == source
        # Two empty folders are two, everything else is the same thing under either name.
        if same and ("emptyDir" not in source or volume.get("name") in (name, other_name)):
            return str(volume["name"])
    chosen = other_name if any(volume.get("name") == name for volume in volumes) else name
    volumes.append({"name": chosen, **source})
    return chosen
