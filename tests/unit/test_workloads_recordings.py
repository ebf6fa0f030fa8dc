"""What the package reads from the recordings of a real control plane (tests/golden/recordings)."""

from __future__ import annotations

import pytest

from airflow_mlxp.models import Phase
from airflow_mlxp.workloads.verdict import State
from tests.support import replay


@pytest.mark.parametrize("case", replay.cases())
def test_recording_reads_as_in_its_golden_file(case):
    assert replay.transcript(case) == (replay.RECORDINGS / f"{case}.txt").read_text()


def test_all_twenty_recordings_are_there():
    assert len(replay.cases()) == 20


@pytest.mark.parametrize(
    ("case", "state"),
    [
        ("job-deadline-exceeded", State.FAILED),
        ("job-deleted-while-running", State.GONE),
        ("job-failed-backoff-limit", State.FAILED),
        ("job-parallel-indexed", State.SUCCEEDED),
        ("job-success", State.SUCCEEDED),
        ("job-suspended-then-resumed", State.SUCCEEDED),
        ("job-ttl", State.GONE),
        ("pytorchjob-backoff-limit", State.FAILED),
        ("pytorchjob-clean-pod-policy-running", State.SUCCEEDED),
        ("pytorchjob-elastic-first-done-other-fails", State.PARTIAL_FAILURE),
        ("pytorchjob-elastic-first-worker-done", State.SUCCEEDED),
        ("pytorchjob-elastic-success", State.SUCCEEDED),
        ("pytorchjob-exit-code-permanent", State.FAILED),
        ("pytorchjob-image-pull-backoff", State.UNFINISHED),
        ("pytorchjob-master-and-workers", State.SUCCEEDED),
        ("pytorchjob-quota-exceeded", State.SUCCEEDED),
        ("pytorchjob-suspended-while-running-then-resumed", State.SUCCEEDED),
        ("pytorchjob-ttl", State.GONE),
        ("pytorchjob-worker-fails-never", State.FAILED),
        ("pytorchjob-worker-restarts-once-then-succeeds", State.SUCCEEDED),
    ],
)
def test_final_verdict(case, state):
    assert replay.run(case).verdict.state is state


@pytest.mark.parametrize("case", replay.cases())
def test_a_terminal_phase_is_never_left_but_by_vanishing(case):
    recording, seen = replay.start(case), None
    for event in replay.load(case):
        recording.feed(event)
        if seen:
            assert recording.phase in {seen, Phase.GONE}
        seen = recording.phase if recording.phase.is_terminal else None


def test_first_worker_done_is_no_end_while_the_other_runs():
    judged = replay.run("pytorchjob-elastic-first-worker-done", until=14).verdict
    assert (judged.state, judged.left) == (State.DRAINING, ("worker-1",))


def test_replicas_run_though_the_operator_writes_no_status_while_quota_refuses_one():
    recording = replay.run("pytorchjob-quota-exceeded", until=3)
    assert recording.workload.phase_of(recording.obj) is Phase.PENDING
    assert recording.phase is Phase.RUNNING


def test_pods_deleted_by_suspension_are_no_restarts():
    recording = replay.run("pytorchjob-suspended-while-running-then-resumed")
    assert recording.restarts == {"worker-0": 0, "worker-1": 0}
