"""The end of following: read what is left of the logs, explain a failure, stop what still runs, record the outcome."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_mlxp import errors, identity
from airflow_mlxp.cluster import delete, explain, settle
from airflow_mlxp.cluster.endings import GONE, UNFINISHED, Cause, Ending, FollowOptions
from airflow_mlxp.models import Event, Outcome, Phase, Warned
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import PODS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from airflow_mlxp.cluster.observation import Observation
    from airflow_mlxp.cluster.replica_logs import ReplicaLogs
    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.cluster.state import WorkloadState
    from airflow_mlxp.models import Diagnosis, WorkloadRef

_LOG_GRACE = 10.0
"""Seconds for the rest of the logs once it is over: a healthy node needs one, and the end must not hang on a lost node."""
_TAIL_GRACE = 5.0
"""Seconds for one tail that the diagnosis reads."""
_EVENTS_GRACE = 2.0
"""Seconds for the list of warnings of a workload that failed before anybody asked for them."""
_QUIET_SECONDS = 1.0
"""A controller of version 1.9.3 creates a pod again some milliseconds after Failed: look this long for pods that appear late."""
_ROUNDS = 5
"""Times that late pods are stopped; each round ends with a quiet second or another pod."""


class Finisher:
    """Brings one followed workload to its outcome."""

    def __init__(
        self,
        client: Client,
        ref: WorkloadRef,
        state: WorkloadState,
        logs: ReplicaLogs,
        *,
        owner: str | None,
        options: FollowOptions,
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._client, self._ref, self._state, self._logs = client, ref, state, logs
        self._owner, self._options, self._emit = owner, options, emit

    async def finish(self, ending: Ending, observation: Observation) -> Outcome:
        """Read, explain, stop, record: in this order, for what is stopped takes its log along."""
        if ending.cause in UNFINISHED:
            self._logs.expect_no_restart()
        await self._logs.settle(_LOG_GRACE)
        if ending.cause is not Cause.SUCCEEDED:
            await observation.events_known(_EVENTS_GRACE)
            await self._update(observation)
        tails = {} if ending.cause is Cause.SUCCEEDED else await self._logs.tails(_TAIL_GRACE)
        outcome = self._outcome(ending, tails)
        stopped = self._owner is not None and await self._stop(ending, outcome, observation, self._owner)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._keep_watching(observation), name="watch the end")
            await self._logs.complete(_LOG_GRACE if stopped else 0.0)  # what nobody stops has no end to wait for
            watching.cancel()
        return replace(outcome, log_gaps=tuple(self._logs.gaps))

    def _outcome(self, ending: Ending, tails: Mapping[str, tuple[str, ...]]) -> Outcome:
        state = self._state
        succeeded = ending.cause is Cause.SUCCEEDED
        return Outcome(
            succeeded=succeeded,
            phase=Phase.SUCCEEDED if succeeded else Phase.GONE if ending.cause in GONE else Phase.FAILED,
            diagnosis=None if succeeded else explain.explain(state, ending, tails, self._options),
            results=state.results(),
            replicas=state.replicas,
            timings=state.timings(),
        )

    async def _stop(self, ending: Ending, outcome: Outcome, observation: Observation, owner: str) -> bool:
        """No workload that we wait for no longer may hold a GPU; whether anything had to be stopped.

        A failure to stop it is told and doesn't change the outcome.
        """
        stopped = False
        try:
            if ending.cause in UNFINISHED:
                stopped = await self._delete_workload(owner, ending.cause, outcome.diagnosis)
            elif ending.cause not in GONE:
                stopped = await self._stop_leftovers(observation, succeeded=outcome.succeeded)
                await self._record(outcome)
        except errors.MLXPError as error:
            await self._emit(Warned(reason="CleanupFailed", message=str(error)))
        return stopped

    async def _delete_workload(self, owner: str, cause: Cause, why: Diagnosis | None) -> bool:
        state = self._state
        reason = f": {why.sentence}" if why else ""
        await self._emit(Warned(reason="Stopping", message=f"{self._ref.kind} {self._ref.name} is deleted{reason}"))
        outcome = await delete.fenced_delete(
            self._client, state.workload, self._ref, owner=owner, by=f"{owner}/{cause}", grace_seconds=self._options.grace_seconds
        )
        if outcome is delete.DeleteOutcome.TAKEN:
            message = f"{self._ref.kind} {self._ref.name} belongs to another try by now: it is left alone"
            await self._emit(Warned(reason="Taken", message=message))
        return outcome is delete.DeleteOutcome.DELETED

    async def _stop_leftovers(self, observation: Observation, *, succeeded: bool) -> bool:
        stopped = False
        for _ in range(_ROUNDS):
            pods = await self._running_now([pod for pod in self._state.pods.values() if _still_runs(pod)])
            if succeeded and not pods:
                break
            if pods:
                names = ", ".join(objects.name_of(pod) for pod in pods)
                await self._emit(Warned(reason="Stopping", message=f"pods that still run after the end are stopped: {names}"))
                stopped = bool(await delete.stop_pods(self._client, pods, grace_seconds=self._options.grace_seconds)) or stopped
            changed = await observation.changed(_QUIET_SECONDS)
            await self._update(observation)
            if not pods and not changed:
                break
        return stopped

    async def _running_now(self, pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that run indeed: the picture of the pods may lag behind that of the workload, by an outage or by polling."""
        found = []
        for pod in pods:
            now = pod
            with suppress(errors.Forbidden):  # a role may list pods and not get one
                try:
                    now = await self._client.get(PODS.path(self._ref.namespace, objects.name_of(pod)))
                except errors.NotFound:
                    continue
            if objects.uid_of(now) == objects.uid_of(pod) and _still_runs(now):
                found.append(now)
        return found

    async def _record(self, outcome: Outcome) -> None:
        """What a later try of the same chain reads: whether there is a result to take."""
        category = settle.OUTCOME_SUCCESS if outcome.diagnosis is None else outcome.diagnosis.category
        metadata = {"uid": self._ref.uid, "annotations": {identity.OUTCOME_ANNOTATION: category}}
        # Gone meanwhile, or another object has its name: for the server a patch of another uid changes an immutable field.
        with suppress(errors.NotFound, errors.Conflict, errors.Unprocessable):
            await self._client.merge_patch(
                self._state.workload.api.path(self._ref.namespace, self._ref.name), {"metadata": metadata}
            )

    async def _keep_watching(self, observation: Observation) -> None:
        """Log readers look at the state to know whether their container may still write."""
        with suppress(errors.MLXPError):  # a watch that ends now costs at most the grace of the logs
            while True:
                await observation.changed()
                await self._update(observation)

    async def _update(self, observation: Observation) -> None:
        for event in self._state.update(observation):
            await self._emit(event)


def _still_runs(pod: Mapping[str, Any]) -> bool:
    """Whether the pod holds its node and nothing but us will end it."""
    if objects.at(pod, "metadata", "deletionTimestamp") or objects.at(pod, "status", "phase") in {"Succeeded", "Failed"}:
        return False
    statuses = objects.mappings(objects.at(pod, "status", "containerStatuses"))
    policy = objects.text(objects.at(pod, "spec", "restartPolicy"))
    return not statuses or not all(_ended_for_good(status, policy) for status in statuses)


def _ended_for_good(status: Mapping[str, Any], policy: str) -> bool:
    end = objects.at(status, "state", "terminated")
    return isinstance(end, dict) and (policy == "Never" or (policy == "OnFailure" and end.get("exitCode") == 0))
