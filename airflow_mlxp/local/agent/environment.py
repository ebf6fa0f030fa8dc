"""The environment of a container from its spec: values, fields, Secrets and ConfigMaps, with $(NAME) expanded."""

from __future__ import annotations

import base64
import math
import re
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent import quantity
from airflow_mlxp.local.client import CONFIG_MAPS, SECRETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.client import Client, Object, Resource

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_MAP_KEY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ConfigError(Exception):
    """Something that the container refers to is missing; the text is the kubelet's."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; ``$$`` is a dollar sign, and an unknown name stays as it is."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match.group() == "$$" else variables.get(match[1], match.group())

    return _REFERENCE.sub(replace, text)


async def resolve(client: Client, pod: Object, container: Object) -> dict[str, str]:
    """The container's own variables; ConfigError when a Secret or ConfigMap, or a key of it, is missing."""
    reader = _Reader(client, pod["metadata"]["namespace"])
    env: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        env |= {f"{source.get('prefix') or ''}{key}": value for key, value in (await reader.everything(source)).items()}
    for variable in container.get("env") or []:
        if "valueFrom" not in variable:
            env[variable["name"]] = expand(variable.get("value") or "", env)
            continue
        value = await _value_from(reader, pod, container, variable["valueFrom"])
        if value is not None:
            env[variable["name"]] = value
    return env


def field_value(pod: Object, path: str) -> str:
    """The downward API (``fieldRef``): metadata, spec.nodeName, spec.serviceAccountName and the pod's and host's address."""
    found = _MAP_KEY.fullmatch(path)
    if found is not None:
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    if path in {"status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"}:
        return "127.0.0.1"
    node: object = pod
    for part in path.split("."):
        node = node.get(part, "") if isinstance(node, dict) else ""
    return str(node)


async def _value_from(reader: _Reader, pod: Object, container: Object, source: Object) -> str | None:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        return resource_value(container, source["resourceFieldRef"])
    if "secretKeyRef" in source:
        return await reader.key(SECRETS, source["secretKeyRef"])
    return await reader.key(CONFIG_MAPS, source["configMapKeyRef"])


def resource_value(container: Object, reference: Object) -> str:
    """The downward API (``resourceFieldRef``): a request or limit of the container in units of the divisor."""
    kind, _, name = reference["resource"].partition(".")
    amount = quantity.parse(((container.get("resources") or {}).get(kind) or {}).get(name, 0))
    return str(math.ceil(amount / quantity.parse(reference.get("divisor") or "1")))


class _Reader:
    """Reads Secrets and ConfigMaps, each once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._found: dict[tuple[str, str], dict[str, str] | None] = {}

    async def everything(self, source: Object) -> dict[str, str]:
        """All entries for ``envFrom``."""
        resource, reference = (SECRETS, source["secretRef"]) if "secretRef" in source else (CONFIG_MAPS, source["configMapRef"])
        data = await self._data(resource, reference["name"])
        if data is None and not reference.get("optional"):
            raise ConfigError(f'{resource.kind.lower()} "{reference["name"]}" not found')
        return data or {}

    async def key(self, resource: Resource, reference: Object) -> str | None:
        """One entry; None when it is optional and missing."""
        data = await self._data(resource, reference["name"])
        if reference.get("optional"):
            return (data or {}).get(reference["key"])
        if data is None:
            raise ConfigError(f'{resource.kind.lower()} "{reference["name"]}" not found')
        if reference["key"] not in data:
            raise ConfigError(f"couldn't find key {reference['key']} in {resource.kind} {self._namespace}/{reference['name']}")
        return data[reference["key"]]

    async def _data(self, resource: Resource, name: str) -> dict[str, str] | None:
        if (resource.plural, name) not in self._found:
            found = await self._client.find(resource, self._namespace, name)
            self._found[resource.plural, name] = None if found is None else entries(found)
        return self._found[resource.plural, name]


def entries(obj: Object) -> dict[str, str]:
    """The data of a Secret (decoded) or ConfigMap."""
    data = obj.get("data") or {}
    if obj["kind"] == "Secret":
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
    return {key: str(value) for key, value in data.items()}
