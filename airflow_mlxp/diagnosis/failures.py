"""Which replica failed first, and with what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_mlxp.diagnosis import tails
from airflow_mlxp.models import Phase
from airflow_mlxp.workloads import containers, objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_mlxp.diagnosis.facts import Facts

_ROLE = re.compile(r"^[a-z]+-\d+$")
_STOP_SIGNALS = {137, 143}
"""128 + SIGKILL, 128 + SIGTERM: what a replica ends with that somebody stops because another one failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One bad end of one pod."""

    replica: str
    pod: Mapping[str, Any]
    source: Literal["pod", "init", "container"]
    """Who ended: the pod as a whole (evicted, refused by the node), an init container, the training container."""
    container: str = ""
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    finished_at: str = ""
    recovered: bool = False
    """Whether it was made good for: the container runs again, or a newer pod has replaced this one."""
    tail: Sequence[str] = ()

    @property
    def who(self) -> str:
        """The replica for a sentence; the pod where the replica is a mere number or suffix."""
        return self.replica if _ROLE.match(self.replica) else f"pod {objects.name_of(self.pod)}"

    @property
    def was_stopped(self) -> bool:
        """Whether it looks like the consequence of somebody's stop: ended by SIGTERM or SIGKILL, not for its memory."""
        return self.source == "container" and self.exit_code in _STOP_SIGNALS and self.reason != "OOMKilled"


def failures(facts: Facts) -> list[Failure]:
    """All bad ends, the one that came first (and most likely caused the others) first."""
    replaced = _replaced(facts)
    found = [failure for pod in facts.pods if (failure := _failure(facts, pod, replaced)) is not None]
    return sorted(found, key=_rank)


def _rank(failure: Failure) -> tuple[bool, bool, bool, str]:
    # Times are whole seconds: among ends of one second what reads like another's death comes last.
    raised = tails.raised_in(failure.tail)
    return failure.recovered, failure.was_stopped, bool(raised and raised.is_victim), failure.finished_at


def _replaced(facts: Facts) -> set[str]:
    """Uids of pods for whose replica there is a newer one that was not created after the end (the operator may do that)."""
    condition = facts.condition
    end = condition.last_transition_time if condition and facts.phase is Phase.FAILED else ""
    newest: dict[str, tuple[str, str]] = {}
    for pod in facts.pods:
        entry = (objects.text(objects.at(pod, "metadata", "creationTimestamp")), objects.uid_of(pod))
        replica = facts.workload.replica_of(pod)
        if (not end or entry[0] < end) and entry >= newest.get(replica, ("", "")):
            newest[replica] = entry
    kept = {uid for _, uid in newest.values()}
    known = newest.keys()
    return {uid for pod in facts.pods if (uid := objects.uid_of(pod)) not in kept and facts.workload.replica_of(pod) in known}


def _failure(facts: Facts, pod: Mapping[str, Any], replaced: set[str]) -> Failure | None:
    replica, name = facts.workload.replica_of(pod), facts.workload.training_container_of(pod)
    state = containers.state_of(pod, name)
    gone = objects.uid_of(pod) in replaced
    if state.ended and not state.running and state.exit_code == 0:
        return None
    reason, message, since = _pod_level(pod)
    if reason:
        return Failure(
            replica=replica,
            pod=pod,
            source="pod",
            reason=reason,
            message=message,
            exit_code=state.exit_code,
            finished_at=since or state.finished_at,
            recovered=gone,
        )
    broken = next((init for init in containers.init_states(pod) if init.ended and init.exit_code != 0), None)
    source, end = ("container", state) if state.ended or broken is None else ("init", broken)
    if not end.ended:
        return None
    return Failure(
        replica=replica,
        pod=pod,
        source="init" if source == "init" else "container",
        container=end.name,
        reason=end.end_reason,
        message=end.end_message,
        exit_code=end.exit_code,
        finished_at=end.finished_at,
        recovered=gone or end.running,
        tail=_tail(facts.log_tails.get(replica, ()) if source == "container" else (), end.end_message),
    )


def _tail(lines: Sequence[str], message: str) -> Sequence[str]:
    # With terminationMessagePolicy FallbackToLogsOnError the message is the log's end, also of a pod that is gone.
    return lines or message.splitlines()


def _pod_level(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    """Reason, message and time of an end that came over the pod as a whole; empty when the containers tell it."""
    status = objects.mapping(pod.get("status"))
    disruption = objects.conditions(pod).get("DisruptionTarget")
    if reason := objects.text(status.get("reason")):
        since = disruption.last_transition_time if disruption else ""
        return reason, objects.text(status.get("message")), since
    if disruption and disruption.status == "True":
        return disruption.reason or disruption.type, disruption.message, disruption.last_transition_time
    return "", "", ""


def of_replicas(found: Iterable[Failure], names: Iterable[str]) -> list[Failure]:
    """The failures of these replicas only, in the same order."""
    wanted = set(names)
    return [failure for failure in found if failure.replica in wanted]
