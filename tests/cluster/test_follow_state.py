"""What of a workload's changes is news: each change once, each cause once, in words for people."""

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.cluster.state import WorkloadState, cause_of
from airflow_mlxp.models import Phase, PhaseChanged, ReplicaChanged, Warned
from tests.support.objects import RUNNING, a_pytorchjob, a_warning, a_worker, ended, seen, stamp

PYTORCHJOB = workloads.get("PyTorchJob")
CREATED, RUNS = ("Created", "True"), ("Running", "True")


def phases(state, *observations):
    return [event.phase for each in observations for event in state.update(each) if isinstance(event, PhaseChanged)]


def warnings(state, *observations):
    return [event.message for each in observations for event in state.update(each) if isinstance(event, Warned)]


@pytest.fixture
def state():
    return WorkloadState(PYTORCHJOB)


def test_conditions_that_flap_give_one_line_for_each_change(state):
    restarting = a_pytorchjob(CREATED, ("Running", "False"), ("Restarting", "True"))
    done = a_pytorchjob(CREATED, ("Restarting", "False"), ("Running", "False"), ("Succeeded", "True"))
    runs = a_pytorchjob(CREATED, RUNS)
    told = phases(
        state, seen(a_pytorchjob(CREATED)), seen(runs), seen(runs), seen(restarting), seen(runs), seen(done), seen(done)
    )
    assert told == [Phase.CREATED, Phase.RUNNING, Phase.RESTARTING, Phase.RUNNING, Phase.SUCCEEDED]


def test_a_phase_is_told_with_the_reason_of_its_condition(state):
    (event,) = [event for event in state.update(seen(a_pytorchjob(CREATED, RUNS))) if isinstance(event, PhaseChanged)]
    assert (event.reason, event.message) == ("PyTorchJobRunning", "it is Running")
    assert event.at is not None
    assert event.at.strftime("%H:%M:%S") == "10:01:00"


def test_replicas_that_run_show_the_phase_while_quota_keeps_the_status_unwritten(state):
    message = 'Error creating: pods "train-worker-1" is forbidden: exceeded quota: normal-quota'
    events = state.update(seen(a_pytorchjob(), a_worker(0, RUNNING), events=(a_warning("FailedCreatePod", message),)))
    assert [event.phase for event in events if isinstance(event, PhaseChanged)] == [Phase.RUNNING]
    assert [event.message for event in events if isinstance(event, Warned)] == [message]


def test_one_line_for_a_cause_whose_numbers_change_and_another_for_another_cause(state):
    unschedulable = [a_warning("FailedScheduling", f"0/{n} nodes are available: {n} Insufficient cpu.") for n in range(1, 21)]
    storage = a_warning("FailedScheduling", "0/3 nodes are available: 3 node(s) had no volume.")
    told = warnings(state, *(seen(a_pytorchjob(CREATED), events=(event,)) for event in (*unschedulable, storage)))
    assert told == ["0/1 nodes are available: 1 Insufficient cpu.", "0/3 nodes are available: 3 node(s) had no volume."]


def test_names_of_pods_make_no_other_cause_but_names_of_what_is_missing_do():
    refused = 'pods "job-{}" is forbidden: exceeded quota: q'
    assert cause_of("FailedCreate", refused.format("x7k2p")) == cause_of("FailedCreate", refused.format("abcde"))
    backoff = "restarting failed container=main pod=train-{}_p-demo(c9416a07-47a5-4abb-a9b1-ab56d6f28b2{})"
    assert cause_of("BackOff", backoff.format("x7k2p", "0")) == cause_of("BackOff", backoff.format("abcde", "a"))
    assert cause_of("Failed", 'secret "a" not found') != cause_of("Failed", 'secret "b" not found')


def test_a_healthy_workloads_harmless_warning_is_not_told(state):
    harmless = a_warning("FailedCreateService", 'Error creating: services "train-worker-0" already exists')
    assert warnings(state, seen(a_pytorchjob(CREATED, RUNS), events=(harmless,))) == []


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Error", "Error pod train-worker-0 container pytorch exitCode: 1 terminated message: Traceback"),
        ("BackOff", "Back-off restarting failed container pytorch in pod train-worker-0_n(0)"),
    ],
)
def test_what_a_replicas_own_line_tells_is_not_repeated(state, reason, message):
    assert warnings(state, seen(a_pytorchjob(CREATED, RUNS), events=(a_warning(reason, message),))) == []


