"""The Airflow plugin."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class MLXPPlugin(AirflowPlugin):
    """Registers this package with Airflow."""

    name = "airflow_mlxp"
