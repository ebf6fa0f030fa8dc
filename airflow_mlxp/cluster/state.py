"""What is known of one workload, and which of it is news. No I/O: fed from an observation, it answers with domain events."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Event, Phase, PhaseChanged, ReplicaChanged, ReplicaPhase, ReplicaStatus, Timings, Warned
from airflow_mlxp.workloads import objects, replicas

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_mlxp.cluster.observation import Observation
    from airflow_mlxp.workloads.base import Workload

_POD_NAME = re.compile(r"""\bpods? ["'][^"']*["']|[\w.-]+_[\w.-]+\([0-9a-f-]{36}\)""", re.IGNORECASE)
"""``pods "train-x7k2p"`` of a controller, ``train-x7k2p_p-demo(<uid>)`` of a kubelet."""
_NUMBER = re.compile(r"\d+")
_CAUSES = 500
"""Causes that are remembered as told: far more than one workload has, yet a bound."""
_ORDINARY_WAITS = frozenset({"ContainerCreating", "PodInitializing"})
_HARMLESS = "already exists"
"""The operator's FailedCreateService of a healthy workload says so: its cache was behind."""
_ECHOES = ("Error pod ", "Back-off restarting failed container")
"""How events of the operator and the kubelet begin that repeat a container's state, which its replica's own line tells."""


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time of the API; None when there is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def cause_of(reason: str, message: str) -> tuple[str, str]:
    """What tells one cause from another: node counts, used quota and names of pods change while the cause stays the same."""
    return reason, _NUMBER.sub("#", _POD_NAME.sub("pod", message))


