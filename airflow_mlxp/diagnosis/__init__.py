"""Why a workload failed, or does not start: facts in, one sentence with evidence and advice out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.diagnosis.causes import ending, waiting
from airflow_mlxp.diagnosis.facts import Facts, Limits, StoppedBy

if TYPE_CHECKING:
    from airflow_mlxp.models import Diagnosis

__all__ = ["Facts", "Limits", "StoppedBy", "diagnose", "why_waiting"]


def diagnose(facts: Facts) -> Diagnosis:
    """Why this workload did not succeed.

    Raises:
        ValueError: it did succeed; a success has no diagnosis, however many warnings there were.
    """
    if facts.succeeded:
        raise ValueError("a workload that succeeded has no diagnosis")
    return ending.explain(facts)


def why_waiting(facts: Facts) -> Diagnosis | None:
    """What keeps a workload from running at present; None when nothing is known to."""
    return waiting.explain(facts)
