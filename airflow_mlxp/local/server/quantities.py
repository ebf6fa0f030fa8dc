"""Quantities of built-in kinds in the one notation that the API server answers with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import formats, problem
from airflow_mlxp.local.server.resources import CLAIMS, JOBS, NODES, PODS, QUOTAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_mlxp.local.server.resources import Resource

_LISTS = ("limits", "requests")


def make_canonical(resource: Resource, data: dict[str, Any]) -> None:
    """Rewrite the quantities of an object.

    Raises:
        ApiError: BadRequest for what is no quantity.
    """
    for amounts in _amounts(resource, data):
        for name, value in amounts.items():
            try:
                amounts[name] = formats.canonical_quantity(value)
            except ValueError as error:
                raise problem.bad_request(str(error)) from error


def _amounts(resource: Resource, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every map of quantities in the object."""
    spec = _dict(data.get("spec"))
    if resource in {JOBS, PODS}:
        pod_spec = spec if resource is PODS else _dict(_dict(spec.get("template")).get("spec"))
        for group in ("initContainers", "containers"):
            for container in _list(pod_spec.get(group)):
                yield from _requirements(_dict(container).get("resources"))
        for volume in _list(pod_spec.get("volumes")):
            directory = _dict(_dict(volume).get("emptyDir"))
            if directory.get("sizeLimit") is not None:
                limit = {"sizeLimit": directory["sizeLimit"]}
                yield limit
                directory.update(limit)
    elif resource is QUOTAS:
        yield _dict(spec.get("hard"))
    elif resource is CLAIMS:
        yield from _requirements(spec.get("resources"))
    elif resource is NODES:
        status = _dict(data.get("status"))
        yield from (_dict(status.get(name)) for name in ("capacity", "allocatable"))


def _requirements(resources: Any) -> Iterator[dict[str, Any]]:
    yield from (_dict(_dict(resources).get(name)) for name in _LISTS)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
