"""``metadata`` of objects that are created and updated: what the server sets, keeps and refuses."""

from __future__ import annotations

import base64
import datetime as dt
import secrets
import uuid
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import defaults, problem
from airflow_mlxp.local.server.resources import CLAIMS, JOBS, NAMESPACES, NODES, PODS, QUOTAS, SECRETS, SERVICES

if TYPE_CHECKING:
    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.storage import Object, Stored

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: no vowels and no digits that look like letters, so that no words appear."""
_SERVER_SET = (
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)
_EMPTY: tuple[object, ...] = (None, "", {}, [])


_TIME = "%Y-%m-%dT%H:%M:%SZ"


def now() -> str:
    """The present time as Kubernetes writes it: RFC 3339 in UTC, whole seconds."""
    return dt.datetime.now(dt.UTC).strftime(_TIME)


def later(seconds: float, *, than: str = "") -> str:
    """The time ``seconds`` after another, by default after now."""
    start = dt.datetime.fromisoformat(than) if than else dt.datetime.now(dt.UTC)
    return (start + dt.timedelta(seconds=seconds)).strftime(_TIME)


def generated_name(prefix: str) -> str:
    """``generateName`` with five random characters; the prefix is cut so that the whole stays within 63 characters."""
    return prefix[:58] + "".join(secrets.choice(_ALPHABET) for _ in range(5))


def check_address(resource: Resource, data: Object, namespace: str, name: str = "") -> None:
    """Bring namespace and name of the body in line with those of the URL.

    Raises:
        ApiError: BadRequest, when they contradict each other or the body of an update has no name.
    """
    metadata = data["metadata"]
    if resource.namespaced:
        if metadata.get("namespace") not in {None, "", namespace}:
            raise problem.bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    if name and metadata.get("name") in {None, ""}:
        raise problem.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name and metadata["name"] != name:
        raise problem.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})",
        )


def prepare_create(resource: Resource, data: Object) -> None:
    """Everything that the server sets on a new object before it is validated.

    Raises:
        ApiError: when the object carries a resourceVersion.
    """
    metadata = data["metadata"]
    if metadata.get("resourceVersion") not in {None, "", "0"}:
        raise problem.ApiError(500, "", "resourceVersion should not be set on objects to be created")
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_SET and value not in _EMPTY}
    data["metadata"] = {
        **{key: kept.pop(key) for key in ("name", "generateName", "namespace") if key in kept},
        "uid": str(uuid.uuid4()),
        "resourceVersion": "",
        **({"generation": 1} if resource.generation else {}),
        "creationTimestamp": now(),
        **kept,
    }
    defaults.apply(resource, data)
    if resource is SECRETS:
        _encode_string_data(data)
    if resource is JOBS and isinstance(data.get("spec"), dict):
        defaults.add_job_identity(data)
    _reset_status(resource, data)


def _encode_string_data(secret: Object) -> None:
    """``stringData`` is written only: it is merged into ``data``."""
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _reset_status(resource: Resource, data: Object) -> None:
    """A new object's status is the server's, but a Node reports its own from the start."""
    if not resource.status or resource is NODES:
        return
    if resource.custom:
        data.pop("status", None)
        return
    initial: dict[Resource, dict[str, Any]] = {
        PODS: {"phase": "Pending", "qosClass": qos_class(data.get("spec") or {})},
        NAMESPACES: {"phase": "Active"},
        CLAIMS: {"phase": "Pending"},
        SERVICES: {"loadBalancer": {}},
        QUOTAS: {},
    }
    data["status"] = initial.get(resource, {})


def qos_class(pod_spec: dict[str, Any]) -> str:
    """``status.qosClass``: Guaranteed when every container's cpu and memory limits equal its requests."""
    guaranteed, any_resource = True, False
    for container in defaults.containers_of(pod_spec):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        any_resource |= any(name in limits or name in requests for name in ("cpu", "memory"))
        guaranteed &= all(name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))
    if not any_resource:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def prepare_update(resource: Resource, before: Stored, data: Object, *, subresource: str, patched: bool = False) -> None:
    """Keep what an update or a patch can't change and count the generation.

    Raises:
        ApiError: Conflict for an old resourceVersion or another uid, Invalid for a missing version of a custom resource or a
            patch of the uid.
    """
    old, metadata = before.data["metadata"], data["metadata"]
    _check_version(resource, before, metadata, subresource=subresource, patched=patched)
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_SET and value not in _EMPTY}
    order = ("name", "generateName", "namespace", *_SERVER_SET)
    fixed = {key: value for key, value in old.items() if key in order}
    data["metadata"] = {**fixed, **{key: value for key, value in kept.items() if key not in fixed}}
    if subresource == "status":
        _only_status(before, data)
        return
    if resource.status:
        _keep(data, before.data, "status")
    if resource is SECRETS:
        _encode_string_data(data)
    defaults.apply(resource, data)
    if resource.generation and _spec_changed(before.data, data):
        data["metadata"]["generation"] = old.get("generation", 0) + 1


def _check_version(resource: Resource, before: Stored, metadata: dict[str, Any], *, subresource: str, patched: bool) -> None:
    name = before.data["metadata"]["name"]
    version = metadata.get("resourceVersion") or ""
    if not version and resource.custom:
        error = problem.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise problem.invalid_object(resource.kind, resource.group, name, [error])
    if version and version != str(before.version):
        raise problem.conflict(resource.plural, resource.group, name, problem.MODIFIED)
    uid = metadata.get("uid") or before.uid
    if uid == before.uid:
        return
    if patched:
        if resource.custom and subresource:
            return  # the status of a custom resource takes nothing else along
        error = problem.invalid("metadata.uid", uid, "field is immutable")
        # The real server validates the metadata twice, and names each cause.
        raise problem.invalid_object(resource.kind, resource.group, name, [error, error])
    why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before.uid}"
    raise problem.conflict(resource.plural, resource.group, name, why)


def _keep(data: Object, before: Object, field: str) -> None:
    if field in before:
        data[field] = before[field]
    else:
        data.pop(field, None)


def _only_status(before: Stored, data: Object) -> None:
    """A write to ``status`` leaves everything else, but built-in kinds take labels and annotations along."""
    for field in before.data.keys() | data.keys():
        if field not in {"status", "metadata"}:
            _keep(data, before.data, field)
    if before.resource.custom:
        data["metadata"] = dict(before.data["metadata"])


def _spec_changed(before: Object, after: Object) -> bool:
    """Whether anything but metadata and status differs: what the generation of an object counts."""
    aside = {"metadata", "status", "kind", "apiVersion"}
    return {k: v for k, v in before.items() if k not in aside} != {k: v for k, v in after.items() if k not in aside}
