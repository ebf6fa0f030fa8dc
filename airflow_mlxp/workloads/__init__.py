"""The workload kinds, one file each. Everything else knows kinds only through this registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.workloads.job import JOB
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

if TYPE_CHECKING:
    from airflow_mlxp.workloads.base import Workload

_KINDS: tuple[Workload, ...] = (JOB, PYTORCHJOB)
_BY_NAME: dict[str, Workload] = {workload.kind: workload for workload in _KINDS}


def all_workloads() -> tuple[Workload, ...]:
    """Every kind that the package runs and waits for."""
    return _KINDS


def get(kind: str) -> Workload:
    """The kind with this name, spelt as in manifests.

    Raises:
        InvalidArgument: there is no such kind, or it is spelt differently.
    """
    workload = _BY_NAME.get(kind)
    if workload is None:
        raise InvalidArgument("kind", kind, expected=" or ".join(_BY_NAME))
    return workload
