"""The demo's stack: the embedded platform and an Airflow that is connected to it, remembered in a state file."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from standalone import Airflow, StackError

ROOT = Path(__file__).resolve().parents[2]
DAGS = ROOT / "dags_examples"
DIGITS = DAGS / "digits"
PROJECT = "digits"
GPUS = 16
"""GPUs that pods can ask for, so that pipelines written for a cluster are scheduled here too; nothing stands behind them."""
TORCH_PYTHON = Path("/usr/bin/python3")
"""Where Debian's python3-torch lives."""

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A running platform and Airflow."""

    folder: Path
    airflow: Airflow
    kept: bool = False
    """Whether `make up` has started it completely, to be left running."""

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and for the connection."""
        return self.folder / "platform" / "kubeconfig"

    @property
    def volume(self) -> Path:
        """The folder behind the demo's PersistentVolumeClaim."""
        return self.folder / "volume"


def load(folder: Path) -> Stack | None:
    """The stack that this folder's state file describes, whether it still runs or not."""
    try:
        data = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        return Stack(folder=folder, airflow=Airflow.from_dict(data["airflow"]), kept=data.get("kept", False))
    except (FileNotFoundError, ValueError, KeyError):
        return None


async def usable(folder: Path) -> Stack | None:
    """The stack that `make up` left running, if both of its parts answer."""
    stack = load(folder)
    if stack is None or not stack.kept or not await stack.airflow.answers():
        return None
    return stack if platform("status", folder, check=False) else None


def keep(stack: Stack) -> None:
    """Let later commands use this stack."""
    remember(replace(stack, kept=True))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one command at a time starts or owns the stack of a folder; the lock ends with its process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(
                "Another `make demo` or `make up` is at work here: wait for its end, or stop it with ctrl-C."
            ) from None
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let nothing interrupt the stopping of processes; the commands that it runs inherit this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


async def up(folder: Path, report: Report, *, dags: Path = DAGS, trainer: str = "auto") -> Stack:
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
        start_platform(stack, table)  # not in a thread: a cancelled wait would let it start after everything was stopped
        report("starting Airflow (about 25 seconds)")
        await airflow.ready(report)
    except BaseException:
        down(folder, report)
        raise
    return stack


def down(folder: Path, report: Report) -> bool:
    """Stop what ``up`` started in this folder, and nothing else; whether anything ran. Signals wait until it is done."""

    def tell(text: str) -> None:
        with suppress(OSError, SystemExit):  # the terminal or the pipe may be gone; rich ends the program then
            report(text)

    with undisturbed():
        stack = load(folder)
        airflow = stack is not None and stack.airflow.runs()
        if stack is not None and airflow:
            tell("stopping Airflow")
            stack.airflow.stop()
        cluster = (folder / "platform").exists() and platform("status", folder, check=False)
        if cluster:
            tell("stopping the embedded platform")
        if (folder / "platform").exists():
            platform("down", folder, check=False)  # also when it has died: pods may have outlived it
        (folder / "state.json").unlink(missing_ok=True)
    return airflow or cluster


def remember(stack: Stack) -> None:
    """Write the state file; it holds the demo's password, so only its owner may read it."""
    descriptor = os.open(stack.folder / "state.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({"airflow": stack.airflow.as_dict(), "kept": stack.kept}, file)


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
    arguments = ["--project", PROJECT, "--volume", f"demo-data={stack.volume}", "--images", str(table), "--gpus", str(GPUS)]
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


def platform(verb: str, folder: Path, *arguments: str, check: bool = True) -> bool:
    """Run `airflow-mlxp local <verb>` for this folder's platform; whether its exit code was 0."""
    binaries = Path(sys.executable).parent
    command = [str(binaries / "airflow-mlxp"), "local", verb, "--dir", str(folder / "platform"), *arguments]
    env = os.environ | {"PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}  # pods get this `python`
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=env)
    if check and answer.returncode:
        raise StackError(f"The embedded platform did not start.\n{answer.stdout[-4000:]}{answer.stderr[-4000:]}")
    return answer.returncode == 0
