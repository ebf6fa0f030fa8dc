"""One container of a pod through all its restarts, with the states and messages of the kubelet."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local import images, objects
from airflow_mlxp.local.agent import environment, launch, quantity
from airflow_mlxp.local.agent.logs import LogFile
from airflow_mlxp.local.agent.process import ContainerProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from airflow_mlxp.local.agent.context import PodContext
    from airflow_mlxp.local.client import Object

log = logging.getLogger(__name__)

_NEVER_STARTED = "1970-01-01T00:00:00Z"
_MESSAGE_LIMIT, _FALLBACK_BYTES, _FALLBACK_LINES = 4096, 2048, 80
_STEADY = 600.0
"""Seconds of running after which the restart back-off starts anew, as the kubelet's."""


class Container:
    """State and life of one container. ``publish`` writes the pod's status."""

    def __init__(self, context: PodContext, spec: Object, publish: Callable[[], Awaitable[None]], *, policy: str) -> None:
        self.spec, self.name, self.policy = spec, str(spec["name"]), policy
        self.is_sidecar = spec.get("restartPolicy") == "Always"
        self.state: Object = {"waiting": {"reason": "ContainerCreating"}}
        self.last_state: Object = {}
        self.restart_count = 0
        self.image_id = ""
        self.logs: dict[str, LogFile] = {}
        """Log by container id: the present instance and the one before it."""
        self.running = asyncio.Event()
        self._context, self._publish = context, publish
        self._id = ""
        self._process: ContainerProcess | None = None
        self._killed_for_memory = False
        self._deadline: asyncio.TimerHandle | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()

    @property
    def exit_code(self) -> int | None:
        """The exit code when the container has ended."""
        terminated = self.state.get("terminated")
        return None if terminated is None else int(terminated["exitCode"])

    def status(self) -> Object:
        """The ``ContainerStatus``."""
        running = "running" in self.state
        return {
            "name": self.name,
            "state": self.state,
            "lastState": self.last_state,
            "ready": running,
            "restartCount": self.restart_count,
            "image": self.spec.get("image", ""),
            "imageID": self.image_id,
            "started": running,
        } | ({"containerID": self._id} if self._id else {})

    async def run(self) -> None:
        """Run until the container has ended for good or the pod is to stop."""
        crashes = 0
        while not self._context.stopping.is_set():
            command = await self._prepare()
            if command is None:
                return
            seconds = await self._run_once(command)
            if not self._is_restarted():
                return
            crashes = 1 if seconds > _STEADY else crashes + 1
            if await self._back_off(crashes):
                return
            self.restart_count += 1

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM now, SIGKILL after the grace; a later call with less grace shortens it."""
        if self._process is None:
            return
        if self._deadline is None:
            self._process.terminate()
            self._start_later(self._normal("Killing", f"Stopping container {self.name}"), "event")
        else:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(grace_seconds, lambda: self._start_later(self.kill(), "kill"))

    async def kill(self) -> None:
        """Kill all processes at once."""
        if self._process is not None:
            await self._process.kill()

    def _start_later(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{what} {self.name}")
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    def _is_restarted(self) -> bool:
        if self._context.stopping.is_set():
            return False
        return self.policy == "Always" or (self.policy == "OnFailure" and self.exit_code != 0)

    async def _back_off(self, crashes: int) -> bool:
        """Wait before a restart (the first is immediate); whether the pod is to stop."""
        settings = self._context.node.settings
        self.last_state = self.state
        delay = 0.0 if crashes == 1 else min(settings.restart_backoff * 2.0 ** (crashes - 2), settings.restart_backoff_max)
        if not delay:
            return self._context.stopping.is_set()
        pod = self._context.full_name
        message = f"back-off {delay:g}s restarting failed container={self.name} pod={pod}"
        await self._wait_as("CrashLoopBackOff", message)
        await self._warn("BackOff", f"Back-off restarting failed container {self.name} in pod {pod}")
        if await self._context.pause(delay):
            self.state = self.last_state
            return True
        return False

    async def _prepare(self) -> launch.Launch | None:
        """Pull the image and resolve what the container refers to, as often as needed; None when the pod is to stop."""
        if not await self._pull():
            return None
        while True:
            try:
                return await launch.prepare(self._context, self.spec)
            except environment.ConfigError as error:
                await self._wait_as("CreateContainerConfigError", str(error))
                await self._warn("Failed", f"Error: {error}")
            except (errors.ClusterError, aiohttp.ClientError) as error:
                log.info("container %s of %s: %s", self.name, self._context.full_name, error)
            if await self._context.pause(self._context.node.settings.config_retry):
                return None

    async def _pull(self) -> bool:
        """Whether the image is there; only those under ``.invalid`` never are."""
        reference = self.spec.get("image", "")
        error, settings = images.pull_error(reference), self._context.node.settings
        delay = settings.image_pull_backoff
        while error is not None:
            await self._normal("Pulling", f'Pulling image "{reference}"')
            await self._warn("Failed", f'Failed to pull image "{reference}": {error}')
            await self._wait_as("ErrImagePull", error)
            if await self._context.pause(delay / 2):
                return False
            await self._wait_as("ImagePullBackOff", f'Back-off pulling image "{reference}": ErrImagePull: {error}')
            await self._normal("BackOff", f'Back-off pulling image "{reference}"')
            if await self._context.pause(delay / 2):
                return False
            delay = min(delay * 2, settings.restart_backoff_max)
        self.image_id = f"local@sha256:{hashlib.sha256(reference.encode()).hexdigest()}"
        await self._normal("Pulled", f'Container image "{reference}" already present on machine')
        return True

    async def _run_once(self, command: launch.Launch) -> float:
        """One instance from start to end; the seconds it ran."""
        mark = uuid.uuid4().hex
        self._id = f"local://{mark}"
        self._killed_for_memory = False
        output = LogFile(self._context.logs / self.name / f"{self.restart_count}.log")
        self._keep_log(output)
        loop = asyncio.get_running_loop()
        begun, started_at = loop.time(), objects.now()
        records = self._context.node.folder / "processes"
        try:
            process = await ContainerProcess.start(command.command(), mark=mark, log=output, records=records)
        except (launch.StartError, OSError) as error:
            output.close()
            await self._failed_to_start(str(error))
            return 0.0
        self._process = process
        try:
            code = await self._watch(process, started_at)
        finally:
            self._process = None
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            await process.aclose()
        self._ended(command, output, code, started_at)
        await self._publish()
        return loop.time() - begun

    async def _watch(self, process: ContainerProcess, started_at: str) -> int:
        self.state = {"running": {"startedAt": started_at}}
        self.running.set()
        memory = asyncio.create_task(self._guard_memory(process), name=f"memory {self.name}")
        try:
            await self._publish()
            await self._normal("Created", f"Created container: {self.name}")
            await self._normal("Started", f"Started container {self.name}")
            if self._context.stopping.is_set():
                self.terminate(float(self._context.pod["metadata"].get("deletionGracePeriodSeconds") or 0))
            return await process.wait(self._context.node.settings.drain_timeout)
        finally:
            memory.cancel()
            await asyncio.wait([memory])
            self.running.clear()

    async def _guard_memory(self, process: ContainerProcess) -> None:
        """Kill the container when its processes together hold more than the memory limit."""
        limit = ((self.spec.get("resources") or {}).get("limits") or {}).get("memory")
        if limit is None:
            return
        allowed = quantity.parse(limit)
        interval = self._context.node.settings.memory_interval
        while await process.memory() <= allowed:  # noqa: ASYNC110 - memory sends no event
            await asyncio.sleep(interval)
        self._killed_for_memory = True
        await process.kill()

    def _ended(self, command: launch.Launch, output: LogFile, code: int, started_at: str) -> None:
        reason = "OOMKilled" if self._killed_for_memory else "Completed" if code == 0 else "Error"
        terminated: dict[str, Any] = {"exitCode": code, "reason": reason}
        message = command.termination_message(_MESSAGE_LIMIT)
        if not message and code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = output.tail(limit_bytes=_FALLBACK_BYTES, limit_lines=_FALLBACK_LINES)
        if message:
            terminated["message"] = message
        terminated |= {"startedAt": started_at, "finishedAt": objects.now(), "containerID": self._id}
        self.state = {"terminated": terminated}

    async def _failed_to_start(self, message: str) -> None:
        """The runtime could not start the program: exit code 128, reason StartError."""
        terminated = {"exitCode": 128, "reason": "StartError", "message": message, "startedAt": _NEVER_STARTED}
        self.state = {"terminated": {**terminated, "finishedAt": objects.now(), "containerID": self._id}}
        await self._publish()
        await self._warn("Failed", f"Error: {message}")

    def _keep_log(self, output: LogFile) -> None:
        """Keep this log and the one before it, as the kubelet does."""
        self.logs[self._id] = output
        while len(self.logs) > 2:
            self.logs.pop(next(iter(self.logs))).path.unlink(missing_ok=True)

    async def _wait_as(self, reason: str, message: str) -> None:
        waiting = {"waiting": {"reason": reason, "message": message}}
        if self.state != waiting:
            self.state = waiting
            await self._publish()

    async def _normal(self, reason: str, message: str) -> None:
        await self._context.node.events.normal(self._context.pod, reason, message)

    async def _warn(self, reason: str, message: str) -> None:
        await self._context.node.events.warning(self._context.pod, reason, message)
