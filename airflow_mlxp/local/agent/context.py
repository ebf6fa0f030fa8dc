"""What the parts of the agent that run one pod share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_mlxp.local.agent.aliases import Aliases

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_mlxp.local.agent.names import PortTable
    from airflow_mlxp.local.agent.volumes import VolumeFolders
    from airflow_mlxp.local.client import Client, Object
    from airflow_mlxp.local.events import EventRecorder
    from airflow_mlxp.local.images import ImageTable
    from airflow_mlxp.local.settings import AgentSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeContext:
    """The node."""

    client: Client
    settings: AgentSettings
    images: ImageTable
    folder: Path
    events: EventRecorder
    ports: PortTable
    volumes: VolumeFolders
    aliases: Aliases = field(default_factory=Aliases)


@dataclass(slots=True)
class PodContext:
    """One pod on it. ``pod`` is the newest known object."""

    node: NodeContext
    pod: Object
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    folders: dict[str, Path] = field(default_factory=dict)
    """Folder by volume name, once mounted."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    @property
    def full_name(self) -> str:
        """Name, namespace and uid as the kubelet writes them in messages."""
        metadata = self.pod["metadata"]
        return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"

    @property
    def scratch(self) -> Path:
        """Folder that lives as long as the pod."""
        return self.node.folder / "pods" / self.uid

    @property
    def logs(self) -> Path:
        """Folder of the pod's logs."""
        metadata = self.pod["metadata"]
        return self.node.folder / "logs" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"

    async def pause(self, seconds: float) -> bool:
        """Wait, or less when the pod is to stop; whether it is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            return False
        return True
