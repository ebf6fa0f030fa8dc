"""How events read in a task's log."""

import pytest

from airflow_mlxp.models import (
    Event,
    LogLine,
    LogLines,
    Phase,
    PhaseChanged,
    ReplicaChanged,
    ReplicaPhase,
    ReplicaStatus,
    Warned,
    WorkloadRef,
)
from airflow_mlxp.triggers.report import record

REF = WorkloadRef(kind="PyTorchJob", namespace="n", name="train", uid="u")


def status(**changed: object) -> ReplicaStatus:
    fields = {"replica": "worker-1", "pod": "train-worker-1", "pod_uid": "p", "phase": ReplicaPhase.RUNNING}
    return ReplicaStatus(**(fields | changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "text", "warning"),
    [
        (PhaseChanged(phase=Phase.RUNNING, reason="PyTorchJobRunning", message="it runs"), "PyTorchJob train: Running", False),
        (
            PhaseChanged(phase=Phase.FAILED, reason="BackoffLimitExceeded", message="too often"),
            "PyTorchJob train: Failed (BackoffLimitExceeded: too often)",
            True,
        ),
        (ReplicaChanged(replica=status(node="node-3")), "worker-1: Running on node-3", False),
        (
            ReplicaChanged(replica=status(phase=ReplicaPhase.PENDING, reason="ImagePullBackOff", message="no such image")),
            "worker-1: Pending (ImagePullBackOff: no such image)",
            False,
        ),
        (
            ReplicaChanged(replica=status(phase=ReplicaPhase.FAILED, exit_code=137, ended=True, reason="OOMKilled", node="x")),
            "worker-1: exit code 137 (OOMKilled)",
            True,
        ),
        (
            ReplicaChanged(replica=status(restarts=2, exit_code=1, node="x", reason="CrashLoopBackOff", message="back-off 10s")),
            "worker-1: Running on x, last exit code 1, restarts: 2 (CrashLoopBackOff: back-off 10s)",
            True,
        ),
        (
            ReplicaChanged(replica=status(exit_code=1, ended=True, reason="Error", message="KeyError: 'rank'\n=====\n")),
            "worker-1: exit code 1 (KeyError: 'rank')",
            True,
        ),
        (
            ReplicaChanged(replica=status(phase=ReplicaPhase.SUCCEEDED, exit_code=0, ended=True, reason="Completed")),
            "worker-1: exit code 0",
            False,
        ),
        (Warned(reason="Unschedulable", message="no GPU"), "Unschedulable: no GPU", True),
    ],
)
def test_state_changes_are_one_line(event: Event, text: str, warning: bool) -> None:
    found = record(event, REF)
    assert found is not None
    assert (found.text, found.warning) == (text, warning)


def test_lines_carry_replica_pod_and_the_pods_time() -> None:
    lines = (LogLine(time="2026-01-02T03:04:05.123456789Z", text="epoch 1"), LogLine(time="2026-01-02T03:04:06Z", text=""))
    found = record(LogLines(replica="worker-1", pod="train-worker-1", container="pytorch", lines=lines), REF)
    assert found is not None
    assert found.text == "[worker-1] epoch 1\n[worker-1] "
    assert found.fields == {"replica": "worker-1", "pod": "train-worker-1", "timestamp": "2026-01-02T03:04:05.123456Z"}


def test_lines_without_a_time_take_the_time_of_writing() -> None:
    found = record(LogLines(replica="0", pod="p", container="main", lines=(LogLine(time="", text="x"),)), REF)
    assert found is not None
    assert "timestamp" not in found.fields
