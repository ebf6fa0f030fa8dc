"""Read what a log gap left: lines that came too fast or too late to be carried live, as long as their pod exists."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_mlxp import errors
from airflow_mlxp.cluster.log_cursor import LogCursor
from airflow_mlxp.cluster.logs import LogFollower, LogLimits
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import PODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import LogGap, LogLines


async def complete(
    client: Client, namespace: str, gap: LogGap, *, seconds: float, write: Callable[[LogLines], None]
) -> tuple[LogGap, ...]:
    """Write the lines behind an open gap, for at most ``seconds``; what is missing even then.

    Trouble with logs never decides the result of a workload: nothing is raised because of a server's answer.
    """
    if reason := await _unreadable(client, namespace, gap):
        return (replace(gap, is_open=False, reason=reason),)
    follower = LogFollower(
        client,
        namespace=namespace,
        pod=gap.pod,
        container=gap.container,
        replica=gap.replica,
        cursor=LogCursor(gap.since, gap.count),
        limits=LogLimits(end_grace=seconds),
    )
    batches = follower.batches(lambda: False)
    async with aclosing(batches):
        async for lines in batches:
            write(lines)
    return tuple(replace(left, is_open=False) for left in follower.gaps)


async def _unreadable(client: Client, namespace: str, gap: LogGap) -> str:
    """Why there is nothing to read any more: another pod may have the name by now."""
    try:
        pod = await client.get(PODS.path(namespace, gap.pod))
    except errors.NotFound:
        pod = {}
    except errors.MLXPError as error:
        return str(error)
    return "" if objects.uid_of(pod) == gap.pod_uid else "the pod was deleted before its log was read to the end"
