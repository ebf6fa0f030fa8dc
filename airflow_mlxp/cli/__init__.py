"""The `airflow-mlxp` command."""
