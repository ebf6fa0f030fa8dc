"""Why it did not succeed, or does not start: what the engine knows, laid before the diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_mlxp import diagnosis
from airflow_mlxp.cluster.endings import GONE, Cause
from airflow_mlxp.diagnosis.facts import Facts, Limits, StoppedBy
from airflow_mlxp.models import Diagnosis, FailureClass, Phase, Warned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.cluster.endings import Ending, FollowOptions
    from airflow_mlxp.cluster.state import WorkloadState

_STOPPED_BY = {
    Cause.TIMEOUT: StoppedBy.TIMEOUT,
    Cause.START_TIMEOUT: StoppedBy.START_TIMEOUT,
    Cause.CONTAINER_RESTARTS: StoppedBy.CONTAINER_RESTARTS,
}
_NEVER_SEEN = Diagnosis(
    category="expired",
    failure_class=FailureClass.INFRASTRUCTURE,
    sentence="The workload was gone before it could be looked at: how it ended is not known.",
    advice="A ttlSecondsAfterFinished that is longer than any outage of the triggerer keeps finished workloads readable.",
)


def explain(state: WorkloadState, ending: Ending, tails: Mapping[str, tuple[str, ...]], options: FollowOptions) -> Diagnosis:
    """The diagnosis of an ending that is no success. ``tails`` are the last log lines by replica."""
    if ending.cause is Cause.EXPIRED:
        return _NEVER_SEEN
    facts = _facts(state, options)
    return diagnosis.diagnose(
        replace(
            facts,
            phase=Phase.GONE if ending.cause in GONE else facts.phase,
            log_tails=tails,
            verdict=ending.verdict,
            limits=replace(facts.limits, drain_timeout=ending.drain_limit),
            stopped_by=_STOPPED_BY.get(ending.cause, StoppedBy.NOTHING),
        )
    )


def why_waiting(state: WorkloadState, options: FollowOptions) -> Warned | None:
    """What keeps a workload from starting; None when that is not known, or when a warning has told it already."""
    if state.has_warned:
        return None
    found = diagnosis.why_waiting(_facts(state, options))
    if found is None or not state.is_news(found.category, found.sentence):
        return None
    return Warned(reason=found.category, message=found.as_text())


def _facts(state: WorkloadState, options: FollowOptions) -> Facts:
    return Facts(
        workload=state.workload,
        phase=state.phase or Phase.PENDING,
        object=state.obj,
        replicas=state.replicas,
        pods=tuple(state.all_pods().values()),
        events=state.events,
        limits=Limits(
            timeout=options.timeout,
            start_timeout=options.start_timeout,
            drain_timeout=options.drain_timeout,
            container_restarts=options.container_restarts,
        ),
        restarts=state.restarts(),
    )
