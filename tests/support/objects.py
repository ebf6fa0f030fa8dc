"""Builders of the objects that an API server would send; every argument has a plain default."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_mlxp import identity

NAMESPACE = "p-demo"
CREATED = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment, in seconds after the workload's creation."""
    return CREATED + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    """The same as the API writes it."""
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def ti_id(number: int) -> str:
    """A UUIDv7; a higher number is newer."""
    return str(uuid.UUID(int=(number << 80) | (7 << 76) | (2 << 62)))


def a_try(number: int = 1, **changes: Any) -> identity.TaskIdentity:
    """Try ``number`` of a task with two retries."""
    known = {
        "dag_id": "retrain",
        "task_id": "train",
        "run_id": "manual",
        "ti_id": ti_id(number),
        "try_number": number,
        "max_tries": 2,
        "retries": 2,
        "clear_number": 0,
        "start_date": CREATED,
    }
    return identity.TaskIdentity(**{**known, **changes})


def conditions(*entries: tuple[str, str] | tuple[str, str, float]) -> list[dict[str, Any]]:
    """``(type, status)`` or ``(type, status, seconds)``."""
    return [
        {
            "type": kind,
            "status": status,
            "reason": f"PyTorchJob{kind}",
            "message": f"it is {kind}",
            "lastTransitionTime": stamp(when[0] if when else 60),
        }
        for kind, status, *when in entries
    ]


def a_pytorchjob(*entries: Any, workers: int = 2, elastic: tuple[int, int] | None = (2, 2), **spec: Any) -> dict[str, Any]:
    """A PyTorchJob with these conditions."""
    policy = {"elasticPolicy": {"minReplicas": elastic[0], "maxReplicas": elastic[1]}} if elastic else {}
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": NAMESPACE, "uid": "job-uid", "creationTimestamp": stamp(0)},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": template}}, **policy, **spec},
        "status": {"conditions": conditions(*entries)},
    }


def a_job(*entries: Any, **spec: Any) -> dict[str, Any]:
    """A Job with these conditions."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "prepare", "namespace": NAMESPACE, "uid": "job-uid", "creationTimestamp": stamp(0)},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 0, "template": template, **spec},
        "status": {"conditions": conditions(*entries)},
    }


RUNNING: dict[str, Any] = {"running": {"startedAt": stamp(5)}}


def ended(code: int, *, message: str = "", seconds: float = 30) -> dict[str, Any]:
    """A terminated container state."""
    reason = "Completed" if code == 0 else "Error"
    times = {"startedAt": stamp(5), "finishedAt": stamp(seconds)}
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, **times}}


def a_worker(
    index: int = 0, state: dict[str, Any] | None = None, *, restarts: int = 0, uid: str = "", **pod: Any
) -> dict[str, Any]:
    """A worker's pod whose container is in this state; None: it has no node yet."""
    phase = {"running": "Running", "waiting": "Pending"}.get(next(iter(state or {"waiting": 0})))
    if phase is None:
        phase = "Succeeded" if (state or {})["terminated"]["exitCode"] == 0 else "Failed"
    statuses = [{"name": "pytorch", "state": state, "restartCount": restarts, "lastState": pod.pop("last", {})}] if state else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-worker-{index}",
            "namespace": NAMESPACE,
            "uid": uid or f"pod-{index}",
            "creationTimestamp": stamp(1),
            "labels": {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)},
            "ownerReferences": [{"uid": "job-uid", "controller": True}],
        },
        "spec": {
            "nodeName": "node-1" if state else "",
            "restartPolicy": pod.pop("policy", "OnFailure"),
            "containers": [{"name": "pytorch"}],
        },
        "status": {"phase": pod.pop("phase", phase), "containerStatuses": statuses},
    }


def a_warning(reason: str, message: str) -> dict[str, Any]:
    """A Warning event."""
    return {"type": "Warning", "reason": reason, "message": message}


@dataclass
class Seen:
    """What an observation shows."""

    workload: dict[str, Any] | None = None
    pods: dict[str, Any] = field(default_factory=dict)
    removed_pods: dict[str, Any] = field(default_factory=dict)
    events: tuple[dict[str, Any], ...] = ()
    interrupted: str = ""
    events_error: str = ""


def seen(workload: dict[str, Any] | None = None, *pods: Any, removed: Any = (), events: Any = (), interrupted: str = "") -> Seen:
    """An observation of a workload, its pods, its removed pods and its warnings."""
    return Seen(workload, _by_uid(pods), _by_uid(removed), events, interrupted)


def _by_uid(pods: Any) -> dict[str, Any]:
    return {pod["metadata"]["uid"]: pod for pod in pods}


def a_manifest(name: str = "prepare", **spec: Any) -> dict[str, Any]:
    """A Job as a user would send it."""
    job = a_job(**spec)
    return {
        "apiVersion": job["apiVersion"],
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": job["spec"],
    }


def a_pod_manifest(owner: dict[str, Any], workload: Any, *, name: str = "", owned: bool = True) -> dict[str, Any]:
    """A pod with the labels of a workload's pods, and its ownerReference unless it is a stray."""
    meta = owner["metadata"]
    key, _, value = workload.pod_selector(meta["name"]).partition("=")
    labels = {key: value, **{k: v for k, v in (meta.get("labels") or {}).items() if k.startswith("airflow-mlxp/")}}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"{meta['name']}-abcde",
            "namespace": NAMESPACE,
            "labels": labels,
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}] if owned else [],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
    }
