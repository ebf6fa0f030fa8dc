"""``airflow-mlxp local`` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from airflow_mlxp.local.state import StateFolder

COMMAND = [str(Path(sys.executable).parent / "airflow-mlxp"), "local"]


def local(folder, verb, *options, expect=0):
    result = subprocess.run(
        [*COMMAND, verb, "--dir", str(folder), *options], capture_output=True, text=True, timeout=90, check=False
    )
    assert result.returncode == expect, result.stdout + result.stderr
    return result.stdout + result.stderr


def is_running(pid):
    """A process that nobody has collected yet (a zombie) doesn't run."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "state"
    local(tmp_path / "state", "down")


def test_up_twice_status_down(folder):
    text = local(folder, "up", "--project", "vision", "--volume", "data")
    assert f"export KUBECONFIG={folder}/kubeconfig" in text
    assert "p-vision" in text
    assert (folder / "kubeconfig").stat().st_mode & 0o777 == 0o600
    report = json.loads(local(folder, "status", "--output", "json"))
    assert report["running"]
    assert report["namespaces"] == ["p-vision"]
    again = local(folder, "up", "--project", "vision", "--volume", "data")
    assert f"runs already (process {report['pid']})" in again
    assert "other options" not in again
    assert "other options" in local(folder, "up", "--gpus", "8")
    assert "is stopped" in local(folder, "down")
    assert not is_running(report["pid"])
    assert json.loads(local(folder, "status", "--output", "json", expect=1))["running"] is False
    assert "No platform is running" in local(folder, "down")


def test_failed_start_says_why(folder):
    assert "--image='broken': expected NAME=FOLDER" in local(folder, "up", "--image", "broken", expect=2)
    assert "Invalid" in local(folder, "up", "--project", "Not_A_Name", expect=2)
    local(folder, "status", expect=1)


def a_sleeper(folder):
    """A pod that runs on the platform; the id of its first process."""
    job = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleeper"},
        "spec": {"containers": [{"name": "main", "image": "i", "command": ["sleep", "64"]}]},
    }
    kubectl = ["kubectl", "--kubeconfig", str(folder / "kubeconfig")]
    subprocess.run([*kubectl, "create", "-f", "-"], input=json.dumps(job), text=True, check=True, timeout=60)
    subprocess.run([*kubectl, "wait", "--for=condition=ready", "pod/sleeper", "--timeout=30s"], check=True, timeout=60)
    (record,) = (folder / "processes").glob("*.json")
    return json.loads(record.read_text())["pid"]


def test_pods_of_a_killed_platform_are_killed_by_the_next_command(folder):
    local(folder, "up")
    pid = a_sleeper(folder)
    record = StateFolder(folder).running()
    os.kill(record.pid, signal.SIGKILL)
    psutil.Process(record.pid).wait(10)
    assert is_running(pid)
    local(folder, "up")
    assert not is_running(pid)


def test_foreground_ends_with_ctrl_c(folder):
    command = [*COMMAND, "up", "--foreground", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith("kubeconfig: ")
        pid = a_sleeper(folder)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "is stopped" in rest
    assert not is_running(pid)


@pytest.mark.parametrize("foreground", [(), ("--foreground",)])
def test_a_folder_that_cannot_be_used_is_told_in_one_line(tmp_path, foreground):
    (tmp_path / "file").touch()
    text = local(tmp_path / "file/state", "up", *foreground, expect=2)
    assert "Not a directory" in text
    assert "Traceback" not in text


def test_what_is_printed_can_be_pasted(tmp_path):
    folder = tmp_path / ("my state 데이터 " + "x" * 120)
    try:
        text = local(folder, "up")
        export, _, down = [line for line in text.splitlines() if line.startswith("  ")]
        script = f"{export}; printenv KUBECONFIG; cd /; PATH={Path(COMMAND[0]).parent}:$PATH; {down}"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines() == [f"{folder}/kubeconfig", "The platform is stopped."]
    finally:
        local(folder, "down")
