"""The trigger that watches one workload to its end, with its logs, while the task is deferred: once per try."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import structlog
from airflow.triggers.base import BaseTrigger

from airflow_mlxp import compat, workloads
from airflow_mlxp.errors import AccessError, MLXPError, Unauthorized
from airflow_mlxp.models import Finished, WorkloadRef
from airflow_mlxp.triggers import events, report
from airflow_mlxp.triggers.background import in_background
from airflow_mlxp.triggers.clients import forget, shared_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.triggers.base import TriggerEvent

    from airflow_mlxp.models import Event
    from airflow_mlxp.triggers.events import ResultShape, WorkloadEvent

SCHEMA_VERSION = 1
HOLD_SECONDS = 6.5
"""No event sooner than this after the deferral: the deferring worker may report its end up to 5 s late, and a scheduler that
finds the task running again by then fails it (apache/airflow#72716)."""
LATE_SECONDS = 20.0
"""A trigger that starts later than this after the deferral waited for a place, or takes the place of one that was lost."""
KILL_SECONDS = 20.0
"""For deleting the workload of a killed task; Airflow gives ``on_kill`` 30 s."""

log = structlog.get_logger(logger_name=report.LOGGER_NAME)


class MLXPWorkloadTrigger(BaseTrigger):
    """Follow a workload, write its state changes and log lines into the task's log, and fire one event at its end.

    Args:
        conn_id: connection of the API server; credentials stay in it.
        ref: kind, namespace, name and uid of the workload.
        owner: ``ti.id`` of the try that submitted or adopted it.
        options: fields of ``cluster.follow.FollowOptions`` that differ from their defaults.
        results: whether termination messages are one result, one for each index of an indexed Job, or ignored.
        deferred_at: when the task deferred (ISO 8601).
        schema_version: of these arguments; arguments of later versions are ignored.
    """

    _warm: ClassVar[bool] = False

    def __init__(
        self,
        *,
        conn_id: str,
        ref: dict[str, str],
        owner: str,
        options: dict[str, Any] | None = None,
        results: ResultShape = "single",
        deferred_at: str = "",
        schema_version: int = SCHEMA_VERSION,
        **_later: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Airflow's is not annotated
        self.conn_id, self.owner, self.results = conn_id, owner, results
        self.ref = msgspec.convert(ref, WorkloadRef)
        self.options = options or {}
        self.deferred_at = deferred_at
        self.schema_version = schema_version
        self.workload = workloads.get(self.ref.kind)
        self._log_fields: dict[str, Any] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments: names only, no credential."""
        return (
            "airflow_mlxp.triggers.workload.MLXPWorkloadTrigger",
            {
                "conn_id": self.conn_id,
                "ref": msgspec.to_builtins(self.ref),
                "owner": self.owner,
                "options": self.options,
                "results": self.results,
                "deferred_at": self.deferred_at,
                "schema_version": self.schema_version,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the workload to its end, then fire the one event."""
        self._start_warming_up()
        try:
            await self._tell_when_late()
            event = await self._follow()
            await asyncio.sleep(self._hold_seconds())
        except asyncio.CancelledError:
            await self._cancelled()
            raise
        yield events.FinishedEvent(payload=event.to_payload())

    async def _tell_when_late(self) -> None:
        late = self._seconds_since_deferral()
        if self.trigger_id is not None and late > LATE_SECONDS:
            await self._tell(
                f"{self._name} is watched again, or only now, {late:.0f} s after the deferral. Its log is read from the "
                "beginning: lines that an earlier triggerer has written appear twice."
            )

    async def _follow(self) -> WorkloadEvent:
        try:
            async with shared_client(self.conn_id) as client:
                follow = import_module("airflow_mlxp.cluster.follow")
                options = msgspec.convert(self.options, follow.FollowOptions)
                stream = follow.follow(client, self.workload, self.ref, owner=self.owner, options=options)
                async with aclosing(stream):
                    async for event in stream:
                        if isinstance(event, Finished):
                            server = client.access.server
                            return events.from_outcome(event.outcome, ref=self.ref, server=server, results=self.results)
                        await self._write(event)
        except MLXPError as error:
            if isinstance(error, (AccessError, Unauthorized)):
                forget(self.conn_id)
            await self._tell(f"Can't watch {self._name}: {error}", warning=True)
            return events.lost(error, ref=self.ref)
        raise AssertionError("follow() ended without an outcome")

    async def _write(self, event: Event) -> None:
        if record := report.record(event, self.ref):
            await self._tell(record.text, warning=record.warning, **record.fields)

    def _hold_seconds(self) -> float:
        """Seconds until the event may fire; bounded, since the worker's clock set ``deferred_at``."""
        if not self.deferred_at or self.trigger_id is None:  # dag.test() has no scheduler
            return 0.0
        return min(HOLD_SECONDS, max(0.0, HOLD_SECONDS - self._seconds_since_deferral()))

    def _seconds_since_deferral(self) -> float:
        if not self.deferred_at:
            return 0.0
        return (datetime.now(UTC) - datetime.fromisoformat(self.deferred_at)).total_seconds()

    async def _cancelled(self) -> None:
        """Decide what a cancellation means where Airflow doesn't say: in ``dag.test()`` and before 3.3."""
        if self.trigger_id is None:
            # dag.test() has no triggerer that could restart: this is ctrl-C.
            await asyncio.shield(self._delete("dag.test"))
        elif not compat.calls_on_kill():
            await self.on_kill()

    async def on_kill(self) -> None:
        """Delete the workload of a task that a user marked or cleared, or whose DAG run timed out.

        A triggerer that stalled and lost its triggers to another one is called the same way: then the task is still deferred,
        and its workload is left alone.
        """
        killing = in_background(self._kill(), f"kill {self._name}")
        while not killing.done():
            # Airflow cancels a killed trigger anew in each of its rounds, a second apart, and on_kill() with it.
            with suppress(asyncio.CancelledError):
                await asyncio.shield(killing)

    async def cleanup(self) -> None:
        """Airflow closes the task's log after this: what is told later goes to the triggerer's own."""
        self._log_fields = {"trigger_id": None}

    async def _kill(self) -> None:
        try:
            async with asyncio.timeout(KILL_SECONDS):
                if await self._is_still_deferred():
                    await self._tell(f"{self._name} is left alone: its task is still deferred and another triggerer watches it")
                else:
                    await self._delete("on_kill")
        except TimeoutError:
            await self._tell(f"{self._name} could not be deleted within {KILL_SECONDS:g} s; it may still run", warning=True)

    def _start_warming_up(self) -> None:
        """Ask for a task's state once in each process: the first answer takes 5 s or more, which a kill can't wait for."""
        if self.trigger_id is not None and not MLXPWorkloadTrigger._warm:
            MLXPWorkloadTrigger._warm = True
            in_background(self._warm_up(), "warm up the supervisor")

    async def _warm_up(self) -> None:
        with suppress(Exception):  # the answer doesn't matter; a kill asks again and tells
            await self._is_still_deferred()

    async def _is_still_deferred(self) -> bool:
        ti = self.task_instance
        if ti is None:
            return False
        map_index = -1 if ti.map_index is None else ti.map_index
        state = await compat.task_state(dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, map_index=map_index)
        return state == "deferred"

    async def _delete(self, by: str) -> None:
        try:
            async with shared_client(self.conn_id) as client:
                delete = import_module("airflow_mlxp.cluster.delete")
                grace = int(self.options.get("grace_seconds", 30))
                outcome = await delete.fenced_delete(
                    client, self.workload, self.ref, owner=self.owner, by=by, grace_seconds=grace
                )
        except MLXPError as error:
            await self._tell(f"{self._name} could not be deleted and may still run: {error}", warning=True)
        else:
            await self._tell(report.deleted(self.ref, str(outcome)))

    async def _tell(self, text: str, *, warning: bool = False, **fields: str) -> None:
        # Asynchronous: a synchronous call blocks the loop of all triggers when the supervisor reads slowly.
        await (log.awarning if warning else log.ainfo)(text, **fields, **self._log_fields)

    @property
    def _name(self) -> str:
        return f"{self.ref.kind} {self.ref.namespace}/{self.ref.name}"
