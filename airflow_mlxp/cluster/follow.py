"""The one engine: follows a workload to its end and tells it as domain events; trigger, worker and command line consume it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_mlxp.cluster import explain, finish, hub
from airflow_mlxp.cluster.endings import FollowOptions, Judge, drain_warning
from airflow_mlxp.cluster.replica_logs import ReplicaLogs
from airflow_mlxp.cluster.state import WorkloadState
from airflow_mlxp.models import Event, Finished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from airflow_mlxp.cluster.endings import Ending
    from airflow_mlxp.cluster.observation import Observation
    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Workload

__all__ = ["FollowOptions", "follow"]

_QUEUED_EVENTS = 16
"""Events between engine and consumer. A slow consumer so stops the reading of logs, and 16 batches of lines are all it costs."""


async def follow(
    client: Client, workload: Workload, ref: WorkloadRef, *, owner: str | None, options: FollowOptions
) -> AsyncGenerator[Event, None]:
    """Follow one workload; the last event is ``Finished``, and a failed workload is an outcome, not an exception.

    ``owner`` is our ``ti.id`` in the owner annotation: deletes are fenced by it, and the outcome is recorded on the object. None
    follows without changing anything on the cluster, whatever ends. Cancellation leaves the workload alone.

    Raises AccessError or ClusterError when the workload can't be watched with this credential.
    """
    async with aclosing(_events(client, workload, ref, owner, options)) as events:
        async for event in events:
            yield event


async def _events(
    client: Client, workload: Workload, ref: WorkloadRef, owner: str | None, options: FollowOptions
) -> AsyncGenerator[Event, None]:
    """Run the engine in a task of its own: a task group must not be left open across a ``yield``."""
    queue: asyncio.Queue[Event | BaseException] = asyncio.Queue(_QUEUED_EVENTS)
    engine = _Engine(client, workload, ref, owner=owner, options=options, queue=queue)
    task = asyncio.create_task(engine.run(), name=f"follow {ref.kind} {ref.namespace}/{ref.name}")
    try:
        while True:
            event = await queue.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, Finished):
                return
    finally:
        task.cancel()
        await asyncio.wait([task])


class _Engine:
    def __init__(
        self,
        client: Client,
        workload: Workload,
        ref: WorkloadRef,
        *,
        owner: str | None,
        options: FollowOptions,
        queue: asyncio.Queue[Event | BaseException],
    ) -> None:
        self._client, self._workload, self._ref, self._owner, self._options = client, workload, ref, owner, options
        self._queue = queue
        self._state = WorkloadState(workload)

    async def run(self) -> None:
        """Put every event, or the error that ended the following, into the queue."""
        try:
            async with hub.observe(self._client, self._workload, self._ref) as observation, asyncio.TaskGroup() as group:
                logs = ReplicaLogs(self._client, self._ref.namespace, self._state, group=group, emit=self._queue.put)
                ending = await self._until_over(observation, logs)
                finisher = finish.Finisher(
                    self._client, self._ref, self._state, logs, owner=self._owner, options=self._options, emit=self._queue.put
                )
                outcome = await finisher.finish(ending, observation)
        except BaseExceptionGroup as group_error:
            await self._queue.put(group_error.exceptions[0])
        except Exception as error:  # noqa: BLE001 - raised again where the events are consumed
            await self._queue.put(error)
        else:
            await self._queue.put(Finished(outcome=outcome))

    async def _until_over(self, observation: Observation, logs: ReplicaLogs) -> Ending:
        judge = Judge(self._state, self._options)
        draining: tuple[str, ...] = ()
        while True:
            for event in self._state.update(observation):
                await self._queue.put(event)
            if self._options.logs:
                logs.start_new()
            look = judge.look(datetime.now(UTC))
            if look.ending is not None:
                return look.ending
            if look.draining and look.draining != draining:
                draining = look.draining
                await self._queue.put(drain_warning(look))
            if look.overdue and (waiting := explain.why_waiting(self._state, self._options)):
                await self._queue.put(waiting)
            await observation.changed(look.again_in)