class WorkloadState:
    """The newest picture of one workload. ``update`` replaces it and says what is new."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.obj: dict[str, Any] | None = None
        """The object as last seen; it stays when the workload is gone."""
        self.gone = False
        self.phase: Phase | None = None
        self.replicas: tuple[ReplicaStatus, ...] = ()
        self.pods: Mapping[str, dict[str, Any]] = {}
        """Pods that exist, by uid."""
        self.removed: Mapping[str, dict[str, Any]] = {}
        """Last objects of pods that are gone, by uid."""
        self.events: tuple[Mapping[str, Any], ...] = ()
        self._suspended: set[str] = set()
        self._told_replicas: dict[str, tuple[object, ...]] = {}
        self._told_waits: set[tuple[object, ...]] = set()
        self._told_causes: set[tuple[str, str]] = set()
        self._interrupted = ""

    @property
    def has_ended(self) -> bool:
        """Whether the object, gone or not, bore its terminal condition when it was last seen."""
        return self.obj is not None and self.workload.phase_of(self.obj).is_terminal

    @property
    def is_suspended(self) -> bool:
        """Whether the workload is held back: its spec asks for it, or its condition says so."""
        if self.obj is None:
            return False
        return self.workload.is_suspended(self.obj) or self.workload.phase_of(self.obj) is Phase.SUSPENDED

    @property
    def ended_at(self) -> str:
        """Server time of the terminal condition."""
        condition = self.workload.condition_of(self.obj) if self.obj is not None and self.has_ended else None
        return condition.last_transition_time if condition else ""

    def all_pods(self) -> dict[str, dict[str, Any]]:
        """Every pod that was seen, by uid, those that are gone first."""
        return {**self.removed, **self.pods}

    def restarts(self) -> dict[str, int]:
        """Restarts by replica, over container restarts and recreated pods, without what suspension has deleted."""
        return replicas.restart_counts(self.workload, self.all_pods().values(), suspended=self._suspended)

    def results(self) -> dict[str, str]:
        """Termination messages by replica, of training containers that ended with 0."""
        pods = self.all_pods()
        found = {}
        for status in self.replicas:
            pod = pods.get(status.pod_uid)
            if pod is not None and status.ended and status.exit_code == 0:
                found[status.replica] = replicas.result_of(self.workload, pod)
        return found

    def timings(self) -> Timings:
        """Server times of creation, first start and end."""
        created = objects.text(objects.at(self.obj, "metadata", "creationTimestamp"))
        # A container whose process could not be started bears the epoch as its time.
        starts = [start for start in map(self._first_start, self.replicas) if start >= (created or "1")]
        ends = [status.finished_at for status in self.replicas if status.finished_at]
        return Timings(
            created=created,
            started=min(starts, default="") or objects.text(objects.at(self.obj, "status", "startTime")),
            finished=max([*ends, self.ended_at], default=""),
        )

    def _first_start(self, status: ReplicaStatus) -> str:
        """When the replica's container first started; a restarted one only tells its last start, so the pod's stands for it."""
        if not status.restarts:
            return status.started_at
        return objects.text(objects.at(self.all_pods().get(status.pod_uid), "status", "startTime"))

    def update(self, observation: Observation) -> list[Event]:
        """Take over what is known now; the events are what a reader has not been told yet."""
        self.gone = observation.workload is None
        if observation.workload is not None:
            self.obj = observation.workload
        self.pods, self.removed = dict(observation.pods), dict(observation.removed_pods)
        self.events = tuple(observation.events)
        if self.is_suspended:
            self._suspended.update(self.all_pods())
        self.replicas = replicas.current_replicas(self.workload, self.obj, self.pods.values(), self.removed.values())
        return [
            *self._interruption(observation.interrupted),
            *self._blindness(observation.events_error),
            *self._phase_change(),
            *self._warnings(),
            *self._replica_changes(),
        ]

    def _interruption(self, reason: str) -> Iterator[Event]:
        if reason and not self._interrupted:
            yield Warned(reason="WatchInterrupted", message=reason)
        elif self._interrupted and not reason:
            yield Warned(reason="WatchResumed", message="the workload is being watched again")
        self._interrupted = reason

    def _blindness(self, reason: str) -> Iterator[Event]:
        if reason and self.is_news("EventsUnreadable", ""):
            yield Warned(reason="EventsUnreadable", message=f"what keeps it from running can't be told: {reason}")

    def _phase_change(self) -> Iterator[Event]:
        # An object that vanishes after its end has run out of its ttl; its end is what counts.
        vanished = self.gone and not self.has_ended
        own = Phase.GONE if vanished else self.workload.phase_of(self.obj)
        phase = replicas.effective_phase(own, self.replicas)
        if phase is self.phase:
            return
        self.phase = phase
        condition = self.workload.condition_of(self.obj) if self.obj is not None and not vanished and phase is own else None
        if condition is None:
            yield PhaseChanged(phase=phase)
        else:
            at = parse_time(condition.last_transition_time)
            yield PhaseChanged(phase=phase, reason=condition.reason, message=condition.message, at=at)

    def _warnings(self) -> Iterator[Event]:
        if self.has_ended:
            return
        for event in self.events:
            reason, message = objects.text(event.get("reason")), objects.text(event.get("message"))
            if _HARMLESS not in message and not message.startswith(_ECHOES) and self.is_news(reason, message):
                yield Warned(reason=reason, message=message)

    @property
    def has_warned(self) -> bool:
        """Whether any warning has been told."""
        return bool(self._told_causes)

    def is_news(self, reason: str, message: str) -> bool:
        """Whether this cause has not been told yet; it counts as told from now on."""
        cause = cause_of(reason, message)
        if cause in self._told_causes or len(self._told_causes) >= _CAUSES:
            return False
        self._told_causes.add(cause)
        return True

    def _replica_changes(self) -> Iterator[Event]:
        for status in self.replicas:
            told = _what_is_told(status)
            # Reasons for waiting alternate (ErrImagePull, ImagePullBackOff, ...): each is told once for a pod.
            waits_as_before = status.phase is ReplicaPhase.PENDING and told in self._told_waits
            if self._told_replicas.get(status.replica) == told or waits_as_before:
                continue
            self._told_replicas[status.replica] = told
            if status.phase is ReplicaPhase.PENDING and len(self._told_waits) < _CAUSES:
                self._told_waits.add(told)
            yield ReplicaChanged(replica=status)


def _what_is_told(status: ReplicaStatus) -> tuple[object, ...]:
    if status.ended:  # the pod's own phase follows that of its containers, and says nothing new then
        return status.pod_uid, status.restarts, status.exit_code
    reason, node = status.reason, status.node
    if status.phase is ReplicaPhase.PENDING:  # a pod that starts as it should passes through several of these
        reason, node = "" if reason in _ORDINARY_WAITS else reason, ""
    return status.pod_uid, status.restarts, status.exit_code, status.phase, reason, node
