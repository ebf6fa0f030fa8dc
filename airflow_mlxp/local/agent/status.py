"""The status of a pod from the states of its containers, as the kubelet computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.local import objects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mlxp.local.agent.container import Container
    from airflow_mlxp.local.client import Object


def build(pod: Object, containers: Sequence[Container], init: Sequence[Container], *, phase: str, initialized: bool) -> Object:
    """The whole ``PodStatus``; transition times of conditions that did not change are kept."""
    old = pod.get("status") or {}
    unready = [item.name for item in containers if "running" not in item.state]
    conditions = [
        _condition("PodReadyToStartContainers", ready=phase not in {"Succeeded", "Failed"}),
        _initialized(init, phase, initialized=initialized),
        *(_readiness(kind, phase, unready) for kind in ("Ready", "ContainersReady")),
        {"type": "PodScheduled", "status": "True"},
    ]
    known = {item["type"]: item for item in old.get("conditions") or []}
    status: Object = {
        "phase": phase,
        "conditions": [_dated(item, known.get(item["type"])) for item in conditions],
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": old.get("startTime") or objects.now(),
        "containerStatuses": [item.status() for item in containers],
    }
    if init:
        status["initContainerStatuses"] = [item.status() for item in init]
    return status


def final_phase(containers: Sequence[Container], init: Sequence[Container]) -> str:
    """Succeeded when every container ended with 0, else Failed."""
    ended = [item.exit_code for item in containers]
    init_failed = any(item.exit_code not in {0, None} for item in init if not item.is_sidecar)
    return "Succeeded" if not init_failed and all(code == 0 for code in ended) else "Failed"


def _initialized(init: Sequence[Container], phase: str, *, initialized: bool) -> Object:
    if initialized:
        return _condition("Initialized", ready=True, reason="PodCompleted" if phase == "Succeeded" else "")
    missing = [item.name for item in init if item.exit_code != 0 and not (item.is_sidecar and item.running.is_set())]
    return _condition(
        "Initialized",
        ready=False,
        reason="ContainersNotInitialized",
        message=f"containers with incomplete status: [{' '.join(missing)}]",
    )


def _readiness(kind: str, phase: str, unready: Sequence[str]) -> Object:
    if phase == "Succeeded":
        return _condition(kind, ready=False, reason="PodCompleted")
    if phase == "Failed":
        return _condition(kind, ready=False, reason="PodFailed")
    if unready:
        message = f"containers with unready status: [{' '.join(unready)}]"
        return _condition(kind, ready=False, reason="ContainersNotReady", message=message)
    return _condition(kind, ready=True)


def _condition(kind: str, *, ready: bool, reason: str = "", message: str = "") -> Object:
    item = {"type": kind, "status": "True" if ready else "False"}
    return item | ({"reason": reason} if reason else {}) | ({"message": message} if message else {})


def _dated(item: Object, known: Object | None) -> Object:
    same = known is not None and known["status"] == item["status"]
    moment = known.get("lastTransitionTime") if same and known is not None else None
    return {**item, "lastProbeTime": None, "lastTransitionTime": moment or objects.now()}
