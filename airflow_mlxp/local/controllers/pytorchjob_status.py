"""Conditions and replica counts of a PyTorchJob, by the rules of the training operator (``pkg/util/status.go``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.local import objects
from airflow_mlxp.local.controllers import pytorchjob_pods

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mlxp.local.client import Object

_REPLACE_EACH_OTHER = {"Running", "Restarting"}
_ENDS = {"Succeeded", "Failed"}


def is_true(status: Object, kind: str) -> bool:
    """Whether the condition is there and True."""
    return any(item["type"] == kind and item["status"] == "True" for item in status.get("conditions") or [])


def is_finished(status: Object) -> bool:
    """Whether Succeeded or Failed is True."""
    return is_true(status, "Succeeded") or is_true(status, "Failed")


def set_condition(status: Object, kind: str, message: str, *, value: str = "True", reason: str = "", moment: str = "") -> None:
    """Append the condition, taking out what it replaces: the last one in the list is the newest.

    A failed job's conditions never change again. An end turns Running to False and leaves its reason and message.
    """
    if is_true(status, "Failed"):
        return
    reason, moment = reason or f"PyTorchJob{kind}", moment or objects.now()
    conditions = status.get("conditions") or []
    known = next((item for item in conditions if item["type"] == kind), None)
    if known is not None and (known["status"], known["reason"]) == (value, reason):
        return
    same = known is not None and known["status"] == value
    fresh = {
        "lastTransitionTime": known["lastTransitionTime"] if known is not None and same else moment,
        "lastUpdateTime": moment,
        "message": message,
        "reason": reason,
        "status": value,
        "type": kind,
    }
    status["conditions"] = [*_kept(conditions, kind), fresh]


def _kept(conditions: Sequence[Object], kind: str) -> list[Object]:
    kept = []
    for item in conditions:
        if item["type"] == kind or {item["type"], kind} == _REPLACE_EACH_OTHER:
            continue
        kept.append({**item, "status": "False"} if kind in _ENDS and item["type"] == "Running" else item)
    return kept


def count(pods: Sequence[Object]) -> Object:
    """``active``, ``succeeded`` and ``failed`` of one replica type; a zero is left out."""
    names = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
    counts: Object = {}
    for pod in pods:
        name = names.get(objects.phase(pod))
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return counts


def selector(job: Object, replica_type: str) -> str:
    """``replicaStatuses.<type>.selector``: keys in alphabetical order."""
    labels = {**pytorchjob_pods.labels(job), pytorchjob_pods.REPLICA_TYPE: replica_type.lower()}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def judge(job: Object, status: Object, replicas: dict[str, Object]) -> list[tuple[str, str, str]]:
    """Set the conditions that the counts ask for; the events to record as (type, reason, message).

    With a Master its end is the job's. Without one all workers must succeed, or any worker when there is an elasticPolicy.
    """
    events: list[tuple[str, str, str]] = []
    namespace, name = objects.key_of(job)
    for kind, spec in replicas.items():
        counts = status["replicaStatuses"][kind]
        active, succeeded, failed = (int(counts.get(field) or 0) for field in ("active", "succeeded", "failed"))
        total = int(spec["replicas"])
        if "Master" in replicas:
            if kind == "Master" and active:
                set_condition(status, "Running", f"PyTorchJob {name} is running.")
            if kind == "Master" and succeeded == total:
                events.append(_succeed(status, f"PyTorchJob {name} is successfully completed."))
                return events
        elif succeeded == total or (job["spec"].get("elasticPolicy") is not None and succeeded):
            events.append(_succeed(status, f"PyTorchJob {namespace}/{name} successfully completed."))
        elif active:
            set_condition(status, "Running", f"PyTorchJob {namespace}/{name} is running.")
        if failed and total > succeeded + active:
            events.append(_failed_replicas(status, name, kind, failed, never=spec["restartPolicy"] == "Never"))
    return events


def fail(status: Object, message: str) -> tuple[str, str, str]:
    """Set Failed and the completion time; the event to record."""
    status.setdefault("completionTime", objects.now())
    set_condition(status, "Failed", message)
    return "Normal", "PyTorchJobFailed", message


def _succeed(status: Object, message: str) -> tuple[str, str, str]:
    status.setdefault("completionTime", objects.now())
    set_condition(status, "Succeeded", message)
    return "Normal", "PyTorchJobSucceeded", message


def _failed_replicas(status: Object, name: str, kind: str, failed: int, *, never: bool) -> tuple[str, str, str]:
    if never:
        return fail(status, f"PyTorchJob {name} is failed because {failed} {kind} replica(s) failed.")
    message = f"PyTorchJob {name} is restarting because {failed} {kind} replica(s) failed."
    set_condition(status, "Restarting", message)
    return "Warning", "PyTorchJobRestarting", message
