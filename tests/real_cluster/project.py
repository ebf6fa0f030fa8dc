"""A namespace of its own for each test on the shared cluster; to helpers it looks like an embedded platform."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.client import CLAIMS, NAMESPACES, SERVICE_ACCOUNTS, Client, Connection
from tests.real_cluster import seed
from tests.support.platform import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from airflow_mlxp.local.settings import AgentSettings
    from tests.real_cluster.cluster import RealCluster


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What tests ask of a server."""

    url: str
    ca_pem: str


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Where the node agent keeps volumes and logs, and how it runs."""

    folder: Path
    agent: AgentSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """One project. ``client`` is the administrator's, ``kubeconfig`` that of the project's user."""

    cluster: RealCluster
    name: str
    client: Client
    kubeconfig: Path
    token: str
    started: int

    @property
    def namespace(self) -> str:
        """The project's namespace."""
        return f"p-{self.name}"

    @property
    def server(self) -> ServerFacts:
        """Address and authority of the API server."""
        return ServerFacts(self.cluster.plane.server, self.cluster.plane.ca_pem)

    @property
    def settings(self) -> NodeSettings:
        """The node that the project's pods run on."""
        return NodeSettings(self.cluster.settings.folder / "node", self.cluster.settings.agent)

    async def make_claim(self, namespace: str, name: str) -> None:
        """A bound volume claim."""
        await seed.make_claim(self.client, namespace, name)

    def requests(self, **wanted: str) -> Iterator[dict[str, Any]]:
        """Answered requests to this namespace, from the audit log."""
        return self.cluster.requests(since=self.started, namespace=self.namespace, **wanted)


@contextlib.asynccontextmanager
async def new_project(cluster: RealCluster, folder: Path, *, volumes: tuple[str, ...] = ()) -> AsyncIterator[Project]:
    """A project that is deleted, with all that runs in it, at the end."""
    plane, name = cluster.plane, f"t{secrets.token_hex(4)}"
    started = plane.audit_log.stat().st_size
    async with Client(Connection(server=plane.server, ca_pem=plane.ca_pem, token=plane.admin_token)) as client:
        token = await seed.make_project(client, name, volumes=volumes)
        kubeconfig = plane.write_kubeconfig(str(folder / "kubeconfig"), token, namespace=f"p-{name}")
        project = Project(cluster=cluster, name=name, client=client, kubeconfig=kubeconfig, token=token, started=started)
        await until(project, SERVICE_ACCOUNTS, "default", bool)  # its controller makes what pods run as
        for volume in volumes:
            await until(project, CLAIMS, volume, lambda claim: claim["status"].get("phase") == "Bound")
        try:
            yield project
        finally:
            await client.request("DELETE", NAMESPACES.path(name=f"p-{name}"))
