"""A real control plane on this machine: etcd, Kubernetes, the training operator, and our node agent as its kubelet."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local.agent.agent import NodeAgent
from airflow_mlxp.local.client import NODES, PYTORCHJOBS, SERVICE_ACCOUNTS, Client, Connection
from airflow_mlxp.local.images import Image, ImageTable
from airflow_mlxp.local.settings import AgentSettings
from tests.real_cluster import build, seed
from tests.real_cluster.commands import ControlPlane
from tests.real_cluster.process import ComponentFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real_cluster.process import Component

ZONE = "ai-infra"
"""GPU zone that the node belongs to."""
QUICK_AGENT = AgentSettings(
    node_name="real",
    gpus=8,
    bind_pods=False,
    restart_backoff=0.5,
    image_pull_backoff=0.2,
    config_retry=0.1,
    memory_interval=0.1,
)
_NODE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSettings:
    """What a real cluster consists of; all that it writes lies under ``folder``, which must not exist."""

    folder: Path
    projects: tuple[str, ...] = ("demo",)
    volumes: tuple[str, ...] = ()
    """Volume claims of each project."""
    images: ImageTable = field(default_factory=ImageTable)
    agent: AgentSettings = QUICK_AGENT
    training_operator: str = "1.9.4"


class RealCluster:
    """``async with RealCluster(settings) as cluster``: ready inside, no process left after it. Looks like a ``Platform``."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.plane = ControlPlane(settings.folder, build.TRAINING_OPERATORS[settings.training_operator])
        self.client: Client
        """A client of the administrator."""
        self.kubeconfig: Path
        """Kubeconfig of the first project's user, who may do what ``seed.USER_RULES`` say."""
        self.components: list[Component] = []
        self._agent: asyncio.Task[None] | None = None
        self._exits = AsyncExitStack()

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

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ended = [component.name for component in self.components if not component.is_running]
        await self.stop()
        if ended and kind is None:
            raise ComponentFailed(f"ended before they were stopped: {', '.join(ended)}; logs: {self.settings.folder / 'logs'}")

    async def stop(self) -> None:
        """The agent first, so that no process of a pod stays, then the components, last started first."""
        if self._agent is not None:
            self._agent.cancel()
            await asyncio.gather(self._agent, return_exceptions=True)
        await self._exits.aclose()
        for component in reversed(self.components):
            await component.stop()

    def requests(self, *, since: int = 0, **wanted: str) -> Iterator[dict[str, Any]]:
        """Answered requests from the audit log; ``verb`` and fields of ``objectRef`` (``resource``, ``name``) select."""
        with self.plane.audit_log.open(encoding="utf-8") as lines:
            lines.seek(since)
            for line in lines:
                entry = json.loads(line)
                fields = {**entry.get("objectRef", {}), "verb": entry["verb"], "user": entry["user"]["username"]}
                if all(fields.get(key) == value for key, value in wanted.items()):
                    yield entry

    async def _start(self) -> None:
        plane = self.plane
        await asyncio.to_thread(plane.write_files)
        await self._run(plane.etcd())
        server = await self._run(plane.kube_apiserver())
        connection = Connection(server=plane.server, ca_pem=plane.ca_pem, token=plane.admin_token)
        self.client = await self._exits.enter_async_context(Client(connection))
        await server.until(self._is_serving)
        plane.write_kubeconfig("admin.kubeconfig", plane.admin_token)
        await self._run(plane.kube_controller_manager())
        await self._run(plane.kube_scheduler())
        await seed.install_operator(self.client, plane)
        operator = await self._run(plane.training_operator())
        await self._make_projects()
        self._agent = asyncio.create_task((await self._node_agent()).run(), name="node agent")
        await self._node_ready()
        await operator.until(self._operator_validates)

    async def _run(self, component: Component) -> Component:
        self.components.append(component)
        await component.start()
        return component

    async def _is_serving(self) -> bool:
        try:
            async with self.client._open("GET", "/readyz") as response:  # the answer is no JSON
                return response.status == 200
        except aiohttp.ClientError:
            return False

    async def _make_projects(self) -> None:
        tokens = [await seed.make_project(self.client, name, volumes=self.settings.volumes) for name in self.settings.projects]
        self.kubeconfig = self.plane.write_kubeconfig("kubeconfig", tokens[0], namespace=self.namespace)

    async def _node_agent(self) -> NodeAgent:
        settings = self.settings
        folder = await asyncio.to_thread(_fake_name_service, settings.folder / "busybox")
        # The operator gives workers an init container that waits until the name of their master is known.
        images = settings.images.extended([Image(name="alpine:*", path=(folder,))])
        agent = replace(settings.agent, client_ca=self.plane.ca_pem)
        return NodeAgent(self.client, folder=settings.folder / "node", settings=agent, images=images)

    async def _node_ready(self) -> None:
        """Wait until the scheduler may bind pods to the node and pods have the service account that they run as."""
        name = self.settings.agent.node_name
        async with asyncio.timeout(_NODE_SECONDS):
            while not await self.client.find(NODES, "", name):
                await self._pause()
            await self.client.patch(NODES, "", name, {"metadata": {"labels": {"mlx.navercorp.com/zone": ZONE}}})
            while (await self.client.get(NODES, "", name))["spec"].get("taints"):
                await self._pause()
            for project in self.settings.projects:
                while not await self.client.find(SERVICE_ACCOUNTS, f"p-{project}", "default"):
                    await self._pause()

    async def _pause(self) -> None:
        assert self._agent is not None, "the agent was not started"
        done, _ = await asyncio.wait([self._agent], timeout=0.1)
        for task in done:
            task.result()

    async def _operator_validates(self) -> bool:
        """Whether the webhook answers: until then every PyTorchJob is refused for want of it."""
        body = {
            "apiVersion": PYTORCHJOBS.api_version,
            "kind": PYTORCHJOBS.kind,
            "metadata": {"name": "probe"},
            "spec": {"pytorchReplicaSpecs": {}},
        }
        try:
            await self.client.request("POST", PYTORCHJOBS.path(self.namespace), params={"dryRun": "All"}, body=body)
        except (errors.ServerFailure, errors.NotFound):  # NotFound: the kind itself is not served yet
            return False
        except errors.ClusterError:
            return True
        return True


def _fake_name_service(folder: Path) -> Path:
    """A folder with an ``nslookup`` that knows every name: there is no cluster DNS, the agent puts addresses in their place."""
    folder.mkdir()
    program = folder / "nslookup"
    program.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    program.chmod(0o755)
    return folder
