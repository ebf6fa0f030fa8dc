"""What Airflow reads of this provider: connection type, operators, triggers, configuration."""

from __future__ import annotations

from typing import Any

from airflow_mlxp import __version__, connection

_INTEGRATION = "MLXP"


def get_provider_info() -> dict[str, Any]:
    """Provider metadata, see Airflow's ``provider_info`` schema. Imports nothing of Airflow: every component calls it."""
    return {
        "package-name": "airflow-mlxp",
        "name": "MLXP",
        "description": "Kubernetes Jobs and Kubeflow PyTorchJobs on an ML platform (NAVER Cloud MLXP).",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://guide.ncloud-docs.com/docs/en/ai-mlxp-pkubectlstudy",
                "tags": ["service"],
            }
        ],
        "operators": [_modules("airflow_mlxp.operators.job", "airflow_mlxp.operators.pytorchjob")],
        "hooks": [_modules("airflow_mlxp.hooks.mlxp")],
        "triggers": [_modules("airflow_mlxp.triggers.workload")],
        "connection-types": [
            {
                "connection-type": connection.CONN_TYPE,
                "hook-class-name": "airflow_mlxp.hooks.mlxp.MLXPHook",
                "hook-name": connection.HOOK_NAME,
                "ui-field-behaviour": connection.field_behaviour(),
                "conn-fields": connection.form_fields(),
            }
        ],
        "config": {"mlxp": {"description": "Settings of the provider airflow-mlxp.", "options": _options()}},
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": list(names)}


def _options() -> dict[str, dict[str, Any]]:
    return {
        "instance": _option(
            "Name of this Airflow deployment. Workloads carry it as a label, so that one deployment can tell its workloads from"
            " those of another that knows the same cluster, also when its database is a copy. Empty: workloads are told apart by"
            " the start of the DAG run alone.",
            kind="string",
            default="",
            example="production",
        ),
        "allow_exec_in_connection": _option(
            "Whether a kubeconfig typed into a connection may name a program that fetches credentials. Whoever may edit"
            " connections could then run programs in workers and triggerers. Kubeconfig files of the deployment always may.",
            kind="boolean",
            default="False",
            example="True",
        ),
    }


def _option(description: str, *, kind: str, default: str, example: str) -> dict[str, Any]:
    return {"description": description, "version_added": "0.1.0", "type": kind, "default": default, "example": example}
