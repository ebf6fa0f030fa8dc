"""What a pod says about its replica, and what the replicas together say about the workload's phase and restarts."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Phase, ReplicaPhase, ReplicaStatus
from airflow_mlxp.workloads import containers, objects

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_mlxp.workloads.base import Workload
    from airflow_mlxp.workloads.containers import ContainerState

_POD_PHASES: dict[str, ReplicaPhase] = {phase.value: phase for phase in ReplicaPhase}
_TERMINAL = {ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED}


def replica_status(
    workload: Workload, pod: Mapping[str, Any], *, job_terminal: bool, removed: bool = False, completed_at: str = ""
) -> ReplicaStatus:
    """The replica that this pod is.

    ``job_terminal`` says that the workload has its terminal condition: from then on a container that ends with another code
    than 0 has ended for good, though the kubelet may restart it for ever. ``completed_at`` is the time of that condition
    (RFC 3339): with it a container that crashed earlier still has its next chance, and one that crashed later and runs again
    counts as ended. ``removed`` marks the last object of a deleted pod.
    """
    name = workload.training_container_of(pod)
    state = containers.state_of(pod, name)
    shown = _POD_PHASES.get(objects.text(objects.at(pod, "status", "phase")), _default_phase(pod))
    crashed = job_terminal and state.ended and state.exit_code != 0 and state.finished_at >= completed_at
    final = removed or shown in _TERMINAL or _is_final(pod, name, state)
    stopped = (removed or _is_deleting(pod)) and not _ended_before_deletion(pod, state)
    settled = state.ended and (not state.running or crashed)
    reason, message = _reason(pod, state, removed=removed)
    return ReplicaStatus(
        replica=workload.replica_of(pod),
        pod=objects.name_of(pod),
        pod_uid=objects.uid_of(pod),
        phase=shown,
        reason=reason,
        message=message,
        node=objects.text(objects.at(pod, "spec", "nodeName")),
        restarts=state.restarts,
        exit_code=state.exit_code if settled else None,
        ended=final or crashed,
        stopped=stopped,
        started_at=state.started_at,
        finished_at=state.finished_at if settled else "",
    )


def current_replicas(
    workload: Workload,
    obj: Mapping[str, Any] | None,
    pods: Iterable[Mapping[str, Any]],
    removed: Iterable[Mapping[str, Any]] = (),
) -> tuple[ReplicaStatus, ...]:
    """The replicas as they are, in log order.

    Of several pods of one replica the newest counts, and one that exists before one that is gone.
    """
    condition = workload.condition_of(obj) if obj is not None else None
    terminal = workload.phase_of(obj).is_terminal
    newest: dict[str, tuple[tuple[bool, str], ReplicaStatus]] = {}
    for pod, is_removed in (*((pod, True) for pod in removed), *((pod, False) for pod in pods)):
        status = replica_status(
            workload,
            pod,
            job_terminal=terminal,
            removed=is_removed,
            completed_at=condition.last_transition_time if condition and terminal else "",
        )
        rank = (not is_removed, objects.text(objects.at(pod, "metadata", "creationTimestamp")))
        if status.replica not in newest or rank >= newest[status.replica][0]:
            newest[status.replica] = (rank, status)
    order = {name: index for index, name in enumerate(workload.replicas_of(obj) if obj is not None else ())}
    return tuple(sorted((status for _, status in newest.values()), key=lambda s: (order.get(s.replica, len(order)), s.replica)))


def effective_phase(phase: Phase, replicas: Iterable[ReplicaStatus]) -> Phase:
    """The phase with the pods taken into account: Running once a replica has started that nobody stopped.

    The operator writes no status at all while it is refused one of the pods (quota), though others run already, and a Job that
    counts an ended pod shows none for a moment.
    """
    at_work = any(replica.started_at and not replica.stopped for replica in replicas)
    return Phase.RUNNING if at_work and phase in {Phase.PENDING, Phase.CREATED} else phase


def restart_counts(
    workload: Workload, pods: Iterable[Mapping[str, Any]], *, suspended: Collection[str] = frozenset()
) -> dict[str, int]:
    """Restarts by replica, over all pods that were ever seen of the workload.

    Counted are the restarts of the training container and of plain init containers, a restart that the training container waits
    for included, and each further pod (by uid) for the same replica. ``suspended`` holds the uids of pods that were deleted by
    suspension: the workload starts anew after it.
    """
    by_replica: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for pod in pods:
        if objects.uid_of(pod) not in suspended:
            by_replica[workload.replica_of(pod)][objects.uid_of(pod)] = _restarts(workload, pod)
    return {replica: sum(counts.values()) + len(counts) - 1 for replica, counts in by_replica.items()}


def result_of(workload: Workload, pod: Mapping[str, Any]) -> str:
    """The termination message of a training container that has ended with 0; empty otherwise.

    With ``FallbackToLogsOnError`` the message of any other end is the crash's last log lines, never a result.
    """
    state = containers.state_of(pod, workload.training_container_of(pod))
    return state.message if state.ended and not state.running and state.exit_code == 0 else ""


def _restarts(workload: Workload, pod: Mapping[str, Any]) -> int:
    name = workload.training_container_of(pod)
    training = containers.state_of(pod, name)
    return training.restarts + _will_restart(pod, name, training) + sum(state.restarts for state in containers.init_states(pod))


def _will_restart(pod: Mapping[str, Any], container: str, state: ContainerState) -> bool:
    """Whether the container has ended and only waits for its next start, up to five minutes in CrashLoopBackOff."""
    has_ended = state.ended and not state.running and not _is_final(pod, container, state)
    return has_ended and objects.text(objects.at(pod, "status", "phase")) not in _TERMINAL


def _default_phase(pod: Mapping[str, Any]) -> ReplicaPhase:
    return ReplicaPhase.UNKNOWN if objects.at(pod, "status", "phase") else ReplicaPhase.PENDING


def _is_deleting(pod: Mapping[str, Any]) -> bool:
    return bool(objects.at(pod, "metadata", "deletionTimestamp"))


def _is_final(pod: Mapping[str, Any], container: str, state: ContainerState) -> bool:
    """Whether nothing will restart the ended container in this pod."""
    if not state.ended or state.running:
        return False
    policy = containers.restart_policy(pod, container)
    return _is_deleting(pod) or policy == "Never" or (policy == "OnFailure" and state.exit_code == 0)


def _ended_before_deletion(pod: Mapping[str, Any], state: ContainerState) -> bool:
    """Whether the replica had ended by itself; times are whole seconds, so the same second counts as the deletion's doing."""
    if not state.ended or state.running:
        return objects.text(objects.at(pod, "status", "phase")) in {"Succeeded", "Failed"}
    deadline = objects.text(objects.at(pod, "metadata", "deletionTimestamp"))
    grace = objects.count(objects.at(pod, "metadata", "deletionGracePeriodSeconds"))
    try:
        # The timestamp is when the grace period is over; shortening the grace moves it, so that the difference stays.
        began = datetime.fromisoformat(deadline) - timedelta(seconds=grace)
        return datetime.fromisoformat(state.finished_at) < began
    except (ValueError, TypeError, OverflowError):
        return True


def _reason(pod: Mapping[str, Any], state: ContainerState, *, removed: bool) -> tuple[str, str]:
    """Reason and message, the strongest first; spelt as ``kubectl get pods`` does where the API has no word."""
    if state.ended and not state.running and state.exit_code == 0:
        return state.reason, ""
    status, found = objects.mapping(pod.get("status")), objects.conditions(pod)
    disruption, scheduled = found.get("DisruptionTarget"), found.get("PodScheduled")
    candidates = (
        (objects.text(status.get("reason")), objects.text(status.get("message"))),
        (disruption.reason, disruption.message) if disruption and disruption.status == "True" else ("", ""),
        containers.init_problem(pod) or ("", ""),
        ("", "") if state.running else (state.reason, state.message),
        (("Deleted" if removed else "Terminating") if removed or _is_deleting(pod) else "", ""),
        (scheduled.reason, scheduled.message) if scheduled and scheduled.status == "False" else ("", ""),
    )
    return next((candidate for candidate in candidates if candidate[0]), ("", ""))
