"""API server, controllers and node agent together in one process and event loop."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from airflow_mlxp import errors
from airflow_mlxp.local.agent.agent import NodeAgent
from airflow_mlxp.local.client import CLAIMS, NAMESPACES, SERVICE_ACCOUNTS, Client, Connection
from airflow_mlxp.local.controllers.claims import ClaimController
from airflow_mlxp.local.controllers.job import JobController
from airflow_mlxp.local.controllers.pytorchjob import PyTorchJobController
from airflow_mlxp.local.images import ImageTable
from airflow_mlxp.local.server.server import Server
from airflow_mlxp.local.server.settings import ServerSettings
from airflow_mlxp.local.settings import AgentSettings, ControllerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow_mlxp.local.client import Resource
    from airflow_mlxp.local.controllers.base import Controller

NAMESPACES_BESIDE_PROJECTS = ("default", "kube-node-lease", "kubeflow")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformSettings:
    """What a platform consists of. All that it writes lies under ``folder``, except volumes with a folder of their own."""

    folder: Path
    projects: tuple[str, ...] = ("demo",)
    """Each gets a namespace ``p-<project>`` as on the real platform; the first is the kubeconfig's default."""

    volumes: Mapping[str, Path | None] = field(default_factory=dict)
    """PersistentVolumeClaims made in each project, with the folder that holds the data (None: one under ``folder``)."""

    images: ImageTable = field(default_factory=ImageTable)
    server: ServerSettings = field(default_factory=ServerSettings)
    controllers: ControllerSettings = field(default_factory=ControllerSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)


class Platform:
    """``async with Platform(settings) as platform``: ready inside, no process left after it."""

    def __init__(self, settings: PlatformSettings) -> None:
        self.settings = settings
        self.server = Server(settings.server)
        self.client: Client
        """A client of the administrator, for looking around and for tests."""
        self._tasks: list[asyncio.Task[None]] = []
        self._exits = AsyncExitStack()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, readable by its owner only."""
        return self.settings.folder / "kubeconfig"

    @property
    def namespace(self) -> str:
        """Namespace of the first project."""
        return f"p-{self.settings.projects[0]}"

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait(self) -> None:
        """Return, or raise its error, when a part has ended though it shouldn't."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """End the agent (which kills all pods' processes), the controllers and the server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._exits.aclose()
        self.kubeconfig.unlink(missing_ok=True)

    async def _start(self) -> None:
        settings = self.settings
        settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._exits.enter_async_context(self.server)
        self.server.write_kubeconfig(self.kubeconfig, namespace=self.namespace)
        connection = Connection(server=self.server.url, ca_pem=self.server.ca_pem, token=self.server.token)
        self.client = await self._exits.enter_async_context(Client(connection))
        await self._seed()
        folders = {name: folder for name, folder in settings.volumes.items() if folder is not None}
        agent_settings = replace(settings.agent, volumes={**settings.agent.volumes, **folders})
        agent = NodeAgent(self.client, folder=settings.folder, settings=agent_settings, images=settings.images)
        kinds = (JobController, PyTorchJobController, ClaimController)
        parts: list[Controller | NodeAgent] = [*(kind(self.client, settings.controllers) for kind in kinds), agent]
        self._tasks = [asyncio.create_task(part.run(), name=type(part).__name__) for part in parts]
        ready = asyncio.create_task(_all_ready(parts), name="ready")
        await asyncio.wait([ready, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self.wait()

    async def _seed(self) -> None:
        """Namespaces, the service account that pods run as, and the claims of the projects."""
        projects = [f"p-{name}" for name in self.settings.projects]
        for namespace in (*NAMESPACES_BESIDE_PROJECTS, *projects):
            await self._create(NAMESPACES, "", namespace)
            await self._create(SERVICE_ACCOUNTS, namespace, "default")
        for namespace in projects:
            for claim in self.settings.volumes:
                await self.make_claim(namespace, claim)

    async def make_claim(self, namespace: str, name: str) -> None:
        """A PersistentVolumeClaim; its size is a formality, the data lies in a folder."""
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Ti"}}, "volumeName": name}
        await self._create(CLAIMS, namespace, name, spec=spec)

    async def _create(self, resource: Resource, namespace: str, name: str, **parts: object) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **parts}
        with contextlib.suppress(errors.Conflict):
            await self.client.create(resource, namespace, body)


async def _all_ready(parts: Sequence[Controller | NodeAgent]) -> None:
    for part in parts:
        await part.ready()
