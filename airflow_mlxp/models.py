"""What the layers tell each other: phases, replicas, domain events of ``follow()``, outcome and diagnosis. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class Phase(StrEnum):
    """What a workload is doing, derived from the type *and* status of its conditions (guide section "status")."""

    PENDING = "Pending"
    """Exists; no controller has written a condition yet."""
    CREATED = "Created"
    """A controller has seen it; nothing runs yet."""
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    GONE = "Gone"
    """The object, or the object with our uid, exists no more."""

    @property
    def is_terminal(self) -> bool:
        """Whether the workload can't leave this phase."""
        return self in {Phase.SUCCEEDED, Phase.FAILED, Phase.GONE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One entry of ``status.conditions``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadRef:
    """One workload of one cluster, for certain: names can be taken again, uids can't."""

    kind: str
    namespace: str
    name: str
    uid: str


class ReplicaPhase(StrEnum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaStatus:
    """One replica (a pod) as last seen."""

    replica: str
    """``worker-1``, ``master-0``; for a Job the completion index, or the pod's own suffix."""
    pod: str
    pod_uid: str
    phase: ReplicaPhase
    reason: str = ""
    """Why it waits or ended: the pod's, or its training container's, reason."""
    message: str = ""
    node: str = ""
    restarts: int = 0
    """Restarts of the training container in this pod."""
    exit_code: int | None = None
    """Exit code of the training container's current instance, once terminated."""
    ended: bool = False
    """Whether the training container has ended for good (nothing will restart it in this pod)."""
    stopped: bool = False
    """Whether the pod is deleted or being deleted, and that came before the training container's own end."""
    started_at: str = ""
    finished_at: str = ""


class FailureClass(StrEnum):
    """Who has to act on a failure; decides whether another try makes sense."""

    PERMANENT = "permanent"
    INFRASTRUCTURE = "infrastructure"
    WORKLOAD = "workload"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Why a workload failed. ``category`` is a stable word for programs, the rest is for people."""

    category: str
    """``exit_code``, ``oom_killed``, ``partial_failure``, ``container_restarts``, ``timeout``, ``deleted``, ``expired``, ..."""
    failure_class: FailureClass
    sentence: str
    replica: str = ""
    """The first replica that failed."""
    exit_code: int | None = None
    evidence: tuple[str, ...] = ()
    """Messages and last log lines that the sentence rests on, oldest first."""
    advice: str = ""

    def as_text(self) -> str:
        """Sentence, evidence and advice, one below the other."""
        parts = [self.sentence, *(f"  {line}" for line in self.evidence)]
        if self.advice:
            parts.append(self.advice)
        return "\n".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    """One line of a container's log, without its line break."""

    time: str
    """RFC 3339 with nanoseconds as the kubelet wrote it; empty when the line had none."""
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogGap:
    """Lines of one replica that could not be carried; told, never silent."""

    replica: str
    pod: str
    container: str
    since: str
    """Time of the last line that was carried; empty when none was."""
    reason: str
    pod_uid: str = ""
    count: int = 0
    """Lines carried that have exactly the time ``since``."""
    is_open: bool = False
    """Whether the lines may still be read from the pod: they were late, not lost."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Server times of the workload, RFC 3339; empty when not known."""

    created: str = ""
    started: str = ""
    finished: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a workload ended."""

    succeeded: bool
    phase: Phase
    diagnosis: Diagnosis | None = None
    """Set exactly when it did not succeed."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Termination messages of training containers that ended with exit code 0, by replica."""
    replicas: tuple[ReplicaStatus, ...] = ()
    timings: Timings = field(default_factory=Timings)
    log_gaps: tuple[LogGap, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseChanged:
    """The workload's phase changed."""

    phase: Phase
    reason: str = ""
    message: str = ""
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaChanged:
    """A replica's state changed in a way worth a line (phase, restarts, node, waiting reason, end)."""

    replica: ReplicaStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Warned:
    """Something worth telling while waiting: a Warning event, a limit that starts to run, a log gap. Told once per change."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLines:
    """Lines of one container that arrived together, in order."""

    replica: str
    pod: str
    container: str
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The last event of every ``follow()``."""

    outcome: Outcome


Event = PhaseChanged | ReplicaChanged | Warned | LogLines | Finished
