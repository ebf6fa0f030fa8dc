"""Why it did not succeed: what the engine knows, laid before the diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp import diagnosis
from airflow_mlxp.cluster.endings import GONE, Cause
from airflow_mlxp.diagnosis.facts import Facts, Limits, StoppedBy
from airflow_mlxp.models import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.cluster.endings import Ending, FollowOptions
    from airflow_mlxp.cluster.state import WorkloadState
    from airflow_mlxp.models import Diagnosis

_STOPPED_BY = {
    Cause.TIMEOUT: StoppedBy.TIMEOUT,
    Cause.START_TIMEOUT: StoppedBy.START_TIMEOUT,
    Cause.CONTAINER_RESTARTS: StoppedBy.CONTAINER_RESTARTS,
}


def explain(state: WorkloadState, ending: Ending, tails: Mapping[str, tuple[str, ...]], options: FollowOptions) -> Diagnosis:
    """The diagnosis of an ending that is no success. ``tails`` are the last log lines by replica."""
    return diagnosis.diagnose(
        Facts(
            workload=state.workload,
            phase=Phase.GONE if ending.cause in GONE else state.phase or Phase.PENDING,
            object=state.obj,
            replicas=state.replicas,
            pods=tuple(state.all_pods().values()),
            events=state.events,
            log_tails=tails,
            verdict=ending.verdict,
            stopped_by=_STOPPED_BY.get(ending.cause, StoppedBy.NOTHING),
            limits=Limits(
                timeout=options.timeout,
                start_timeout=options.start_timeout,
                drain_timeout=options.drain_timeout,
                container_restarts=options.container_restarts,
            ),
            restarts=state.restarts(),
        )
    )
