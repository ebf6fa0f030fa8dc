"""Tables: what ``kubectl get`` prints."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import podcells, resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mlxp.local.server.listing import Page
    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.storage import Object

_UNITS = ((365 * 86400, "y"), (86400, "d"), (3600, "h"), (60, "m"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column; ``wide`` ones show only with ``-o wide``."""

    name: str
    cell: Callable[[Object], object]
    type: str = "string"
    wide: bool = False


def _parse(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def duration(seconds: float) -> str:
    """A duration as kubectl shows it: ``42s``, ``2m5s``, ``17m``, ``3h10m``, ``2d4h``, ``1y20d``."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    for number, (size, unit) in enumerate(_UNITS):
        if left >= 2 * size or (size == 365 * 86400 and left >= size):
            count, rest = divmod(left, size)
            lower, lower_unit = _UNITS[number + 1] if number + 1 < len(_UNITS) else (1, "s")
            fine = count < (10 if unit == "m" else 8)
            return f"{count}{unit}{rest // lower}{lower_unit}" if fine and rest // lower else f"{count}{unit}"
    return f"{left}s"


def age(text: str | None) -> str:
    """Time since a timestamp; ``<unknown>`` without one."""
    if not text:
        return "<unknown>"
    return duration((dt.datetime.now(dt.UTC) - _parse(text)).total_seconds())


def _get(data: Object, *steps: str) -> Any:
    value: Any = data
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _at(*steps: str, default: str = "") -> Callable[[Object], object]:
    def cell(data: Object) -> object:
        value = _get(data, *steps)
        return default if value is None else value

    return cell


NAME = Column("Name", _at("metadata", "name"))
AGE = Column("Age", lambda data: age(_get(data, "metadata", "creationTimestamp")))


def _restarts(pod: Object) -> str:
    statuses = podcells.restarted(pod)
    count = sum(status.get("restartCount", 0) for status in statuses)
    ends = [end for status in statuses if (end := _get(status, "lastState", "terminated", "finishedAt"))]
    return f"{count} ({age(max(ends))} ago)" if count and ends else str(count)


def _job_status(job: Object) -> str:
    true = {c["type"] for c in _get(job, "status", "conditions") or () if c.get("status") == "True"}
    for condition, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in true:
            return shown
    if _get(job, "metadata", "deletionTimestamp"):
        return "Terminating"
    for condition, shown in (
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if condition in true:
            return shown
    return "Running"


def _job_completions(job: Object) -> str:
    done, wanted = _get(job, "status", "succeeded") or 0, _get(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = _get(job, "spec", "parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Object) -> str:
    start, end = _get(job, "status", "startTime"), _get(job, "status", "completionTime")
    if not start:
        return ""
    return duration((_parse(end) - _parse(start)).total_seconds()) if end else age(start)


def _containers(field: str, *path: str) -> Callable[[Object], object]:
    return lambda data: ",".join(str(container.get(field, "")) for container in _get(data, *path, "containers") or ())


def _job_selector(job: Object) -> str:
    return ",".join(f"{k}={v}" for k, v in (_get(job, "spec", "selector", "matchLabels") or {}).items()) or "<none>"


def _pytorchjob_state(job: Object) -> str:
    conditions = _get(job, "status", "conditions") or ()
    return str(conditions[-1].get("type", "")) if conditions else ""


def _event_last_seen(event: Object) -> str:
    last = event.get("lastTimestamp") or _get(event, "series", "lastObservedTime") or event.get("eventTime")
    return age(last or event.get("firstTimestamp"))


def _event_object(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _node_status(node: Object) -> str:
    ready = [c.get("status") for c in _get(node, "status", "conditions") or () if c.get("type") == "Ready"]
    shown = {"True": "Ready", "False": "NotReady"}.get(ready[0] if ready else "", "Unknown")
    return f"{shown},SchedulingDisabled" if _get(node, "spec", "unschedulable") else shown


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    return (
        ",".join(sorted(k.removeprefix(prefix) for k in _get(node, "metadata", "labels") or {} if k.startswith(prefix)))
        or "<none>"
    )


def _quota(kind: str) -> Callable[[Object], object]:
    def cell(quota: Object) -> object:
        hard, used = _get(quota, "status", "hard") or {}, _get(quota, "status", "used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") is (kind == "limits")]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def _ports(service: Object) -> str:
    return ",".join(f"{port.get('port')}/{port.get('protocol')}" for port in _get(service, "spec", "ports") or ()) or "<none>"


_TEMPLATE = ("spec", "template", "spec")
_COLUMNS: dict[Resource, tuple[Column, ...]] = {
    resources.PODS: (
        NAME,
        Column("Ready", podcells.ready),
        Column("Status", podcells.pod_reason),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", _at("status", "podIP", default="<none>"), wide=True),
        Column("Node", _at("spec", "nodeName", default="<none>"), wide=True),
        Column("Nominated Node", _at("status", "nominatedNodeName", default="<none>"), wide=True),
        Column("Readiness Gates", lambda _: "<none>", wide=True),
    ),
    resources.JOBS: (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        Column("Containers", _containers("name", *_TEMPLATE), wide=True),
        Column("Images", _containers("image", *_TEMPLATE), wide=True),
        Column("Selector", _job_selector, wide=True),
    ),
    resources.PYTORCH_JOBS: (NAME, Column("State", _pytorchjob_state), AGE),
    resources.EVENTS: (
        Column("Last Seen", _event_last_seen),
        Column("Type", _at("type")),
        Column("Reason", _at("reason")),
        Column("Object", _event_object),
        Column("Subobject", _at("involvedObject", "fieldPath"), wide=True),
        Column("Source", _at("source", "component"), wide=True),
        Column("Message", lambda event: str(event.get("message", "")).strip()),
        Column("First Seen", lambda event: age(event.get("firstTimestamp") or event.get("eventTime")), wide=True),
        Column("Count", _at("count", default="1"), wide=True),
        Column("Name", _at("metadata", "name"), wide=True),
    ),
    resources.NODES: (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _at("status", "nodeInfo", "kubeletVersion")),
    ),
    resources.NAMESPACES: (NAME, Column("Status", _at("status", "phase")), AGE),
    resources.SECRETS: (
        NAME,
        Column("Type", _at("type")),
        Column("Data", lambda secret: len(secret.get("data") or {}), "integer"),
        AGE,
    ),
    resources.CONFIG_MAPS: (NAME, Column("Data", lambda data: len(data.get("data") or {}), "integer"), AGE),
    resources.CLAIMS: (
        NAME,
        Column("Status", _at("status", "phase")),
        Column("Volume", _at("spec", "volumeName")),
        Column("Capacity", _at("status", "capacity", "storage")),
        Column("Access Modes", lambda claim: ",".join(_get(claim, "status", "accessModes") or ())),
        Column("StorageClass", _at("spec", "storageClassName")),
        Column("VolumeAttributesClass", lambda _: "<unset>"),
        AGE,
    ),
    resources.QUOTAS: (NAME, Column("Request", _quota("requests")), Column("Limit", _quota("limits")), AGE),
    resources.SERVICE_ACCOUNTS: (NAME, Column("Secrets", lambda data: len(data.get("secrets") or ()), "integer"), AGE),
    resources.SERVICES: (
        NAME,
        Column("Type", _at("spec", "type")),
        Column("Cluster-IP", _at("spec", "clusterIP", default="<none>")),
        Column("External-IP", lambda _: "<none>"),
        Column("Port(s)", _ports),
        AGE,
    ),
    resources.LEASES: (NAME, Column("Holder", _at("spec", "holderIdentity")), AGE),
}


def table(resource: Resource, page: Page, include: str = "") -> dict[str, Any]:
    """A ``meta.k8s.io/v1`` Table of the objects; ``include`` is ``includeObject``: Metadata (default), Object or None."""
    columns = _COLUMNS.get(resource, (NAME, AGE))
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
    if page.remaining is not None:
        meta["remainingItemCount"] = page.remaining
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == "Name" else "",
                "description": column.name,
                "priority": int(column.wide),
            }
            for column in columns
        ],
        "rows": [_row(columns, stored.data, include) for stored in page.items],
    }


def _row(columns: tuple[Column, ...], data: Object, include: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(data) for column in columns]}
    if include == "Object":
        row["object"] = data
    elif include != "None":
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": data["metadata"]}
    return row
