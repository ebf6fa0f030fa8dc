"""Volumes as folders of this machine."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent.environment import ConfigError
from airflow_mlxp.local.client import CLAIMS, CONFIG_MAPS, SECRETS

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
            folders[volume["name"]] = await self._folder(pod["metadata"]["namespace"], volume, scratch / volume["name"])
        return folders

    async def _folder(self, namespace: str, volume: Object, scratch: Path) -> Path:
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            if await self._client.find(CLAIMS, namespace, claim) is None:
                raise ConfigError(f'persistentvolumeclaim "{claim}" not found')
            return await asyncio.to_thread(_make, self.claim_folder(namespace, claim))
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        if "secret" in volume or "configMap" in volume:
            files = await self._files(namespace, volume)
            return await asyncio.to_thread(_write, scratch, files)
        # emptyDir, and what needs a cluster (projected tokens, CSI): an empty folder.
        return await asyncio.to_thread(_make, scratch)

    async def _files(self, namespace: str, volume: Object) -> dict[str, bytes]:
        secret = "secret" in volume
        source = volume["secret"] if secret else volume["configMap"]
        name = source["secretName"] if secret else source["name"]
        found = await self._client.find(SECRETS if secret else CONFIG_MAPS, namespace, name)
        if found is None and not source.get("optional"):
            what = "secret" if secret else "configmap"
            raise ConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {what} "{name}" not found')
        data = (found or {}).get("data") or {}
        content = {key: base64.b64decode(value) if secret else str(value).encode() for key, value in data.items()}
        if source.get("items"):
            return {item["path"]: content[item["key"]] for item in source["items"] if item["key"] in content}
        return content


def mount_paths(container: Object, folders: Mapping[str, Path]) -> dict[str, str]:
    """Folder by mount path, for the translation of texts; /dev/shm is the machine's own."""
    mounts = {}
    for mount in container.get("volumeMounts") or []:
        if mount["mountPath"].rstrip("/") == SHARED_MEMORY or mount["name"] not in folders:
            continue
        folder = folders[mount["name"]]
        mounts[mount["mountPath"]] = str(folder / mount["subPath"] if mount.get("subPath") else folder)
    return mounts


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(folder: Path, files: Mapping[str, bytes]) -> Path:
    _make(folder)
    for name, content in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(content)
    return folder
