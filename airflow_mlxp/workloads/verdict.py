"""Whether a workload has really ended, and how: the operator's condition is necessary, not sufficient.

With an elasticPolicy a PyTorchJob is Succeeded when its first worker finishes, with a Master when the Master does; the others may
still write a checkpoint, or fail, and nothing of the platform says so afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from airflow_mlxp.models import Phase, ReplicaPhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.models import ReplicaStatus
    from airflow_mlxp.workloads.base import CompletionRule, Workload

SETTLE_SECONDS = 30.0
"""How long after the condition a replica without a started pod is waited for: the pods' watch may lag behind the workload's."""


class State(StrEnum):
    """Where a workload stands."""

    UNFINISHED = "unfinished"
    """No terminal condition yet."""
    DRAINING = "draining"
    """Succeeded by its condition, while some replicas have not ended."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL_FAILURE = "partial_failure"
    """Succeeded by its condition, but too few replicas have ended with 0, or some did not end in time."""
    GONE = "gone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """Where the workload stands, and the replicas that it is owed to, each in log order."""

    state: State
    left: tuple[str, ...] = ()
    """Started and not ended."""
    failed: tuple[str, ...] = ()
    """Ended with another code than 0, or without one."""
    missing: tuple[str, ...] = ()
    """Asked for, never seen to start."""

    @property
    def is_final(self) -> bool:
        """Whether nothing is left to wait for."""
        return self.state not in {State.UNFINISHED, State.DRAINING}


_BY_PHASE = {Phase.GONE: State.GONE, Phase.FAILED: State.FAILED}


def verdict(
    workload: Workload,
    obj: Mapping[str, Any] | None,
    replicas: Sequence[ReplicaStatus],
    success_policy: Literal["all", "any"] = "all",
    *,
    waited: float = 0.0,
    drain_timeout: float = 600.0,
    settle: float = SETTLE_SECONDS,
) -> Verdict:
    """Judge the object and its replicas (``current_replicas``).

    ``success_policy`` "any" lets the condition suffice. ``waited`` is the time in seconds since the Succeeded condition was first
    seen: started replicas are waited for until ``drain_timeout``, others until ``settle``, or as long when they have a node.
    """
    phase = workload.phase_of(obj)
    if obj is None or phase is not Phase.SUCCEEDED:
        return Verdict(state=_BY_PHASE.get(phase, State.UNFINISHED))
    rule = workload.completion_of(obj)
    if rule.condition_is_sufficient or success_policy == "any":
        return Verdict(state=State.SUCCEEDED)
    found = {replica.replica: replica for replica in replicas}
    names = tuple(dict.fromkeys((*workload.replicas_of(obj), *found)))
    left = tuple(name for name in names if name in found and _is_left(found[name]))
    good = tuple(name for name in names if _is_good(found.get(name), rule))
    failed = tuple(name for name in names if name in found and found[name].ended and name not in good)
    missing = tuple(name for name in names if name not in {*left, *good, *failed})
    starting = missing if waited < settle else tuple(name for name in missing if name in found and found[name].node)
    if left or starting:
        state = State.PARTIAL_FAILURE if waited >= drain_timeout else State.DRAINING
    else:
        state = _settled(rule, good=len(good), bad=len(failed) + len(missing))
    return Verdict(state=state, left=left, failed=failed, missing=missing)


def _settled(rule: CompletionRule, *, good: int, bad: int) -> State:
    enough = good >= rule.min_replicas if rule.min_replicas < rule.replicas else not bad
    return State.SUCCEEDED if enough else State.PARTIAL_FAILURE


def _is_left(replica: ReplicaStatus) -> bool:
    return not replica.ended and (bool(replica.started_at) or replica.phase is not ReplicaPhase.PENDING)


def _is_good(replica: ReplicaStatus | None, rule: CompletionRule) -> bool:
    """Whether the replica ended with 0, or the controller removed it as the manifest's cleanPodPolicy asks."""
    if replica is None:
        return rule.removes_running_pods
    return replica.ended and (replica.exit_code == 0 or (rule.removes_running_pods and replica.stopped))
