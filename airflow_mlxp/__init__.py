"""Train models from Apache Airflow: Kubernetes Jobs and Kubeflow PyTorchJobs as tasks.

Public names are imported on first use, so that a DAG file pays only for what it names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_mlxp.hooks.mlxp import MLXPHook as MLXPHook
    from airflow_mlxp.manifests.elastic import Elastic as Elastic
    from airflow_mlxp.manifests.spec import SchedulingPolicy as SchedulingPolicy
    from airflow_mlxp.manifests.spec import Volume as Volume
    from airflow_mlxp.operators.job import MLXPJobOperator as MLXPJobOperator
    from airflow_mlxp.operators.pytorchjob import MLXPPyTorchJobOperator as MLXPPyTorchJobOperator
    from airflow_mlxp.triggers.workload import MLXPWorkloadTrigger as MLXPWorkloadTrigger

__version__ = "0.1.0"

_EXPORTS = {
    "Elastic": "airflow_mlxp.manifests.elastic",
    "MLXPHook": "airflow_mlxp.hooks.mlxp",
    "MLXPJobOperator": "airflow_mlxp.operators.job",
    "MLXPPyTorchJobOperator": "airflow_mlxp.operators.pytorchjob",
    "MLXPWorkloadTrigger": "airflow_mlxp.triggers.workload",
    "SchedulingPolicy": "airflow_mlxp.manifests.spec",
    "Volume": "airflow_mlxp.manifests.spec",
}

__all__ = [
    "Elastic",
    "MLXPHook",
    "MLXPJobOperator",
    "MLXPPyTorchJobOperator",
    "MLXPWorkloadTrigger",
    "SchedulingPolicy",
    "Volume",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use and keep it."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
