"""What Airflow reads of this provider: connection type, operators, triggers, configuration."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Provider metadata, see Airflow's provider_info schema."""
    return {
        "package-name": "airflow-mlxp",
        "name": "MLXP",
        "description": "Kubernetes Jobs and Kubeflow PyTorchJobs on an ML platform (NAVER Cloud MLXP).",
        "versions": ["0.1.0"],
    }
