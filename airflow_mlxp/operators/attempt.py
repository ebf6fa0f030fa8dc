"""One try of one task in a worker: submit its workload, follow it where the worker waits, delete it when the task is killed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_mlxp.errors import MLXPError
from airflow_mlxp.models import Finished
from airflow_mlxp.operators.runner import Runner, Stopped
from airflow_mlxp.triggers import events, report

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from airflow_mlxp.cluster.access import Access
    from airflow_mlxp.cluster.follow import FollowOptions
    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.cluster.submit import Submission
    from airflow_mlxp.identity import TaskIdentity
    from airflow_mlxp.models import LogGap, WorkloadRef
    from airflow_mlxp.triggers.events import ResultShape, WorkloadEvent
    from airflow_mlxp.workloads.base import Workload

T = TypeVar("T")

COMPLETION_SECONDS = 300.0
"""For log lines that could not be carried while the task was deferred; a worker writes about 6,000 lines a second."""
KILL_SECONDS = 4.0
"""Airflow kills a worker's process 5 s after SIGTERM."""


@dataclass(kw_only=True)
class Attempt:
    """What a worker does on the cluster for one try. Synchronous; each call runs its own event loop in a thread."""

    access: Access
    workload: Workload
    owner: str
    """``ti.id`` of the try."""
    options: FollowOptions
    results: ResultShape = "single"
    write: Callable[[report.LogRecord], None]
    """Writes one record into the task's log."""
    ref: WorkloadRef | None = None
    """The workload, once there is one."""
    _runner: Runner[Any] | None = field(default=None, init=False)
    _killed: bool = field(default=False, init=False)

    def submit(self, manifest: dict[str, Any], identity: TaskIdentity, known_nonces: frozenset[str]) -> Submission:
        """Create or adopt the workload; see ``cluster.submit``."""
        from airflow_mlxp.cluster.submit import submit

        async def main(client: Client) -> Submission:
            return await submit(
                client,
                workload=self.workload,
                manifest=manifest,
                identity=identity,
                known_nonces=known_nonces,
                grace_seconds=self.options.grace_seconds,
                report=lambda line: self.write(report.LogRecord(line)),
            )

        submission = self._run(main)
        self.ref = submission.ref
        return submission

    def follow(self, ref: WorkloadRef) -> WorkloadEvent:
        """Follow the workload to its end in this worker. A time-out or a kill deletes it."""
        from airflow_mlxp.cluster.follow import follow

        async def main(client: Client) -> WorkloadEvent:
            try:
                async with aclosing(follow(client, self.workload, ref, owner=self.owner, options=self.options)) as stream:
                    async for event in stream:
                        if isinstance(event, Finished):
                            return events.from_outcome(event.outcome, ref=ref, server=client.access.server, results=self.results)
                        if record := report.record(event, ref):
                            self.write(record)
            except asyncio.CancelledError:
                await self._delete(client, ref, "on_kill")
                raise
            except MLXPError as error:
                return events.lost(error, ref=ref)
            raise AssertionError("follow() ended without an outcome")

        return self._run(main)

    def complete_logs(self, namespace: str, gaps: Sequence[LogGap]) -> list[LogGap]:
        """Write the lines behind open gaps, as far as pods and time allow; what is missing even then."""
        from airflow_mlxp.cluster.completion import complete

        async def main(client: Client) -> list[LogGap]:
            missing: list[LogGap] = []
            loop = asyncio.get_running_loop()
            end = loop.time() + COMPLETION_SECONDS
            for gap in gaps:
                left = max(1.0, end - loop.time())
                missing += await complete(
                    client, namespace, gap, seconds=left, write=lambda lines: self.write(report.lines(lines))
                )
            return missing

        return self._run(main)

    def delete(self, ref: WorkloadRef, *, by: str) -> None:
        """Delete the workload, unless another try has taken it over."""
        Runner(lambda: self._with_client(lambda client: self._delete(client, ref, by))).run()

    def kill(self) -> None:
        """End what runs and delete the workload within the seconds that a signal handler has; ``submit``, ``follow`` raise."""
        self._killed = True
        if self._runner:
            # What is cancelled cleans up itself: submit() withdraws its create, follow() is followed by a delete.
            self._runner.stop(timeout=KILL_SECONDS)
        elif self.ref:
            ref = self.ref
            runner = Runner(lambda: self._with_client(lambda client: self._delete(client, ref, "on_kill")))
            runner.start()
            runner.wait(KILL_SECONDS)

    def _run(self, main: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        if self._killed:
            raise Stopped
        runner: Runner[T] = Runner(lambda: self._with_client(main))
        self._runner = runner
        try:
            return runner.run()
        finally:
            self._runner = None

    async def _with_client(self, main: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        from airflow_mlxp.cluster.rest import Client

        async with Client(self.access) as client:
            return await main(client)

    async def _delete(self, client: Client, ref: WorkloadRef, by: str) -> None:
        from airflow_mlxp.cluster.delete import fenced_delete

        outcome = await fenced_delete(
            client, self.workload, ref, owner=self.owner, by=by, grace_seconds=self.options.grace_seconds
        )
        self.write(report.LogRecord(report.deleted(ref, str(outcome))))
