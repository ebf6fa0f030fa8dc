"""Deletes that can't hit what somebody else has taken over: swap the owner, then delete with the uid as precondition."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_mlxp import errors
from airflow_mlxp.cluster import ownership
from airflow_mlxp.workloads.base import PODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Workload

_SWAPS = 5
"""Swaps of an owner that was just read, before giving up: each one lost means that somebody else won in between."""
_POLL_SECONDS = 0.5
"""Between two looks at something that is being deleted."""


class DeleteOutcome(StrEnum):
    """What became of a delete."""

    DELETED = "deleted"
    """The server has accepted it; pods end within their grace period."""
    TAKEN = "taken"
    """Somebody else owns the workload by now; it was left alone."""
    GONE = "gone"
    """There was nothing left to delete."""


async def fenced_delete(
    client: Client,
    workload: Workload,
    ref: WorkloadRef,
    *,
    owner: str | None,
    by: str,
    grace_seconds: int,
    propagation: str = "Background",
) -> DeleteOutcome:
    """Delete a workload unless somebody else has adopted it in the meantime.

    ``owner`` is the owner that we know (a ``ti.id``); None takes whatever the object says when it is read, as settling and
    cleaning up do. ``by`` names us in the annotation while the delete is under way. A delete that somebody else began and did
    not finish is finished. Pods get SIGTERM and their own ``terminationGracePeriodSeconds``; ``grace_seconds`` is sent besides,
    for objects that honour it.

    Raises ClusterError or ClusterUnreachable when the server can't be asked; the owner may then already say ``deleting/``.
    """
    for _ in range(_SWAPS):
        obj = await ownership.read(client, workload, ref)
        if obj is None:
            return DeleteOutcome.GONE
        current = ownership.owner_of(obj)
        if not ownership.is_being_deleted(obj):
            if owner is not None and current != owner:
                return DeleteOutcome.TAKEN
            result = await ownership.swap(client, workload, obj, expected=current, new=ownership.deleting(by))
            if result is ownership.Swap.GONE:
                return DeleteOutcome.GONE
            if result is ownership.Swap.REFUSED:
                continue
        return await _delete(client, workload.api.path(ref.namespace, ref.name), ref.uid, grace_seconds, propagation)
    return DeleteOutcome.TAKEN


async def stop_pods(client: Client, pods: Iterable[Mapping[str, Any]], *, grace_seconds: int) -> int:
    """Delete pods that still run after their workload's end; SIGTERM, then ``grace_seconds``. Returns how many were deleted.

    Only for a finished workload: a pod deleted from an unfinished one is created again by its controller.
    """
    stopped = 0
    for pod in pods:
        meta = pod["metadata"]
        path = PODS.path(meta["namespace"], meta["name"])
        outcome = await _delete(client, path, meta["uid"], grace_seconds, "Background")
        stopped += outcome is DeleteOutcome.DELETED
    return stopped


async def wait_until_gone(client: Client, workload: Workload, ref: WorkloadRef, *, timeout: float) -> bool:  # noqa: ASYNC109 - a poll
    """Wait until neither the workload nor a pod of it exists; False when that took longer than ``timeout`` seconds."""
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        if await ownership.read(client, workload, ref) is None and not await _has_pods(client, workload, ref):
            return True
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)


async def pods_of(client: Client, workload: Workload, ref: WorkloadRef) -> list[dict[str, Any]]:
    """The pods that the workload owns, by its uid: labels alone may be those of a namesake."""
    page = await client.list(PODS, ref.namespace, label_selector=workload.pod_selector(ref.name))
    return [pod for pod in page.items if is_owned_by(pod, ref.uid)]


def is_owned_by(pod: Mapping[str, Any], uid: str) -> bool:
    """Whether an ownerReference of the pod has this uid."""
    return any(reference.get("uid") == uid for reference in pod["metadata"].get("ownerReferences") or ())


async def _has_pods(client: Client, workload: Workload, ref: WorkloadRef) -> bool:
    return bool(await pods_of(client, workload, ref))


async def _delete(client: Client, path: str, uid: str, grace_seconds: int, propagation: str) -> DeleteOutcome:
    try:
        await client.delete(path, uid=uid, propagation=propagation, grace_seconds=grace_seconds)
    except (errors.NotFound, errors.Conflict):  # Conflict: another object has taken the name
        return DeleteOutcome.GONE
    return DeleteOutcome.DELETED
