"""Events as the real components record them: a repeated one is counted on the same object."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.client import EVENTS

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Client, Object

REMEMBERED = 4096
"""Events whose count is kept, as client-go's correlator."""


class EventRecorder:
    """Records events of one component (``source.component``) about any object."""

    def __init__(self, client: Client, component: str, *, host: str = "") -> None:
        self._client, self._component, self._host = client, component, host
        self._seen: dict[tuple[str, str, str, str], tuple[str, int]] = {}

    async def normal(self, about: Object, reason: str, message: str) -> None:
        """An event of type Normal."""
        await self._record(about, "Normal", reason, message)

    async def warning(self, about: Object, reason: str, message: str) -> None:
        """An event of type Warning."""
        await self._record(about, "Warning", reason, message)

    async def _record(self, about: Object, kind: str, reason: str, message: str) -> None:
        """Count up or create; a namespace or event that is gone meanwhile is no reason to fail."""
        key = (about["metadata"]["uid"], kind, reason, message)
        namespace = about["metadata"].get("namespace") or "default"
        name, count = self._seen.get(key, ("", 0))
        try:
            if name:
                patch = {"count": count + 1, "lastTimestamp": objects.now()}
                await self._client.patch(EVENTS, namespace, name, patch)
                self._seen[key] = (name, count + 1)
                return
        except (errors.ClusterError, aiohttp.ClientError):
            self._seen.pop(key, None)
        try:
            body = self._body(about, namespace, kind, reason, message)
            await self._client.create(EVENTS, namespace, body)
        except (errors.ClusterError, aiohttp.ClientError):
            return
        self._seen[key] = (body["metadata"]["name"], 1)
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _body(self, about: Object, namespace: str, kind: str, reason: str, message: str) -> Object:
        metadata, moment = about["metadata"], objects.now()
        source = {"component": self._component} | ({"host": self._host} if self._host else {})
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{time.time_ns():x}", "namespace": namespace},
            "involvedObject": {
                "kind": about["kind"],
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "uid": metadata["uid"],
                "apiVersion": about["apiVersion"],
                "resourceVersion": metadata.get("resourceVersion", ""),
            },
            "reason": reason,
            "message": message[:1024],
            "source": source,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
