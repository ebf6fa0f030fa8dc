"""What a worker makes of a workload's end: facts for an XCom, exceptions, log records."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow_mlxp.errors import InfrastructureFailure, PermanentFailure, WorkloadError, WorkloadFailure
from airflow_mlxp.models import Diagnosis, FailureClass, Timings, WorkloadRef
from airflow_mlxp.triggers.report import LogRecord

if TYPE_CHECKING:
    from airflow_mlxp.models import LogGap

_MAX_TEXT = 300
"""Characters of a templated line that an error shows."""

_ERRORS: dict[FailureClass, type[WorkloadError]] = {
    FailureClass.PERMANENT: PermanentFailure,
    FailureClass.INFRASTRUCTURE: InfrastructureFailure,
    FailureClass.WORKLOAD: WorkloadFailure,
}


def error(diagnosis: Diagnosis) -> WorkloadError:
    """The exception of a diagnosis, by who has to act."""
    return _ERRORS[diagnosis.failure_class](diagnosis)


def killed(kind: str) -> InfrastructureFailure:
    """The exception of a task whose worker was told to end."""
    sentence = f"The task was killed; its {kind} was deleted."
    return InfrastructureFailure(Diagnosis(category="killed", failure_class=FailureClass.INFRASTRUCTURE, sentence=sentence))


def facts(ref: WorkloadRef, *, server: str, timings: Timings | None = None) -> dict[str, Any]:
    """Value of the XCom about the workload: kind, namespace, name, uid, server, and its times once it has ended."""
    return {**asdict(ref), "server": server, "timings": asdict(timings or Timings())}


def ref_of(value: Any) -> WorkloadRef | None:
    """The workload that an XCom of ``facts`` names."""
    if not isinstance(value, dict):
        return None
    try:
        return WorkloadRef(**{key: str(value[key]) for key in ("kind", "namespace", "name", "uid")})
    except KeyError:
        return None


def template_mistake(content: object, message: str, line: int) -> str:
    """What is told about text that Jinja can't read."""
    text = str(content).splitlines()[line - 1].strip() if isinstance(content, str) and content.strip() else str(content)
    return (
        f"Jinja can't read line {line} of a templated argument: {message}: {text[:_MAX_TEXT]}\n"
        "Text that is no template stands between {% raw %} and {% endraw %}; {# begins a comment, as in bash's ${#array[@]}."
    )


def gap_record(gap: LogGap) -> LogRecord:
    """What is told about lines that could not be carried."""
    since = f" after {gap.since}" if gap.since else ""
    return LogRecord(
        f"[{gap.replica}] log lines of {gap.pod}/{gap.container}{since} are missing: {gap.reason}",
        warning=True,
        fields={"replica": gap.replica, "pod": gap.pod},
    )
