"""Container states of a pod, read from ``containerStatuses`` and ``initContainerStatuses`` (core/v1 PodStatus)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.workloads import objects

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerState:
    """One container, its newest end included: ``exit_code`` and the times are those of the instance that ended last."""

    name: str
    running: bool = False
    waiting: bool = False
    ended: bool = False
    """Whether an instance has ended; together with ``running`` it has been restarted since."""
    reason: str = ""
    """The waiting reason (``ImagePullBackOff``, ``CrashLoopBackOff``) or that of the end (``OOMKilled``, ``Error``)."""
    message: str = ""
    end_reason: str = ""
    end_message: str = ""
    exit_code: int | None = None
    restarts: int = 0
    started_at: str = ""
    finished_at: str = ""


def state_of(pod: Mapping[str, Any], name: str) -> ContainerState:
    """State of the container with this name among the ordinary ones; an empty state when the pod has no status for it."""
    for status in objects.mappings(objects.at(pod, "status", "containerStatuses")):
        if status.get("name") == name:
            return _state(status)
    return ContainerState(name=name)


def init_states(pod: Mapping[str, Any]) -> list[ContainerState]:
    """States of the init containers, in order, without native sidecars (init containers with restartPolicy Always)."""
    specs = objects.mappings(objects.at(pod, "spec", "initContainers"))
    sidecars = {objects.text(spec.get("name")) for spec in specs if spec.get("restartPolicy") == "Always"}
    states = [_state(status) for status in objects.mappings(objects.at(pod, "status", "initContainerStatuses"))]
    return [state for state in states if state.name not in sidecars]


def init_problem(pod: Mapping[str, Any]) -> tuple[str, str] | None:
    """Reason and message of the init container that holds the pod up, spelt as kubectl does; None when all are done."""
    states = init_states(pod)
    for done, state in enumerate(states):
        if state.ended and not state.running and not state.waiting and state.exit_code == 0:
            continue
        return _init_reason(state, f"{done}/{len(states)}"), _init_message(state)
    return None


def restart_policy(pod: Mapping[str, Any], container: str) -> str:
    """The restart policy that the kubelet applies to this container: its own, else the pod's, whose default is Always."""
    specs = objects.mappings(objects.at(pod, "spec", "containers"))
    own = next((objects.text(spec.get("restartPolicy")) for spec in specs if spec.get("name") == container), "")
    return own or objects.text(objects.at(pod, "spec", "restartPolicy")) or "Always"


def _init_reason(state: ContainerState, progress: str) -> str:
    if state.waiting and state.reason not in {"", "PodInitializing"}:
        return f"Init:{state.reason}"
    if state.ended and not state.running:
        return f"Init:{state.end_reason or f'ExitCode:{state.exit_code}'}"
    return f"Init:{progress}"


def _init_message(state: ContainerState) -> str:
    if state.ended and state.exit_code != 0:
        text = f"init container {state.name} ended with exit code {state.exit_code}"
        return f"{text}: {state.end_message}" if state.end_message else text
    return state.message


def _state(status: Mapping[str, Any]) -> ContainerState:
    state = objects.mapping(status.get("state"))
    waiting, running = objects.mapping(state.get("waiting")), objects.mapping(state.get("running"))
    now = objects.mapping(state.get("terminated"))
    end = now or objects.mapping(objects.at(status, "lastState", "terminated"))
    code = end.get("exitCode")
    shown = waiting or end
    return ContainerState(
        name=objects.text(status.get("name")),
        running="running" in state and not now,
        waiting="waiting" in state and not now,
        ended=bool(end),
        reason=objects.text(shown.get("reason")),
        message=objects.text(shown.get("message")),
        end_reason=objects.text(end.get("reason")),
        end_message=objects.text(end.get("message")),
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        restarts=objects.count(status.get("restartCount")),
        started_at=objects.text(running.get("startedAt")) or objects.text(end.get("startedAt")),
        finished_at=objects.text(end.get("finishedAt")),
    )
