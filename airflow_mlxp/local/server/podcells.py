"""The STATUS column of a pod: one word for its phase, containers and deletion, as the server's printer finds it."""

from __future__ import annotations

from typing import Any


def pod_reason(pod: dict[str, Any]) -> str:
    """``Running``, ``Completed``, ``CrashLoopBackOff``, ``Init:0/1``, ``Terminating``, ..."""
    meta, status = pod["metadata"], pod.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "")
    initializing, init_reason = _init_reason(pod, status)
    reason = init_reason if initializing else _container_reason(status, reason)
    if meta.get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def ready(pod: dict[str, Any]) -> str:
    """``1/2``: containers and sidecars that are ready, and all of them."""
    status, sidecars = pod.get("status") or {}, _sidecars(pod)
    statuses = [
        *(status.get("containerStatuses") or ()),
        *(one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars),
    ]
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{len(pod['spec'].get('containers') or ()) + len(sidecars)}"


def restarted(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Statuses of the containers whose restarts count now: those of the init phase until it is over."""
    status = pod.get("status") or {}
    init = list(status.get("initContainerStatuses") or ())
    if _init_reason(pod, status)[0]:
        return init
    return [*(status.get("containerStatuses") or ()), *(one for one in init if one.get("name") in _sidecars(pod))]


def _sidecars(pod: dict[str, Any]) -> set[str]:
    return {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}


def _init_reason(pod: dict[str, Any], status: dict[str, Any]) -> tuple[bool, str]:
    sidecars = _sidecars(pod)
    total = len(pod["spec"].get("initContainers") or ())
    for number, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            continue
        if terminated is not None:
            return True, f"Init:{terminated.get('reason') or _exit(terminated)}"
        if waiting is not None and waiting.get("reason") not in {None, "", "PodInitializing"}:
            return True, f"Init:{waiting['reason']}"
        return True, f"Init:{number}/{total}"
    return False, ""


def _container_reason(status: dict[str, Any], reason: str) -> str:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if waiting is not None and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = terminated.get("reason") or _exit(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if reason == "Completed" and running:
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        return "Running" if ready else "NotReady"
    return reason


def _exit(terminated: dict[str, Any]) -> str:
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode')}"
