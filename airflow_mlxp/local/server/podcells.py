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


def _init_reason(pod: dict[str, Any], status: dict[str, Any]) -> tuple[bool, str]:
    total = len(pod["spec"].get("initContainers") or ())
    for number, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode") == 0:
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
