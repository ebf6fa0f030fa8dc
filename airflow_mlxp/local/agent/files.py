"""The files of volumes that are made from objects: secret, configMap, downwardAPI, and projected volumes of these."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent.environment import ConfigError, field_value, resource_value
from airflow_mlxp.local.client import CONFIG_MAPS, SECRETS

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_mlxp.local.client import Client, Object

Files = dict[str, tuple[bytes, int]]
"""Content and mode by path."""

KINDS = ("secret", "configMap", "downwardAPI", "projected")

_MODE = 0o644


async def read(client: Client, pod: Object, volume: Object) -> Files:
    """All files of a volume; ConfigError when something is missing. Service account tokens are left out: there are none."""
    kind = next(kind for kind in KINDS if kind in volume)
    source = volume[kind]
    mode = int(source.get("defaultMode") or _MODE)
    parts = source.get("sources") or [] if kind == "projected" else [{kind: source}]
    files: Files = {}
    try:
        for part in parts:
            if "downwardAPI" in part:
                files |= _downward(pod, part["downwardAPI"], mode)
            elif "secret" in part or "configMap" in part:
                files |= await _entries(client, pod["metadata"]["namespace"], part, mode)
    except ConfigError as error:
        raise ConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
    return files


def write(folder: Path, files: Files) -> Path:
    """Write them anew."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (content, mode) in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(content)
        target.chmod(mode)
    return folder


async def _entries(client: Client, namespace: str, part: Object, mode: int) -> Files:
    secret = "secret" in part
    source = part["secret" if secret else "configMap"]
    name = source.get("secretName") or source["name"]
    found = await client.find(SECRETS if secret else CONFIG_MAPS, namespace, name)
    optional = bool(source.get("optional"))
    if found is None and not optional:
        raise ConfigError(f'{"secret" if secret else "configmap"} "{name}" not found')
    content = _content(found or {}, secret=secret)
    if not source.get("items"):
        return {key: (value, mode) for key, value in content.items()}
    files: Files = {}
    for item in source["items"]:
        if item["key"] in content:
            files[item["path"]] = content[item["key"]], int(item.get("mode") or mode)
        elif not optional:
            raise ConfigError(f"references non-existent {'secret' if secret else 'config'} key: {item['key']}")
    return files


def _content(found: Object, *, secret: bool) -> dict[str, bytes]:
    data, binary = found.get("data") or {}, found.get("binaryData") or {}
    if secret:
        data, binary = {}, data
    return {key: value.encode() for key, value in data.items()} | {key: base64.b64decode(value) for key, value in binary.items()}


def _downward(pod: Object, source: Object, mode: int) -> Files:
    files: Files = {}
    for item in source.get("items") or []:
        if "fieldRef" in item:
            text = _field(pod, item["fieldRef"]["fieldPath"])
        else:
            wanted = item["resourceFieldRef"]
            containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
            text = resource_value(next(one for one in containers if one["name"] == wanted["containerName"]), wanted)
        files[item["path"]] = text.encode(), int(item.get("mode") or mode)
    return files


def _field(pod: Object, path: str) -> str:
    """A field; labels and annotations are one ``key="value"`` a line, sorted."""
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = pod["metadata"].get(path.partition(".")[2]) or {}
        return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items()))
    return field_value(pod, path)
