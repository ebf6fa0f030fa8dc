"""The wheel, installed into a fresh virtual environment, is what Airflow sees as provider and plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


def run(*command: str | Path, **env: str) -> str:
    """Output of a command that has to succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "VIRTUAL_ENV", "PYTHON"))}
    answer = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, env=clean | env)
    assert answer.returncode == 0, f"{command}: {answer.stdout}{answer.stderr}"
    return answer.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds only the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraints", ROOT / "constraints.txt", wheel)
    return python.parent


def test_wheel_brings_all_that_it_imports(installed: Path) -> None:
    names = run(installed / "python", "-c", "import airflow_mlxp as m; print([getattr(m, n).__name__ for n in m._EXPORTS])")
    assert "MLXPPyTorchJobOperator" in names


def test_wheel_holds_the_schemas_and_the_type_marker(installed: Path) -> None:
    code = (
        "from importlib.resources import files; r = files('airflow_mlxp');"
        "print([p.name for p in r.joinpath('schemas').iterdir()], r.joinpath('py.typed').is_file())"
    )
    answer = run(installed / "python", "-c", code)
    assert "pytorchjob.json" in answer
    assert "job.json" in answer
    assert answer.strip().endswith("True")


def test_command_line_is_installed(installed: Path) -> None:
    assert "local" in run(installed / "airflow-mlxp", "--help")


def test_airflow_lists_provider_hook_trigger_and_plugin(installed: Path, tmp_path: Path) -> None:
    airflow, home = installed / "airflow", str(tmp_path)
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"

    def listed(*command: str) -> list[dict[str, str]]:
        return list(json.loads(run(airflow, *command, "--output", "json", AIRFLOW_HOME=home, PATH=path)))

    assert any(row["package_name"] == "airflow-mlxp" for row in listed("providers", "list"))
    assert any(row["connection_type"] == "mlxp" for row in listed("providers", "hooks"))
    assert any("airflow_mlxp" in json.dumps(row) for row in listed("providers", "triggers"))
    assert any("airflow_mlxp" in json.dumps(row) for row in listed("plugins"))
