"""What is checked after defaults are set: validation of the kind, then the admission plugins and webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.local.server import problem, quota, validation, webhook
from airflow_mlxp.local.server.resources import JOBS, PODS, PYTORCH_JOBS, SERVICE_ACCOUNTS

if TYPE_CHECKING:
    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.storage import Object, Store, Stored

_NOT_FOLLOWED = ("podFailurePolicy", "successPolicy", "backoffLimitPerIndex")
"""Fields of a Job that its controller leaves out: whoever uses one must not find that out by a Job that goes on."""


def admit(store: Store, resource: Resource, before: Stored | None, data: Object, *, subresource: str = "") -> list[str]:
    """Check a new object or version; the answer is warnings for the client.

    Raises:
        ApiError: Invalid (422) from the validation, Forbidden (403) from an admission plugin or webhook.
    """
    if errors := validation.validate(resource, before, data, subresource=subresource):
        raise problem.invalid_object(resource.kind, resource.group, data["metadata"].get("name", ""), errors)
    if resource is PODS and before is None:
        _require_service_account(store, data)
        quota.admit(store, data)
    if resource is PYTORCH_JOBS and subresource == "":
        return webhook.admit(data)
    if resource is JOBS and before is None:
        return [
            f"spec.{name}: the embedded platform doesn't follow this field" for name in _NOT_FOLLOWED if data["spec"].get(name)
        ]
    return []


def _require_service_account(store: Store, pod: Object) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    if store.get(SERVICE_ACCOUNTS, (namespace, name)) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise problem.forbidden(PODS.plural, "", pod["metadata"]["name"], why)
