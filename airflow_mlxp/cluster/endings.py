"""When a workload is over for us, and why. Pure: the state and the time in, an ending or the next moment to look out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from airflow_mlxp.cluster.state import parse_time
from airflow_mlxp.models import Phase, Warned
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads import verdict as verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mlxp.cluster.state import WorkloadState

_NOTICE_SECONDS = 60.0
"""After which a workload that nothing is heard of is worth a line: a controller needs a second, a busy one some more."""
_EPSILON = 0.05
"""Seconds added to a wait for a moment, so that the moment has passed on waking."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowOptions:
    """Limits of one ``follow()``. The defaults are those of the design; None means no limit."""

    container_restarts: int | None = None
    """Restarts that each replica is allowed, container restarts and recreated pods together."""
    drain_timeout: float = 600.0
    """Seconds after the Succeeded condition in which the other replicas must end: time to write a checkpoint."""
    success_policy: Literal["all", "any"] = "all"
    """``any``: the controller's condition suffices; replicas are still waited for, but their ends don't matter."""
    timeout: float | None = None
    """Seconds since the object's creationTimestamp, a drain included."""
    start_timeout: float | None = None
    """Seconds since creation, or since it was resumed, in which every needed replica must have started."""
    grace_seconds: int = 30
    """Seconds between SIGTERM and SIGKILL for what has to be stopped."""
    logs: bool = True
    """Whether log lines are carried; the diagnosis reads the last ones in any case."""


class Cause(StrEnum):
    """Why the following ends."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL_FAILURE = "partial_failure"
    CONTAINER_RESTARTS = "container_restarts"
    TIMEOUT = "timeout"
    START_TIMEOUT = "start_timeout"
    DELETED = "deleted"
    EXPIRED = "expired"


UNFINISHED = frozenset({Cause.CONTAINER_RESTARTS, Cause.TIMEOUT, Cause.START_TIMEOUT})
"""The workload itself goes on: only its deletion stops it, for pods deleted from it are created again."""

GONE = frozenset({Cause.DELETED, Cause.EXPIRED})
"""There is no workload any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The decision that it is over."""

    cause: Cause
    verdict: verdicts.Verdict | None = None
    """What the replicas were found to be, after a Succeeded condition."""
    drain_limit: float | None = None
    """Seconds that they had for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """The answer to one look: an ending, or in how many seconds to look again at the latest, and what to tell."""

    ending: Ending | None = None
    again_in: float | None = None
    """None: nothing but a change matters."""
    draining: tuple[str, ...] = ()
    """Replicas that are waited for after the Succeeded condition."""
    drain_limit: float = 0.0
    """Seconds after that condition in which they must end."""
    overdue: bool = False
    """Whether it should have started by now, so that the reason it waits for is worth telling."""


class Judge:
    """Decides, look by look, for one workload."""

    def __init__(self, state: WorkloadState, options: FollowOptions) -> None:
        self._state, self._options = state, options

    def look(self, now: datetime) -> Look:
        """Judge the state as it is at ``now``."""
        state = self._state
        if state.gone and not state.has_ended:
            # Never seen means that we came too late, which is what a ttl does; a delete hits what is alive.
            return _over(Cause.EXPIRED if state.obj is None else Cause.DELETED)
        phase = state.workload.phase_of(state.obj)
        if phase is Phase.FAILED:
            return _over(Cause.FAILED)
        if phase is Phase.SUCCEEDED:
            return self._after_success(now)
        return self._at_work(now)

    def _after_success(self, now: datetime) -> Look:
        state = self._state
        since = parse_time(state.ended_at) or now
        limit = self._drain_limit(since)
        found = verdicts.verdict(
            state.workload,
            state.obj,
            state.replicas,
            waited=max(0.0, (now - since).total_seconds()),
            drain_timeout=limit,
        )
        if not found.is_final:
            return _draining(found, since, now, limit)
        if found.state is verdicts.State.PARTIAL_FAILURE and self._options.success_policy == "all":
            return Look(ending=Ending(cause=Cause.PARTIAL_FAILURE, verdict=found, drain_limit=limit))
        return _over(Cause.SUCCEEDED)

    def _drain_limit(self, since: datetime) -> float:
        """``drain_timeout``, or less when the task's own time is over sooner."""
        created, timeout = _created_at(self._state), self._options.timeout
        if created is None or timeout is None:
            return self._options.drain_timeout
        left = (created + timedelta(seconds=timeout) - since).total_seconds()
        return min(self._options.drain_timeout, max(0.0, left))

    def _at_work(self, now: datetime) -> Look:
        state, limit = self._state, self._options.container_restarts
        if limit is not None and any(count > limit for count in state.restarts().values()):
            return _over(Cause.CONTAINER_RESTARTS)
        deadlines = list(self._deadlines())
        for moment, cause in deadlines:
            if now >= moment:
                return _over(cause)
        notice = self._notice_at()
        moments = [moment for moment, _ in deadlines] + ([notice] if notice and notice > now else [])
        return Look(again_in=_until(moments, now), overdue=notice is not None and now >= notice)

    def _notice_at(self) -> datetime | None:
        created = _created_at(self._state)
        if created is None or self._state.is_suspended or has_started(self._state):
            return None
        return created + timedelta(seconds=_NOTICE_SECONDS)

    def _deadlines(self) -> Iterator[tuple[datetime, Cause]]:
        """From server times alone, so that a new process comes to the same answer; clocks are taken to agree (NTP)."""
        state, options, created = self._state, self._options, _created_at(self._state)
        if created is None:
            return
        if options.timeout is not None:
            yield created + timedelta(seconds=options.timeout), Cause.TIMEOUT
        if options.start_timeout is not None and not state.is_suspended and not has_started(state):
            since = max(created, _resumed_at(state) or created)
            yield since + timedelta(seconds=options.start_timeout), Cause.START_TIMEOUT


def _created_at(state: WorkloadState) -> datetime | None:
    return parse_time(objects.text(objects.at(state.obj, "metadata", "creationTimestamp")))


def drain_warning(look: Look) -> Warned:
    """What is told when draining begins, and when those change that are waited for."""
    names, limit = ", ".join(look.draining), look.drain_limit
    return Warned(reason="Draining", message=f"succeeded by its condition; waiting at most {limit:g} s for {names} to end")


def _draining(found: verdicts.Verdict, since: datetime, now: datetime, limit: float) -> Look:
    moments = [since + timedelta(seconds=seconds) for seconds in (verdicts.SETTLE_SECONDS, limit)]
    again_in = _until([moment for moment in moments if moment > now], now)
    return Look(again_in=again_in, draining=(*found.left, *found.missing), drain_limit=limit)


def has_started(state: WorkloadState) -> bool:
    """Whether the training container of as many replicas as are needed has started."""
    started = sum(1 for status in state.replicas if status.started_at or status.ended)
    needed = (
        state.workload.completion_of(state.obj).min_replicas
        if state.obj is not None and state.workload.replicas_of(state.obj)
        else 1
    )
    return started >= needed


def _resumed_at(state: WorkloadState) -> datetime | None:
    suspended = objects.conditions(state.obj).get("Suspended")
    return parse_time(suspended.last_transition_time) if suspended and suspended.status == "False" else None


def _until(moments: list[datetime], now: datetime) -> float | None:
    return max(0.0, (min(moments) - now).total_seconds()) + _EPSILON if moments else None


def _over(cause: Cause) -> Look:
    return Look(ending=Ending(cause=cause))
