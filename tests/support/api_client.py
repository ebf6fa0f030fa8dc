"""A client of an embedded API server, with places where a test can step in between two calls."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import yaml

from airflow_mlxp.cluster import access
from airflow_mlxp.cluster.rest import Client, Created
from airflow_mlxp.local.server import Server, ServerSettings
from airflow_mlxp.workloads.base import Api
from tests.support.objects import NAMESPACE

Hook = Callable[[], Awaitable[Any]]


class HookedClient(Client):
    """Runs what a test has left for a verb: ``before`` its next call, and ``after`` it, when the server has answered."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before: defaultdict[str, list[Hook]] = defaultdict(list)
        self.after: defaultdict[str, list[Hook]] = defaultdict(list)

    async def create(self, api: Api, namespace: str, body: dict[str, Any], *, dry_run: bool = False) -> Created:
        verb = "dry_run" if dry_run else "create"
        await self._run(self.before[verb])
        answer = await super().create(api, namespace, body, dry_run=dry_run)
        await self._run(self.after[verb])
        return answer

    async def json_patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        await self._run(self.before["json_patch"])
        answer = await super().json_patch(path, operations)
        await self._run(self.after["json_patch"])
        return answer

    @staticmethod
    async def _run(hooks: list[Hook]) -> None:
        if hooks:
            await hooks.pop(0)()


@asynccontextmanager
async def api_server() -> AsyncIterator[Server]:
    """An API server with the namespace of the tests."""
    async with Server(ServerSettings(namespaces=("default", NAMESPACE))) as server:
        yield server


@asynccontextmanager
async def api_client(server: Server) -> AsyncIterator[HookedClient]:
    """Its administrator's client."""
    async with HookedClient(access.from_kubeconfig(content=yaml.safe_dump(server.kubeconfig(NAMESPACE)))) as client:
        yield client
