"""How the events of a workload read in a task's log; the same in the triggerer and in a worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_mlxp.models import LogLines, Phase, PhaseChanged, ReplicaChanged, ReplicaPhase, Warned

if TYPE_CHECKING:
    from airflow_mlxp.models import Event, ReplicaStatus, WorkloadRef

LOGGER_NAME = "airflow_mlxp"

# Airflow's readers know microseconds: date, time and six digits are 26 characters.
_MICROSECONDS = 26

_SAYS_ENOUGH = frozenset({Phase.CREATED, Phase.RUNNING, Phase.SUCCEEDED})
"""Phases whose reason and message only say the same in other words."""
_ORDINARY_ENDS = frozenset({"Completed", "Error"})
"""Reasons that say no more than the exit code."""

_DELETED = {
    "deleted": "deleted",
    "taken": "left alone, another try owns it by now",
    "gone": "was gone already",
}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the task's log."""

    text: str
    warning: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    """Shown beside the text: replica and pod; ``timestamp`` takes the place of the time of writing."""


def record(event: Event, ref: WorkloadRef) -> LogRecord | None:
    """The record of an event; None for those that are told otherwise."""
    match event:
        case PhaseChanged():
            told = "" if event.phase in _SAYS_ENOUGH else _because(event.reason, event.message)
            return LogRecord(f"{ref.kind} {ref.name}: {event.phase}{told}", warning=event.phase is Phase.FAILED)
        case ReplicaChanged():
            status = event.replica
            failed = status.phase is ReplicaPhase.FAILED or bool(status.exit_code)
            return LogRecord(f"{status.replica}: {_state(status)}", warning=failed, fields=_origin(status.replica, status.pod))
        case Warned():
            return LogRecord(f"{event.reason}: {event.message}" if event.reason else event.message, warning=True)
        case LogLines():
            return lines(event)
        case _:
            return None


def lines(event: LogLines) -> LogRecord:
    """Lines that arrived together are one record: the triggerer's channel carries records, not lines."""
    fields = _origin(event.replica, event.pod)
    if event.lines and event.lines[0].time:
        fields["timestamp"] = _microseconds(event.lines[0].time)
    return LogRecord("\n".join(f"[{event.replica}] {line.text}" for line in event.lines), fields=fields)


def deleted(ref: WorkloadRef, outcome: str) -> str:
    """What is told after a delete; ``outcome`` is a ``cluster.delete.DeleteOutcome``."""
    return f"{ref.kind} {ref.namespace}/{ref.name}: {_DELETED[outcome]}"


def _microseconds(time: str) -> str:
    return time if len(time) <= _MICROSECONDS + 1 else f"{time[:_MICROSECONDS]}Z"


def _origin(replica: str, pod: str) -> dict[str, str]:
    return {"replica": replica, "pod": pod}


def _state(status: ReplicaStatus) -> str:
    text = str(status.phase)
    if status.ended and status.exit_code is not None:
        text = f"exit code {status.exit_code}"
    elif status.node:
        text += f" on {status.node}"
    if not status.ended and status.exit_code is not None:
        text += f", last exit code {status.exit_code}"
    if status.restarts:
        text += f", restarts: {status.restarts}"
    return text + _because("" if status.reason in _ORDINARY_ENDS else status.reason, status.message)


def _because(reason: str, message: str) -> str:
    # A container's message may be the end of its log, which the log has in full: its last line says what happened.
    told = [line for line in message.splitlines() if any(character.isalnum() for character in line)]
    detail = ": ".join(part for part in (reason, told[-1].strip() if told else "") if part)
    return f" ({detail})" if detail else ""
