"""An AIRFLOW_HOME with a migrated SQLite database, and DAG files run in it by ``dag.test()`` in a process of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EPILOGUE = """
if __name__ == "__main__":
    import json, sys
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    run = dag.test()
    with create_session() as session:
        found = session.query(XComModel).filter_by(run_id=run.run_id)
        xcoms = [[xcom.task_id, xcom.key, XComModel.deserialize_value(xcom)] for xcom in found]
    states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
    print("OUTCOME " + json.dumps({"states": states, "xcoms": xcoms}), file=sys.__stdout__, flush=True)
"""


@dataclass(frozen=True)
class DagRun:
    """What became of a DAG file."""

    states: dict[str, str]
    xcoms: dict[tuple[str, str], Any]
    """By task id and key."""
    output: str
    """Everything that the process printed: the log of all tasks."""


def connection_environment(kubeconfig: Path, project: str = "demo") -> dict[str, str]:
    """The connection ``mlxp_default`` to a cluster."""
    extra = {"project": project, "kube_config_path": str(kubeconfig)}
    return {"AIRFLOW_CONN_MLXP_DEFAULT": json.dumps({"conn_type": "mlxp", "extra": extra})}


class AirflowHome:
    """One home; its DAG files see the connection ``mlxp_default``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dags = folder / "dags"
        self.dags.mkdir(parents=True)

    def migrate(self) -> None:
        """Make the database."""
        command = [str(Path(sys.executable).parent / "airflow"), "db", "migrate"]
        subprocess.run(command, env=self.environment(), check=True, capture_output=True)

    def environment(self, kubeconfig: Path | None = None, **more: str) -> dict[str, str]:
        """Environment of a process in this home."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            **(connection_environment(kubeconfig) if kubeconfig else {}),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **more,
        }

    def write(self, dag_id: str, source: str) -> Path:
        """Write a DAG file that binds ``dag``."""
        path = self.dags / f"{dag_id}.py"
        path.write_text(textwrap.dedent(source) + _EPILOGUE, encoding="utf-8")
        return path

    async def start(self, dag_id: str, source: str, *, kubeconfig: Path, **env: str) -> asyncio.subprocess.Process:
        """Begin ``dag.test()`` of a DAG file."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            str(self.write(dag_id, source)),
            env=self.environment(kubeconfig, **env),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, dag_id: str, source: str, *, kubeconfig: Path, **env: str) -> DagRun:
        """Run a DAG file by ``dag.test()``."""
        process = await self.start(dag_id, source, kubeconfig=kubeconfig, **env)
        raw, _ = await process.communicate()
        output = raw.decode(errors="replace")
        outcomes = [line.removeprefix("OUTCOME ") for line in output.splitlines() if line.startswith("OUTCOME ")]
        assert outcomes, output[-6000:]
        outcome = json.loads(outcomes[-1])
        return DagRun(outcome["states"], {(task, key): value for task, key, value in outcome["xcoms"]}, output)
