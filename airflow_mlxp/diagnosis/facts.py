"""What a diagnosis rests on: everything that was seen of one workload, without I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Phase
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.verdict import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.models import Condition, ReplicaStatus
    from airflow_mlxp.workloads.base import Workload
    from airflow_mlxp.workloads.verdict import Verdict


class StoppedBy(StrEnum):
    """Which of our own limits ended the wait; the cluster had not ended the workload by then."""

    NOTHING = ""
    TIMEOUT = "timeout"
    START_TIMEOUT = "start_timeout"
    CONTAINER_RESTARTS = "container_restarts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of the wait, in seconds but for ``container_restarts`` (per replica); None: no limit."""

    timeout: float | None = None
    start_timeout: float | None = None
    drain_timeout: float | None = None
    container_restarts: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One workload that did not succeed, as last seen."""

    workload: Workload
    phase: Phase
    object: Mapping[str, Any] | None = None
    """The object as last seen; of a vanished one the state before that."""
    replicas: Sequence[ReplicaStatus] = ()
    pods: Sequence[Mapping[str, Any]] = ()
    """Last object of every pod that was seen, removed ones too."""
    events: Sequence[Mapping[str, Any]] = ()
    """Warning events of the workload and its pods."""
    log_tails: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Last log lines of the training containers, by replica, without time stamps."""
    verdict: Verdict | None = None
    stopped_by: StoppedBy = StoppedBy.NOTHING
    limits: Limits = field(default_factory=Limits)
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Restarts by replica (``restart_counts``)."""

    @property
    def what(self) -> str:
        """Kind and name, for a sentence."""
        return f"{self.workload.kind} {objects.name_of(self.object or {})}".rstrip()

    @property
    def condition(self) -> Condition | None:
        """The condition that decided the phase."""
        return self.workload.condition_of(self.object) if self.object is not None else None

    @property
    def succeeded(self) -> bool:
        """Whether there is nothing to explain."""
        judged = self.verdict.state if self.verdict else State.SUCCEEDED
        return self.phase is Phase.SUCCEEDED and not self.stopped_by and judged is State.SUCCEEDED
