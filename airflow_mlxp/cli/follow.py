"""``airflow-mlxp follow``: what the trigger does, in the shell, for a workload of any kind; it changes nothing on the cluster."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from airflow_mlxp.cluster.access import Access
    from airflow_mlxp.workloads.base import Workload

_SUCCESS, _FAILURE, _UNUSABLE, _INTERRUPTED = 0, 1, 2, 130


def follow(
    kind: Annotated[str, typer.Argument(help="Kind of the workload, in any case.")],
    name: Annotated[str, typer.Argument(help="Name of the workload.")],
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace; that of the kubeconfig's context if absent.")
    ] = "",
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig file; KUBECONFIG or ~/.kube/config if absent.")] = None,
    context: Annotated[str, typer.Option(help="Context of the kubeconfig; its current one if absent.")] = "",
    logs: Annotated[bool, typer.Option(help="Print the log lines of every replica.")] = True,
) -> None:
    """Follow a workload to its end: state changes, warnings, the log of every replica, and why it failed.

    Exit code 0: it succeeded; 1: it failed; 2: it can't be followed. Ctrl-C leaves the workload alone.
    """
    import asyncio

    from airflow_mlxp import errors

    try:
        succeeded = asyncio.run(_follow(kind, name, namespace, kubeconfig, context, logs=logs))
    except KeyboardInterrupt:
        typer.echo("* no longer following; the workload goes on", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except errors.MLXPError as error:
        from airflow_mlxp.cli import output

        typer.echo(output.escape(f"airflow-mlxp follow: {error}"), err=True)
        raise typer.Exit(_UNUSABLE) from None
    raise typer.Exit(_SUCCESS if succeeded else _FAILURE)


async def _follow(kind: str, name: str, namespace: str, kubeconfig: Path | None, context: str, *, logs: bool) -> bool:
    from airflow_mlxp import models
    from airflow_mlxp.cli import output
    from airflow_mlxp.cluster import ownership, rest
    from airflow_mlxp.cluster.follow import FollowOptions
    from airflow_mlxp.cluster.follow import follow as follow_workload

    workload = _workload(kind)
    access = _access(kubeconfig, context)
    async with rest.Client(access) as client:
        obj = await client.get(workload.api.path(namespace or access.namespace, name))
        ref = ownership.ref_of(workload, obj)
        # Nobody owns what is only looked at: without an owner the engine deletes and stops nothing.
        events = follow_workload(client, workload, ref, owner=None, options=FollowOptions(logs=logs))
        async for event in events:
            for line in output.lines_of(event):
                typer.echo(line)
            if isinstance(event, models.Finished):
                return event.outcome.succeeded
    raise AssertionError("follow() ends with Finished")


def _workload(kind: str) -> Workload:
    from airflow_mlxp import workloads

    by_lower = {workload.kind.lower(): workload.kind for workload in workloads.all_workloads()}
    return workloads.get(by_lower.get(kind.lower(), kind))


def _access(kubeconfig: Path | None, context: str) -> Access:
    from airflow_mlxp.cluster import access

    chosen = context or None
    return access.from_kubeconfig(path=str(kubeconfig), context=chosen) if kubeconfig else access.discover(context=chosen)
