"""List and watch of one resource: a cache that calls back on each change, as client-go's informers do."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp

from airflow_mlxp import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.local.client import Client, Object, Resource

    Handler = Callable[[Object, bool], None]

log = logging.getLogger(__name__)

RELIST_DELAY = 0.2
"""Seconds before a list or watch that failed is tried again; the server is on this machine, so waiting longer gains nothing."""


class Informer:
    """Keeps ``objects`` (by uid) equal to the server's and tells ``handler(object, deleted)`` about every change."""

    def __init__(self, client: Client, resource: Resource, handler: Handler, *, selector: str = "") -> None:
        self.objects: dict[str, Object] = {}
        self.synced = asyncio.Event()
        self._client, self._resource, self._handler, self._selector = client, resource, handler, selector

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except errors.Gone:
                continue
            except (errors.ClusterError, aiohttp.ClientError, TimeoutError) as error:
                log.debug("watch of %s: %s", self._resource.plural, error)
                await asyncio.sleep(RELIST_DELAY)

    async def _list(self) -> str:
        answer = await self._client.list(self._resource, selector=self._selector)
        found = {item["metadata"]["uid"]: item for item in answer["items"]}
        for uid in self.objects.keys() - found.keys():
            self._handler(self.objects.pop(uid), True)  # noqa: FBT003 - the handler's signature is (object, deleted)
        for uid, item in found.items():
            if self.objects.get(uid, {}).get("metadata", {}).get("resourceVersion") != item["metadata"]["resourceVersion"]:
                self.objects[uid] = item
                self._handler(item, False)  # noqa: FBT003 - see above
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        async for kind, item in self._client.watch(self._resource, resource_version=version, selector=self._selector):
            version = item["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            uid = item["metadata"]["uid"]
            if kind == "DELETED":
                self.objects.pop(uid, None)
            else:
                self.objects[uid] = item
            self._handler(item, kind == "DELETED")
        return version
