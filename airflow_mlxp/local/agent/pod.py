"""One pod on the node: volumes, init containers, containers, the end, and the deletion."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from typing import TYPE_CHECKING

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.agent import environment, status
from airflow_mlxp.local.agent.container import Container
from airflow_mlxp.local.agent.context import NodeContext, PodContext
from airflow_mlxp.local.client import PODS

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object

log = logging.getLogger(__name__)

_API_RETRY = 0.2
"""Seconds between two tries to write a status while the API server doesn't answer."""

_DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class PodWorker:
    """Runs one pod from its binding to its deletion."""

    def __init__(self, node: NodeContext, pod: Object) -> None:
        self.context = PodContext(node, pod)
        spec, policy = pod["spec"], pod["spec"].get("restartPolicy", "Always")
        self.containers = [Container(self.context, item, self._publish, policy=policy) for item in spec["containers"]]
        self.init = [
            Container(self.context, item, self._publish, policy=item.get("restartPolicy") or _init_policy(policy))
            for item in spec.get("initContainers") or []
        ]
        if self.init:
            for container in self.containers:
                container.state = {"waiting": {"reason": "PodInitializing"}}
        self._phase, self._initialized = "Pending", not self.init
        self._writing = asyncio.Lock()
        self._grace = float("inf")
        self._expired = False

    async def run(self) -> None:
        """Live the pod's life; returns when the pod is to be forgotten."""
        try:
            if not objects.is_terminal(self.context.pod):
                await self._live()
            if self._expired and not objects.is_deleting(self.context.pod):
                self.context.stopping.clear()  # its containers had to stop, the pod stays to be looked at
            await self.context.stopping.wait()
            await self._delete()
        finally:
            await self._kill()
            await asyncio.to_thread(self._remove_files)

    def update(self, pod: Object) -> None:
        """Take a newer object; a deletion starts to stop the containers."""
        self.context.pod = pod
        if objects.is_deleting(pod):
            self.stop(float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM to all containers, SIGKILL after the grace. May be called again to shorten the grace."""
        self.context.stopping.set()
        if grace_seconds < self._grace:
            self._grace = grace_seconds
            for container in (*self.containers, *self.init):
                container.terminate(grace_seconds)

    def container(self, name: str) -> Container | None:
        """The container of a name, of the init phase too."""
        return next((item for item in (*self.containers, *self.init) if item.name == name), None)

    async def _live(self) -> None:
        await self._publish()
        sidecars: set[asyncio.Task[None]] = set()
        deadline = asyncio.create_task(self._guard_deadline(), name=f"deadline {self.context.full_name}")
        try:
            if await self._mount() and await self._initialize(sidecars):
                self._initialized = True
                for container in self.containers:
                    if container.state == {"waiting": {"reason": "PodInitializing"}}:
                        container.state = {"waiting": {"reason": "ContainerCreating"}}
                async with asyncio.TaskGroup() as group:
                    for container in self.containers:
                        group.create_task(container.run(), name=f"container {container.name}")
        finally:
            deadline.cancel()
            await self._stop_sidecars(sidecars)
        self._phase = "Failed" if self._expired else status.final_phase(self.containers, self.init)
        await self._publish()

    async def _guard_deadline(self) -> None:
        """The pod's activeDeadlineSeconds: its containers are stopped, the pod has failed."""
        spec = self.context.pod["spec"]
        if (limit := spec.get("activeDeadlineSeconds")) is not None:
            await asyncio.sleep(float(limit))
            self._expired = True
            self.stop(float(spec.get("terminationGracePeriodSeconds", 30)))

    async def _mount(self) -> bool:
        """Have all volumes, as soon as what they refer to exists; False when the pod is to stop first."""
        node = self.context.node
        while True:
            try:
                self.context.folders = await node.volumes.mount(self.context.pod, self.context.scratch / "volumes")
            except environment.ConfigError as error:
                await node.events.warning(self.context.pod, "FailedMount", str(error))
            except (errors.ClusterError, aiohttp.ClientError) as error:
                log.info("volumes of %s: %s", self.context.full_name, error)
            else:
                return True
            if await self.context.pause(node.settings.config_retry):
                return False

    async def _initialize(self, sidecars: set[asyncio.Task[None]]) -> bool:
        """Run the init containers one after the other; a sidecar (restartPolicy Always) goes on running."""
        for container in self.init:
            task = asyncio.create_task(container.run(), name=f"init {container.name}")
            if container.is_sidecar:
                sidecars.add(task)
                running = asyncio.create_task(container.running.wait())
                await asyncio.wait({task, running}, return_when=asyncio.FIRST_COMPLETED)
                running.cancel()
                continue
            try:
                await task
            finally:
                task.cancel()
            if container.exit_code != 0 or self.context.stopping.is_set():
                return False
        return not self.context.stopping.is_set()

    async def _stop_sidecars(self, sidecars: set[asyncio.Task[None]]) -> None:
        if not sidecars:
            return
        for container in self.init:
            if container.is_sidecar:
                container.policy = "Never"
                container.terminate(min(self._grace, float(self.context.pod["spec"].get("terminationGracePeriodSeconds") or 30)))
        await asyncio.gather(*sidecars)

    def _started(self) -> bool:
        return any("waiting" not in item.state or item.last_state for item in self.containers)

    async def _publish(self) -> None:
        """Write the status; retried while the server doesn't answer, given up when the pod is gone."""
        async with self._writing:
            if self._phase == "Pending" and self._initialized and self._started():
                self._phase = "Running"
            while True:
                try:
                    await self._patch()
                except (errors.NotFound, errors.Conflict, errors.Unprocessable):
                    return
                except (errors.ClusterError, aiohttp.ClientError):
                    await asyncio.sleep(_API_RETRY)
                else:
                    return

    async def _patch(self) -> None:
        pod = self.context.pod
        body = status.build(pod, self.containers, self.init, phase=self._phase, initialized=self._initialized)
        if self._expired and self._phase == "Failed":
            body |= {"reason": "DeadlineExceeded", "message": _DEADLINE_MESSAGE}
        patch = {"metadata": {"uid": self.context.uid}, "status": body}
        answer = await self.context.node.client.patch(PODS, *objects.key_of(pod), patch, subresource="status")
        # The watch may be ahead of this answer in what it says about the deletion.
        pod["status"] = answer["status"]

    async def _delete(self) -> None:
        """Tell the API server that nothing of the pod runs any more: only now the object goes."""
        with contextlib.suppress(errors.ClusterError, aiohttp.ClientError):
            await self.context.node.client.delete(PODS, self.context.pod, grace_seconds=0)

    async def _kill(self) -> None:
        for container in (*self.containers, *self.init):
            await container.kill()

    def _remove_files(self) -> None:
        for folder in (self.context.scratch, self.context.logs):
            shutil.rmtree(folder, ignore_errors=True)


def _init_policy(policy: str) -> str:
    return "Never" if policy == "Never" else "OnFailure"
