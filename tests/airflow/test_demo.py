"""The demo as a newcomer runs it, and what its run leaves in a real Airflow."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.standalone import AirflowAPI, text_of, until

import stack as stacks  # isort: skip - tests.support.standalone puts scripts/demo on the path

ROOT = Path(__file__).resolve().parents[2]
DAG_ID = "retrain_digits"

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that know this folder: by command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            texts = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in text for text in texts):
            found.append(process)
    return found


def demo(*arguments: str, folder: Path) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "demo"), *arguments, "--dir", str(folder)]


def test_interrupted_twice_it_stops_everything_first(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = demo("up", "--trainer", "numpy", folder=folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "• starting the embedded platform\n"
        process.send_signal(signal.SIGTERM)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "stopping Airflow" in line:
                os.killpg(process.pid, signal.SIGINT)
    assert process.returncode == 130, lines
    assert lines[-1] == "stopped\n"
    assert processes_of(folder) == []


def test_second_command_in_the_folder_is_refused(tmp_path: Path) -> None:
    with stacks.alone(tmp_path):
        answer = subprocess.run(demo("run", folder=tmp_path), capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 1
    assert "Another `make demo` or `make up` is at work here" in answer.stdout


@pytest.mark.skipif(stacks.torch_python() is None, reason="no Python here can import torch: apt install python3-torch")
def test_command_trains_with_torchrun_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = demo("run", "--trainer", "torch", folder=folder)
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=500)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "accuracy 0.9" in answer.stdout
    assert list((folder / "volume" / "models").glob("*/weights.npz"))
    assert processes_of(folder) == []


async def test_run_without_torch_in_airflow(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    stack = await stacks.up(folder, print, trainer="numpy")
    try:
        async with AirflowAPI(stack.airflow) as api:
            await api.wait_for_dag(DAG_ID)
            await a_whole_run(api, stack)
            await the_gate_stops_a_bad_model(api, stack)
    finally:
        await asyncio.to_thread(stacks.down, folder, print)
    assert processes_of(folder) == []


async def a_whole_run(api: AirflowAPI, stack: stacks.Stack) -> None:
    run = await api.trigger(DAG_ID, {"epochs": 400})

    async def trains_while_deferred() -> bool:
        log = text_of(await api.log(DAG_ID, run, "train")) if await state_of(api, run, "train") == "deferred" else ""
        return "[worker-0] epoch" in log and "[worker-1] epoch" in log and await state_of(api, run, "train") == "deferred"

    await until(trains_while_deferred, seconds=150, what="epochs of both workers in the log of the deferred task")
    assert await end_of(api, run) == "success"

    log = text_of(await api.log(DAG_ID, run, "train"))
    for worker in ("worker-0", "worker-1"):
        epochs = [line.split()[2] for line in log.splitlines() if line.startswith(f"[{worker}] epoch")]
        assert epochs == [f"{number}/400" for number in range(1, 401)]
    assert (await api.xcom(DAG_ID, run, "prepare")) == {"train_images": 1437, "test_images": 360}
    assert (await api.xcom(DAG_ID, run, "train"))["world_size"] == 2
    assert (await api.xcom(DAG_ID, run, "evaluate"))["accuracy"] >= 0.9
    published = await api.xcom(DAG_ID, run, "publish")
    assert (stack.volume / published["path"]).is_file()
    facts = await api.xcom(DAG_ID, run, "train", "workload")
    assert (facts["kind"], facts["namespace"]) == ("PyTorchJob", "p-digits")
    assert facts["timings"]["finished"] >= facts["timings"]["started"]


async def the_gate_stops_a_bad_model(api: AirflowAPI, stack: stacks.Stack) -> None:
    published = sorted((stack.volume / "models").iterdir())
    run = await api.trigger(DAG_ID, {"epochs": 1, "minimum_accuracy": 1.0})
    assert await end_of(api, run) == "success"
    assert await state_of(api, run, "publish") == "skipped"
    assert sorted((stack.volume / "models").iterdir()) == published


async def state_of(api: AirflowAPI, run: str, task_id: str) -> str | None:
    return next(task["state"] for task in await api.tasks(DAG_ID, run) if task["task_id"] == task_id)


async def end_of(api: AirflowAPI, run: str) -> Any:
    async def ended() -> str | None:
        state = await api.run_state(DAG_ID, run)
        return state if state in {"success", "failed"} else None

    return await until(ended, seconds=240, what="the end of the run")