def test_an_interruption_is_told_once_and_so_is_its_end(state):
    down = seen(a_pytorchjob(CREATED), interrupted="connection refused")
    assert warnings(state, down, down, seen(a_pytorchjob(CREATED))) == [
        "connection refused",
        "the workload is being watched again",
    ]


def test_a_replica_is_told_when_something_changed_and_not_otherwise(state):
    crashed = a_worker(0, {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=1, last=ended(1), phase="Running")
    steps = [a_worker(0), a_worker(0, RUNNING), a_worker(0, RUNNING), crashed, a_worker(0, ended(0))]
    told = []
    for pod in steps:
        told += [e.replica for e in state.update(seen(a_pytorchjob(RUNS), pod)) if isinstance(e, ReplicaChanged)]
    assert [(status.phase, status.restarts, status.reason) for status in told] == [
        ("Pending", 0, ""),
        ("Running", 0, ""),
        ("Running", 1, "CrashLoopBackOff"),
        ("Succeeded", 0, "Completed"),
    ]


def test_reasons_for_waiting_that_alternate_are_told_once(state):
    def waits(reason):
        return seen(a_pytorchjob(CREATED), a_worker(0, {"waiting": {"reason": reason}}))

    steps = [waits("ErrImagePull"), waits("ImagePullBackOff")] * 3
    told = [event.replica.reason for each in steps for event in state.update(each) if isinstance(event, ReplicaChanged)]
    assert told == ["ErrImagePull", "ImagePullBackOff"]


def test_a_workload_that_vanishes_while_it_runs_is_gone_and_one_that_had_ended_is_not(state):
    assert phases(state, seen(a_pytorchjob(CREATED, RUNS)), seen(None)) == [Phase.RUNNING, Phase.GONE]
    finished = WorkloadState(PYTORCHJOB)
    assert phases(finished, seen(a_pytorchjob(("Succeeded", "True"))), seen(None)) == [Phase.SUCCEEDED]
    assert finished.has_ended


def test_pods_that_suspension_deleted_are_no_restarts(state):
    first, second = a_worker(0, RUNNING, uid="first"), a_worker(0, RUNNING, uid="second")
    suspended = a_pytorchjob(("Suspended", "True"), runPolicy={"suspend": True})
    state.update(seen(a_pytorchjob(RUNS), first))
    state.update(seen(suspended, removed=[first]))
    state.update(seen(a_pytorchjob(RUNS), second, removed=[first]))
    assert state.restarts() == {"worker-0": 0}


def test_results_are_the_messages_of_replicas_that_ended_well(state):
    state.update(
        seen(a_pytorchjob(RUNS), a_worker(0, ended(0, message='{"acc": 1}')), a_worker(1, ended(1, message="Traceback")))
    )
    assert state.results() == {"worker-0": '{"acc": 1}'}


def test_timings_are_server_times(state):
    state.update(seen(a_pytorchjob(("Succeeded", "True", 40)), a_worker(0, ended(0, seconds=30))))
    assert (state.timings().created, state.timings().started, state.timings().finished) == (stamp(0), stamp(5), stamp(40))


@pytest.mark.parametrize("text", ["", "yesterday", "2026-12-01"])
def test_times_that_are_none_don_t_disturb(state, text):
    obj = a_pytorchjob(RUNS)
    obj["status"]["conditions"][0]["lastTransitionTime"] = text
    assert phases(state, seen(obj)) == [Phase.RUNNING]


def test_a_pod_that_starts_as_it_should_is_pending_once(state):
    starts = [
        a_worker(0, {"waiting": {"reason": reason}}, phase="Pending") for reason in ("PodInitializing", "ContainerCreating")
    ]
    observations = [seen(a_pytorchjob(CREATED), pod) for pod in (*starts, a_worker(0, RUNNING))]
    told = [
        str(event.replica.phase) for each in observations for event in state.update(each) if isinstance(event, ReplicaChanged)
    ]
    assert told == ["Pending", "Running"]


def test_a_container_that_could_not_be_started_bears_no_start(state):
    never = {"terminated": {"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z"}}
    state.update(seen(a_pytorchjob(CREATED), a_worker(0, never, phase="Failed")))
    assert not state.timings().started.startswith("1970")


def test_the_start_is_the_first_one_and_not_that_of_the_last_restart(state):
    pod = a_worker(0, RUNNING, restarts=2)
    pod["status"]["startTime"] = stamp(1)
    state.update(seen(a_pytorchjob(CREATED, RUNS), pod))
    assert state.timings().started == stamp(1)
