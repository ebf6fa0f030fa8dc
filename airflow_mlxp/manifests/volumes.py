"""Volumes of the training container: PersistentVolumeClaims by mount path, and shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from airflow_mlxp import naming
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import tree
from airflow_mlxp.manifests.spec import Volume

SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a mount path inside the container
SHARED_MEMORY = "shared-memory"

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def mount_claims(pod: dict[str, Any], container: dict[str, Any], volumes: Mapping[str, str | Volume]) -> None:
    """Mount each claim at its path; a mount of the manifest at the same path is replaced.

    Raises:
        InvalidArgument: No mapping, a path that is not absolute, or a name that no claim can have.
    """
    if not isinstance(volumes, Mapping):
        raise InvalidArgument("volumes", volumes, expected="a mapping of mount paths to claims, such as {'/data': 'my-claim'}")
    for path, given in volumes.items():
        volume = Volume(claim=given) if isinstance(given, str) else given
        _check(path, volume)
        mount: dict[str, Any] = {"name": _claim_volume(pod, volume.claim), "mountPath": path}
        tree.put(mount, "subPath", volume.sub_path or None)
        tree.put(mount, "readOnly", volume.read_only or None)
        mounts = tree.items(container, "volumeMounts")
        replaced = frozenset(old.get("name") for old in mounts if old.get("mountPath") == path)
        tree.merge_named(mounts, [mount], key="mountPath")
        _drop_unused(pod, replaced)


def fill_shared_memory(pod: dict[str, Any], container: dict[str, Any], source: Mapping[str, Any] | None) -> None:
    """Mount an ``emptyDir`` of this source at /dev/shm unless something is mounted there."""
    mounts = tree.items(container, "volumeMounts")
    if source is not None and not any(mount.get("mountPath") == SHARED_MEMORY_PATH for mount in mounts):
        mounts.append({"name": _volume(pod, SHARED_MEMORY, {"emptyDir": dict(source)}), "mountPath": SHARED_MEMORY_PATH})


def _check(path: str, volume: Volume) -> None:
    if not isinstance(path, str) or not path.startswith("/") or ":" in path:
        raise InvalidArgument("volumes", path, expected="absolute mount paths as keys, such as '/data'")
    if not isinstance(volume, Volume) or not isinstance(volume.claim, str) or not _CLAIM.fullmatch(volume.claim):
        claim = getattr(volume, "claim", volume)
        raise InvalidArgument(f"volumes[{path!r}]", claim, expected="the name of a PersistentVolumeClaim, or a Volume")


def _drop_unused(pod: dict[str, Any], names: frozenset[object]) -> None:
    """Take out those of the named volumes that nothing mounts any more: their claim need not exist."""
    both = [*tree.items(pod, "containers"), *(pod.get("initContainers") or [])]
    mounted = {mount.get("name") for entry in both for mount in entry.get("volumeMounts") or []}
    pod["volumes"] = [volume for volume in tree.items(pod, "volumes") if volume.get("name") not in names - mounted]


def _claim_volume(pod: dict[str, Any], claim: str) -> str:
    name = claim if _VOLUME_NAME.fullmatch(claim) else f"{naming.slug(claim, 50) or 'claim'}-{naming.digest(claim, 8)}"
    return _volume(pod, name, {"persistentVolumeClaim": {"claimName": claim}})


def _volume(pod: dict[str, Any], name: str, source: dict[str, Any]) -> str:
    """Name of the pod's volume with this source; added under ``name``, or under another one when that is taken."""
    volumes = tree.items(pod, "volumes")
    for volume in volumes:
        if {key: value for key, value in volume.items() if key != "name"} == source:
            return str(volume["name"])
    if any(volume.get("name") == name for volume in volumes):
        name = f"{name[:54].rstrip('-')}-{naming.digest(repr(source), 8)}"
    volumes.append({"name": name, **source})
    return name
