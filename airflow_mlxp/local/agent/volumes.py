"""Volumes as folders of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent import files
from airflow_mlxp.local.agent.environment import ConfigError
from airflow_mlxp.local.client import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.client import Client, Object

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the mount path that pods name; it is left to the machine


class VolumeFolders:
    """Finds or makes the folder of each volume of a pod."""

    def __init__(self, client: Client, root: Path, claims: Mapping[str, Path]) -> None:
        self._client, self._root, self._claims = client, root, claims

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """Where the data of a PersistentVolumeClaim lies: it stays when pods and claims go."""
        return self._claims.get(claim) or self._root / namespace / claim

    async def mount(self, pod: Object, scratch: Path) -> dict[str, Path]:
        """Folder by volume name; ``scratch`` holds what lives as long as the pod. ConfigError: something is missing."""
        folders = {}
        for volume in pod["spec"].get("volumes") or []:
            try:
                folders[volume["name"]] = await self._folder(pod, volume, scratch / volume["name"])
            except OSError as error:
                raise ConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
        return folders

    async def _folder(self, pod: Object, volume: Object, scratch: Path) -> Path:
        namespace = pod["metadata"]["namespace"]
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            if await self._client.find(CLAIMS, namespace, claim) is None:
                raise ConfigError(f'persistentvolumeclaim "{claim}" not found')
            return await asyncio.to_thread(_make, self.claim_folder(namespace, claim))
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if any(kind in volume for kind in files.KINDS):
            return await asyncio.to_thread(files.write, scratch, await files.read(self._client, pod, volume))
        # emptyDir, and what needs a cluster (CSI, NFS): an empty folder.
        return await asyncio.to_thread(_make, scratch)


def mount_paths(container: Object, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Folder by mount path, for the translation of texts; /dev/shm is the machine's own. A subPath that is missing is made."""
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        if mount["mountPath"].rstrip("/") == SHARED_MEMORY or mount["name"] not in folders:
            continue
        place = folders[mount["name"]]
        if mount.get("subPath"):
            place /= mount["subPath"]
            if not place.exists():
                _make(place)
        mounts[mount["mountPath"]] = place
    return mounts


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
