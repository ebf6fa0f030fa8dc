"""The log readers of one workload: one for each container that has started, with the last lines of every replica kept."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_mlxp.cluster import logs
from airflow_mlxp.models import Event, LogGap, LogLine, Warned
from airflow_mlxp.workloads import containers, objects, replicas

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.cluster.state import WorkloadState

TAIL_LINES = 300
"""Last lines of a replica that the diagnosis reads: a Python traceback and torchrun's report fit."""
_TAIL_CHARACTERS = 2000
"""Of one line in a tail; the log itself has the whole line."""
_TAILS_AT_ONCE = 8
"""Tails fetched at the same time: a failed workload of 512 replicas must not open 512 connections."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One container of one pod."""

    pod_uid: str
    pod: str
    container: str
    replica: str


class ReplicaLogs:
    """Reads what the containers of a workload write, through tasks of the given group."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        state: WorkloadState,
        *,
        group: asyncio.TaskGroup,
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        self.gaps: list[LogGap] = []
        self._client, self._namespace, self._state, self._group, self._emit = client, namespace, state, group, emit
        self._readers: dict[_Source, asyncio.Task[None]] = {}
        self._cursors: dict[_Source, logs.LogCursor] = {}
        self._tails: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=TAIL_LINES))
        self._restarts_matter = True

    def start_new(self) -> None:
        """Begin to read every container that has started since the last call."""
        for source in self._sources():
            if source not in self._readers:
                name = f"log {source.pod}/{source.container}"
                self._readers[source] = self._group.create_task(self._read(source), name=name)

    def expect_no_restart(self) -> None:
        """The workload is about to be deleted: a container that waits for its restart has written everything."""
        self._restarts_matter = False

    async def settle(self, grace: float) -> None:
        """Wait, at most ``grace`` seconds, for the readers of containers that can't write any more; the others go on."""
        ending = [task for source, task in self._readers.items() if not task.done() and not self._may_go_on(source)]
        if ending:
            await asyncio.wait(ending, timeout=grace)

    async def complete(self, grace: float) -> None:
        """Let the readers come to their ends, at most ``grace`` seconds; what is not read by then is a gap.

        0 is for containers that go on and are followed no longer.
        """
        running = [task for task in self._readers.values() if not task.done()]
        if not running:
            return
        _, late = await asyncio.wait(running, timeout=grace)
        for source, task in self._readers.items():
            if task in late:
                task.cancel()
                await self._gap(
                    source,
                    f"it was not complete {grace:g} s after the end" if grace else "it still runs, but is followed no more",
                )
        if late:
            await asyncio.wait(late)

    async def tails(self, grace: float) -> dict[str, tuple[str, ...]]:
        """The last lines of every replica, oldest first; fetched, ``grace`` seconds each, where no reader has come to the end."""
        unread = [source for source in self._sources() if not self._is_read(source)]
        gate = asyncio.Semaphore(_TAILS_AT_ONCE)
        if unread:
            fetches = [self._group.create_task(self._fetch_tail(source, gate, grace)) for source in unread]
            await asyncio.wait(fetches)
        return {replica: tuple(lines) for replica, lines in self._tails.items() if lines}

    def _is_read(self, source: _Source) -> bool:
        reader = self._readers.get(source)
        return reader is not None and reader.done() and not reader.cancelled()

    async def _fetch_tail(self, source: _Source, gate: asyncio.Semaphore, grace: float) -> None:
        lines: tuple[LogLine, ...] = ()
        with suppress(TimeoutError):  # the diagnosis makes do with what was read
            async with gate, asyncio.timeout(grace):
                for previous in (False, True):  # a container that waits for its restart has said everything before
                    lines = lines or await logs.tail(
                        self._client, self._namespace, source.pod, source.container, lines=TAIL_LINES, previous=previous
                    )
        if lines:
            self._tails[source.replica].clear()
            self._tails[source.replica].extend(line.text[:_TAIL_CHARACTERS] for line in lines)

    async def _read(self, source: _Source) -> None:
        follower = logs.LogFollower(
            self._client, namespace=self._namespace, pod=source.pod, container=source.container, replica=source.replica
        )
        told = 0
        batches = follower.batches(
            lambda: self._may_go_on(source),
            restarts=lambda: self._restarts(source),
            exists=lambda: source.pod_uid in self._state.pods,
        )
        async with aclosing(batches):
            async for batch in batches:
                self._tails[source.replica].extend(line.text[:_TAIL_CHARACTERS] for line in batch.lines)
                await self._emit(batch)
                self._cursors[source] = (
                    follower.cursor
                )  # only now: who is cancelled while the consumer is slow has carried nothing
                told = await self._new_gaps(source, follower.gaps, told)
        await self._new_gaps(source, follower.gaps, told)

    async def _new_gaps(self, source: _Source, gaps: list[LogGap], told: int) -> int:
        for gap in (replace(gap, pod_uid=source.pod_uid) for gap in gaps[told:]):
            self.gaps.append(gap)
            await self._emit(Warned(reason="LogGap", message=_text(gap)))
        return len(gaps)

    async def _gap(self, source: _Source, reason: str) -> None:
        cursor = self._cursors.get(source, logs.LogCursor())
        gap = LogGap(
            replica=source.replica,
            pod=source.pod,
            container=source.container,
            since=cursor.time,
            count=cursor.count,
            reason=reason,
            is_open=True,
        )
        await self._new_gaps(source, [gap], 0)

    def _sources(self) -> Iterator[_Source]:
        for uid, pod in self._state.all_pods().items():
            for container in _started_containers(self._state, pod):
                yield _Source(uid, objects.name_of(pod), container, self._state.workload.replica_of(pod))

    def _may_go_on(self, source: _Source) -> bool:
        """Whether the container may still write."""
        pod = self._state.pods.get(source.pod_uid)
        if pod is None:
            return False
        workload = self._state.workload
        if source.container != workload.training_container_of(pod):
            return objects.at(pod, "status", "phase") == "Pending" and _failing_init(pod, source.container)
        state = containers.state_of(pod, source.container)
        if not self._restarts_matter and state.ended and not state.running:
            return False
        ended_at = self._state.ended_at
        return not replicas.replica_status(workload, pod, job_terminal=self._state.has_ended, completed_at=ended_at).ended

    def _restarts(self, source: _Source) -> int:
        pod = self._state.all_pods().get(source.pod_uid, {})
        states = [containers.state_of(pod, source.container), *containers.init_states(pod)]
        return max((state.restarts for state in states if state.name == source.container), default=0)


def _started_containers(state: WorkloadState, pod: Mapping[str, Any]) -> Iterator[str]:
    """Init containers that have failed, and the training container once it has run."""
    for init in containers.init_states(pod):
        if _failing_init(pod, init.name):
            yield init.name
    training = containers.state_of(pod, state.workload.training_container_of(pod))
    if training.running or training.ended:
        yield training.name


def _failing_init(pod: Mapping[str, Any], name: str) -> bool:
    return any(init.name == name and init.ended and init.exit_code != 0 for init in containers.init_states(pod))


def _text(gap: LogGap) -> str:
    since = f" after {gap.since}" if gap.since else ""
    what = "are not read yet" if gap.is_open else "are missing"
    return f"{gap.replica} ({gap.pod}/{gap.container}): lines{since} {what}: {gap.reason}"
