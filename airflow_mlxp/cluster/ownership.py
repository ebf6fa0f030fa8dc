"""The owner annotation: whose workload it is, changed only by a compare-and-swap on the server."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_mlxp import errors, identity
from airflow_mlxp.models import WorkloadRef
from airflow_mlxp.workloads import objects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.workloads.base import Workload

_DELETING = "deleting/"
_POINTER = "/metadata/annotations/" + identity.OWNER_ANNOTATION.replace("/", "~1")


class Swap(StrEnum):
    """What a compare-and-swap of the owner met."""

    DONE = "done"
    REFUSED = "refused"
    """The owner is another one by now: read the object again."""
    GONE = "gone"
    """No object of this uid exists."""


def owner_of(obj: Mapping[str, Any]) -> str:
    """The ``airflow-mlxp/owner`` annotation; empty when there is none."""
    return objects.text(objects.annotations_of(obj).get(identity.OWNER_ANNOTATION))


def deleting(by: str) -> str:
    """The owner that marks a workload as being deleted ``by`` somebody."""
    return _DELETING + by


def is_being_deleted(obj: Mapping[str, Any]) -> bool:
    """Whether somebody has begun to delete it: the server (deletionTimestamp) or one of us (the owner says so)."""
    return bool(obj["metadata"].get("deletionTimestamp")) or owner_of(obj).startswith(_DELETING)


def ref_of(workload: Workload, obj: Mapping[str, Any]) -> WorkloadRef:
    """The reference of an object as the API server sent it."""
    meta = obj["metadata"]
    return WorkloadRef(kind=workload.kind, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


async def read(client: Client, workload: Workload, ref: WorkloadRef) -> dict[str, Any] | None:
    """The object as it is now; None when no object of this uid exists."""
    try:
        obj = await client.get(workload.api.path(ref.namespace, ref.name))
    except errors.NotFound:
        return None
    return obj if obj["metadata"]["uid"] == ref.uid else None


async def swap(client: Client, workload: Workload, obj: Mapping[str, Any], *, expected: str, new: str) -> Swap:
    """Replace the owner ``expected`` by ``new`` in one JSON patch that tests it, and the uid, on the server.

    ``obj`` gives name and uid, and tells whether there is anything to test: an object that nobody owns yet gets the annotation.
    A resourceVersion precondition would lose to the controllers' status writes, this test doesn't.
    """
    ref = ref_of(workload, obj)
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": ref.uid}]
    if expected:
        patch.append({"op": "test", "path": _POINTER, "value": expected})
    elif not objects.annotations_of(obj):
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    patch.append({"op": "add", "path": _POINTER, "value": new})
    try:
        await client.json_patch(workload.api.path(ref.namespace, ref.name), patch)
    except errors.NotFound:
        return Swap.GONE
    except (errors.Unprocessable, errors.Conflict):
        return Swap.REFUSED
    return Swap.DONE
