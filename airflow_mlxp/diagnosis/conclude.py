"""Making a diagnosis: advice by category, evidence in bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.diagnosis.advice import advice_for
from airflow_mlxp.models import Diagnosis, FailureClass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_mlxp.diagnosis.failures import Failure

MAX_EVIDENCE_LINES = 12
MAX_LINE = 600
"""Characters; a whole diagnosis stays far below the 16 KiB that the trigger's event has for it."""


def conclude(
    category: str,
    sentence: str,
    *,
    failure_class: FailureClass = FailureClass.WORKLOAD,
    failure: Failure | None = None,
    evidence: Iterable[str] = (),
    advice: str = "",
) -> Diagnosis:
    """The diagnosis of this category; ``advice`` replaces the one that belongs to it."""
    lines = dict.fromkeys(cut(line) for line in evidence if line.strip())
    return Diagnosis(
        category=category,
        failure_class=failure_class,
        sentence=cut(sentence),
        replica=failure.replica if failure else "",
        exit_code=failure.exit_code if failure else None,
        evidence=tuple(lines)[-MAX_EVIDENCE_LINES:],
        advice=advice or advice_for(category),
    )


def cut(text: str) -> str:
    """The text on one line and within ``MAX_LINE`` characters."""
    line = " ".join(text.split("\n")).rstrip()
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def seconds(value: float | None) -> str:
    """A limit for a sentence."""
    return f"{value:g} s" if value is not None else "its limit"
