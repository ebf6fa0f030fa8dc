"""The one event that a trigger fires: its payload, how it is bounded, and how any version of it is read.

Airflow prints an event into the task's log and stores it unencrypted: it is small, masked, and holds no credential.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from airflow.triggers.base import TriggerEvent

from airflow_mlxp import compat
from airflow_mlxp.models import Diagnosis, FailureClass, LogGap, Timings, WorkloadRef

if TYPE_CHECKING:
    from airflow_mlxp.errors import MLXPError
    from airflow_mlxp.models import Outcome
    from airflow_mlxp.results import ResultError

SCHEMA_VERSION = 1
MAX_DIAGNOSIS_BYTES = 16 * 1024
MAX_RESULT_BYTES = 64 * 1024
"""Of the combined result: an indexed Job returns one value for each index."""
MAX_GAPS = 50
_MAX_TEXT = 1000
_MAX_LINE = 2000


class EventStatus(StrEnum):
    """What the trigger has to say."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The workload ended badly; the diagnosis says why."""
    LOST = "lost"
    """The trigger can't go on watching; the workload may still run. The diagnosis says what stands in the way."""


ResultShape = Literal["single", "indexed", "ignored"]
"""How the termination messages of the replicas become the task's result."""


class WorkloadEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of the event. Fields may be added, never renamed: triggers outlive upgrades."""

    schema_version: int = SCHEMA_VERSION
    status: EventStatus = EventStatus.LOST
    phase: str = ""
    ref: WorkloadRef | None = None
    server: str = ""
    """URL of the API server."""
    result: Any = None
    """The combined result of the workload (JSON)."""
    diagnosis: Diagnosis | None = None
    timings: Timings = msgspec.field(default_factory=Timings)
    log_gaps: tuple[LogGap, ...] = ()

    def to_payload(self) -> dict[str, Any]:
        """Plain JSON values, bounded: at most 16 KiB of diagnosis and 50 log gaps."""
        bounded = msgspec.structs.replace(
            self,
            diagnosis=_bounded(self.diagnosis) if self.diagnosis else None,
            log_gaps=self.log_gaps[:MAX_GAPS],
        )
        payload: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(bounded))
        return payload


def from_outcome(outcome: Outcome, *, ref: WorkloadRef, server: str, results: ResultShape) -> WorkloadEvent:
    """The event of a workload that has ended. Results that can't be combined are a failure of the workload, and named so."""
    from airflow_mlxp import results as termination_messages

    diagnosis, result = outcome.diagnosis, None
    if outcome.succeeded and results != "ignored":
        try:
            result = termination_messages.combine(outcome.results, indexed=results == "indexed")
            _check_size(result)
        except termination_messages.ResultError as error:
            diagnosis = _unusable_result(error)
    return WorkloadEvent(
        status=EventStatus.FAILED if diagnosis else EventStatus.SUCCEEDED,
        phase=outcome.phase,
        ref=ref,
        server=server,
        result=None if diagnosis else result,
        diagnosis=diagnosis,
        timings=outcome.timings,
        log_gaps=outcome.log_gaps,
    )


def _check_size(result: object) -> None:
    from airflow_mlxp.results import ResultError

    if (size := len(msgspec.json.encode(result))) > MAX_RESULT_BYTES:
        raise ResultError(
            "result_too_large",
            f"all results together have {size} bytes, the limit is {MAX_RESULT_BYTES}; write them to a volume and return a path",
        )


def _unusable_result(error: ResultError) -> Diagnosis:
    return Diagnosis(
        category=error.category,
        failure_class=FailureClass.WORKLOAD,
        sentence=f"The workload succeeded, but its result can't be handed on: {error}.",
        advice="Set do_xcom_push=False when the result is not wanted.",
    )


def lost(error: MLXPError, *, ref: WorkloadRef) -> WorkloadEvent:
    """The event of a trigger that can't go on watching."""
    diagnosis = Diagnosis(
        category="lost",
        failure_class=FailureClass.INFRASTRUCTURE,
        sentence=f"{ref.kind} {ref.namespace}/{ref.name} can't be watched any longer: {error}",
    )
    return WorkloadEvent(status=EventStatus.LOST, ref=ref, diagnosis=diagnosis)


def decode(payload: Any) -> WorkloadEvent:
    """Read a payload of this or another version: unknown fields are ignored, absent ones take their defaults.

    What can't be read at all becomes an event with the status ``LOST`` that says so.
    """
    try:
        return msgspec.convert(payload, WorkloadEvent, strict=False)
    except msgspec.ValidationError as error:
        sentence = f"The trigger sent an event that this version of airflow-mlxp can't read ({error}): {str(payload)[:200]}"
        return WorkloadEvent(diagnosis=_unreadable(sentence))


def _unreadable(sentence: str) -> Diagnosis:
    return Diagnosis(
        category="unreadable_event",
        failure_class=FailureClass.INFRASTRUCTURE,
        sentence=sentence,
        advice="Run the same version of airflow-mlxp in workers and triggerers.",
    )


def _bounded(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis, masked, with as much of its newest evidence as fits."""
    sentence, advice = (compat.redact(text)[:_MAX_TEXT] for text in (diagnosis.sentence, diagnosis.advice))
    room = MAX_DIAGNOSIS_BYTES - _size(sentence) - _size(advice) - 512
    kept: list[str] = []
    for line in reversed(diagnosis.evidence):
        masked = compat.redact(line)
        cut = masked if len(masked) <= _MAX_LINE else f"{masked[:_MAX_LINE]}..."
        room -= _size(cut)
        if room < 0:
            kept.append(f"({len(diagnosis.evidence) - len(kept)} earlier lines left out)")
            break
        kept.append(cut)
    return replace(diagnosis, sentence=sentence, advice=advice, evidence=tuple(reversed(kept)))


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) + 1


class FinishedEvent(TriggerEvent):
    """A trigger's event that prints as one sentence."""

    def __repr__(self) -> str:
        event = decode(self.payload)
        name = f"{event.ref.kind} {event.ref.namespace}/{event.ref.name}" if event.ref else "workload"
        return f"<{name}: {event.status}>"

    __str__ = __repr__
