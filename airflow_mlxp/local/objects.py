"""Small readings of Kubernetes objects that controllers and agent share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object, Resource


def now() -> str:
    """The time as ``metav1.Time`` writes it: whole seconds, UTC."""
    return format_time(datetime.now(UTC))


def format_time(moment: datetime) -> str:
    """``metav1.Time`` of an aware datetime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """The aware datetime of a ``metav1.Time``."""
    return datetime.fromisoformat(text)


def age(text: str) -> float:
    """Seconds since a ``metav1.Time``."""
    return (datetime.now(UTC) - parse_time(text)).total_seconds()


def key_of(obj: Object) -> tuple[str, str]:
    """Namespace and name."""
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def phase(pod: Object) -> str:
    """``status.phase``; a pod without one is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: Object) -> bool:
    """Whether the pod has ended for good."""
    return phase(pod) in {"Succeeded", "Failed"}


def is_ready(pod: Object) -> bool:
    """Whether the condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def is_deleting(obj: Object) -> bool:
    """Whether somebody has asked for the object's deletion."""
    return "deletionTimestamp" in obj["metadata"]


def controller_of(obj: Object) -> Object | None:
    """The owner reference that controls the object."""
    return next((ref for ref in obj["metadata"].get("ownerReferences") or [] if ref.get("controller")), None)


def owner_reference(resource: Resource, owner: Object) -> Object:
    """The reference that makes ``owner`` the controller of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def container_statuses(pod: Object) -> list[Object]:
    """``status.containerStatuses``, or nothing."""
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def restart_count(pod: Object) -> int:
    """Restarts of all containers, those of the init phase included."""
    status: dict[str, Any] = pod.get("status") or {}
    groups = (status.get("initContainerStatuses") or [], status.get("containerStatuses") or [])
    return sum(int(container.get("restartCount") or 0) for group in groups for container in group)
