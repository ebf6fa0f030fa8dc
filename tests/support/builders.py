"""Objects as an API server sends them, with only what a test cares about."""

from __future__ import annotations

from typing import Any


def a_condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def a_job(*conditions: dict[str, str], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "prepare", "uid": "job-uid"},
        "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}, **spec},
        "status": {"conditions": list(conditions), **(status or {})},
    }


def a_pytorchjob(*conditions: dict[str, str], workers: int | None = 2, master: bool = False, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch"}]}}
    specs: dict[str, Any] = {"Worker": {"replicas": workers, "template": template}}
    if workers is None:
        del specs["Worker"]["replicas"]
    if master:
        specs["Master"] = {"replicas": 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "uid": "train-uid"},
        "spec": {"pytorchReplicaSpecs": specs, **spec},
        "status": {"conditions": list(conditions)},
    }


def running(started: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"state": {"running": {"startedAt": started}}}


def ended(code: int, *, at: str = "2026-01-01T00:01:00Z", **more: Any) -> dict[str, Any]:
    default = "Completed" if code == 0 else "Error"
    return {
        "state": {
            "terminated": {"exitCode": code, "reason": default, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": at, **more}
        }
    }


def waiting(reason: str, message: str = "", *, last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    status: dict[str, Any] = {"state": {"waiting": {"reason": reason, "message": message}}, "restartCount": restarts}
    if last:
        status["lastState"] = last["state"]
    return status


def a_pod(
    replica: str,
    container: dict[str, Any] | None = None,
    *,
    phase: str = "Running",
    policy: str = "Never",
    uid: str = "",
    meta: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    sidecars: dict[str, dict[str, Any]] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A pod of ``a_pytorchjob``; ``container`` is the status of its training container."""
    kind, _, index = replica.rpartition("-")
    statuses = [{"name": "pytorch", "restartCount": 0, **container}] if container else None
    for name, state in (sidecars or {}).items():
        statuses = [*(statuses or []), {"name": name, "restartCount": 0, **state}]
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"train-{replica}",
            "uid": uid or f"{replica}-uid",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": index},
            **(meta or {}),
        },
        "spec": {
            "nodeName": "gpu-1",
            "restartPolicy": policy,
            "containers": [{"name": "pytorch", "resources": {"limits": {"memory": "512Gi"}}}],
            **(spec or {}),
        },
        "status": {"phase": phase, "containerStatuses": statuses, **status},
    }


def an_event(reason: str, message: str, *, uid: str = "train-uid", at: str = "2026-01-01T00:00:30Z") -> dict[str, Any]:
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": {"uid": uid}, "lastTimestamp": at}
