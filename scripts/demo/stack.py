"""The demo's stack: the embedded platform and an Airflow that is connected to it, remembered in a state file."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standalone import Airflow, StackError

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "dags_examples" / "digits"
PROJECT = "digits"
TORCH_PYTHON = Path("/usr/bin/python3")
"""Where Debian's python3-torch lives."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running platform and Airflow."""

    folder: Path
    airflow: Airflow

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and for the connection."""
        return self.folder / "platform" / "kubeconfig"

    @property
    def volume(self) -> Path:
        """The folder behind the demo's PersistentVolumeClaim."""
        return self.folder / "volume"


def load(folder: Path) -> Stack | None:
    """The stack that this folder's state file describes, if its Airflow still runs."""
    try:
        data = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    stack = Stack(folder=folder, airflow=Airflow.from_dict(data["airflow"]))
    return stack if stack.airflow.process.get() else None


async def up(folder: Path, report: Report, *, dags: Path = ROOT / "dags_examples", trainer: str = "auto") -> Stack:
    """Start platform and Airflow with an empty history; StackError says which part failed and shows its log's end.

    ``trainer`` is ``torch``, ``numpy``, or ``auto``: PyTorch where a Python of this machine can import it.
    """
    await asyncio.to_thread(down, folder, lambda _: None)
    folder.mkdir(parents=True, exist_ok=True)
    table = await asyncio.to_thread(images, folder, trainer)
    report("starting the embedded platform")
    shutil.rmtree(folder / "airflow", ignore_errors=True)
    airflow = Airflow.launch(folder / "airflow", dags=dags, env=connection(folder), port=8080)
    stack = Stack(folder=folder, airflow=airflow)
    try:
        remember(stack)
        await asyncio.to_thread(start_platform, stack, table)
        report("starting Airflow (about 25 seconds)")
        await airflow.ready()
    except BaseException:
        await asyncio.to_thread(down, folder, report)
        raise
    return stack


def down(folder: Path, report: Report) -> None:
    """Stop what ``up`` started in this folder, and nothing else."""
    stack = load(folder)
    if stack is not None:
        report("stopping Airflow")
        stack.airflow.stop()
    if (folder / "platform").exists():
        report("stopping the embedded platform")
        platform("down", folder, check=False)
    (folder / "state.json").unlink(missing_ok=True)


def remember(stack: Stack) -> None:
    """Write the state file; it holds the demo's password, so only its owner may read it."""
    descriptor = os.open(stack.folder / "state.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({"airflow": stack.airflow.as_dict()}, file)


def connection(folder: Path) -> dict[str, str]:
    """Environment that makes the platform the connection ``mlxp_default``."""
    extra = {"project": PROJECT, "kube_config_path": str(folder / "platform" / "kubeconfig")}
    return {"AIRFLOW_CONN_MLXP_DEFAULT": json.dumps({"conn_type": "mlxp", "extra": extra})}


def torch_python() -> Path | None:
    """A Python that can import PyTorch: the demo's own, or the system's."""
    for python in (Path(sys.executable), TORCH_PYTHON):
        probe = [str(python), "-c", "import torch.distributed, numpy; assert torch.distributed.is_gloo_available()"]
        try:
            answer = subprocess.run(probe, env={"PATH": os.defpath}, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0:
            return python
    return None


def start_platform(stack: Stack, table: Path) -> None:
    """Run `airflow-mlxp local up` with the demo's images and volume."""
    stack.volume.mkdir(parents=True, exist_ok=True)
    arguments = ["--project", PROJECT, "--volume", f"demo-data={stack.volume}", "--images", str(table)]
    platform("up", stack.folder, *arguments)


def images(folder: Path, trainer: str) -> Path:
    """Write the image table; StackError when PyTorch is asked for and no Python here has it."""
    python = None if trainer == "numpy" else torch_python()
    if trainer == "torch" and python is None:
        raise StackError(
            f"Neither {sys.executable} nor {TORCH_PYTHON} can import torch: install python3-torch, or use --trainer numpy"
        )
    train: dict[str, Any] = {"name": "demo/digits-train:*", "path": str(DIGITS / ("train_torch" if python else "train_numpy"))}
    if python == TORCH_PYTHON:
        # Debian's PyTorch needs Debian's Python and NumPy, and on Python 3.11 torchrun's default for output fails.
        train |= {"clean_env": True, "env": {"PET_REDIRECTS": "1", "PET_TEE": "1"}}
    table = [{"name": "demo/digits:*", "path": str(DIGITS / "bin")}, train]
    path = folder / "images.json"
    path.write_text(json.dumps(table, indent=2), encoding="utf-8")
    return path


def platform(verb: str, folder: Path, *arguments: str, check: bool = True) -> None:
    """Run `airflow-mlxp local <verb>` for this folder's platform."""
    binaries = Path(sys.executable).parent
    command = [str(binaries / "airflow-mlxp"), "local", verb, "--dir", str(folder / "platform"), *arguments]
    env = os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}  # pods get this `python`
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env)
    if check and answer.returncode:
        raise StackError(f"The embedded platform did not start.\n{answer.stdout[-4000:]}{answer.stderr[-4000:]}")
