"""A DAG file pays only for what it names."""

import os
import subprocess
import sys

HEAVY = {"aiohttp", "kubernetes", "kubernetes_asyncio", "fastapi", "airflow.providers.cncf", "airflow.triggers"}

DAG_FILE = """
from airflow.sdk import DAG
from airflow_mlxp import Elastic, MLXPJobOperator, MLXPPyTorchJobOperator
with DAG("d"):
    MLXPJobOperator(task_id="a", image="i", args=["{{ ds }}"], manifest="spec: {}") >> MLXPPyTorchJobOperator(
        task_id="b", image="i", workers=2, gpus=1, elastic=Elastic(max_restarts=1))
"""


def _loaded(code: str, home: str, before: str = "") -> set[str]:
    script = f"import sys\n{before}\nbefore = set(sys.modules)\n{code}\nprint('\\n'.join(set(sys.modules) - before))"
    environment = {**os.environ, "AIRFLOW_HOME": home}
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    return set(answer.stdout.split())


def _heavy(modules: set[str]) -> set[str]:
    return {name for name in modules for prefix in HEAVY if name == prefix or name.startswith(f"{prefix}.")}


def test_a_dag_file_loads_no_client_library(tmp_path) -> None:
    assert not _heavy(_loaded(DAG_FILE, str(tmp_path), before="import airflow.sdk; airflow.sdk.BaseOperator; airflow.sdk.DAG"))


def test_importing_the_package_loads_nothing_of_airflow(tmp_path) -> None:
    assert not {name for name in _loaded("import airflow_mlxp", str(tmp_path)) if name.split(".")[0] == "airflow"}


def test_the_plugin_loads_no_web_framework(tmp_path) -> None:
    assert not _heavy(_loaded("import airflow_mlxp.plugin", str(tmp_path), before="import airflow.plugins_manager"))
