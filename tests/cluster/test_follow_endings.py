"""When following ends, and with what: the decision alone, at given times."""

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.cluster.endings import Cause, FollowOptions, Judge
from airflow_mlxp.cluster.state import WorkloadState
from tests.support.objects import RUNNING, a_job, a_pytorchjob, a_worker, at, ended, seen

SUCCEEDED, FAILED, RUNS = ("Succeeded", "True", 60), ("Failed", "True", 60), ("Running", "True")


def look(*observations, seconds=61, kind="PyTorchJob", **options):
    state = WorkloadState(workloads.get(kind))
    for each in observations:
        state.update(each)
    return Judge(state, FollowOptions(**options)).look(at(seconds))


def cause(*observations, **options):
    found = look(*observations, **options)
    return found.ending.cause if found.ending else None


def test_waits_for_the_worker_that_still_writes_its_checkpoint():
    draining = seen(a_pytorchjob(SUCCEEDED), a_worker(0, ended(0)), a_worker(1, RUNNING))
    found = look(draining)
    assert found.ending is None
    assert found.draining == ("worker-1",)
    assert cause(draining, seen(a_pytorchjob(SUCCEEDED), a_worker(0, ended(0)), a_worker(1, ended(0)))) is Cause.SUCCEEDED


def test_the_drain_limit_counts_from_the_condition_so_that_a_new_process_agrees():
    draining = seen(a_pytorchjob(SUCCEEDED), a_worker(0, ended(0)), a_worker(1, RUNNING))
    assert look(draining, seconds=90, drain_timeout=40).again_in == pytest.approx(10, abs=0.1)
    assert cause(draining, seconds=100, drain_timeout=40) is Cause.PARTIAL_FAILURE
    assert cause(draining, seconds=100, drain_timeout=40, success_policy="any") is Cause.SUCCEEDED


def test_the_tasks_own_time_bounds_the_drain():
    draining = seen(a_pytorchjob(SUCCEEDED), a_worker(0, ended(0)), a_worker(1, RUNNING))
    assert look(draining, seconds=62, timeout=80).drain_limit == 20
    assert cause(draining, seconds=80, timeout=80) is Cause.PARTIAL_FAILURE


def test_a_worker_that_fails_after_the_condition_fails_the_whole():
    assert cause(seen(a_pytorchjob(SUCCEEDED), a_worker(0, ended(0)), a_worker(1, ended(1)))) is Cause.PARTIAL_FAILURE


def test_failed_wins_over_succeeded():
    assert cause(seen(a_pytorchjob(SUCCEEDED, FAILED), a_worker(0, ended(0)), a_worker(1, ended(1)))) is Cause.FAILED


def test_a_jobs_condition_is_sufficient():
    assert cause(seen(a_job(("Complete", "True"))), kind="Job") is Cause.SUCCEEDED


def test_a_replica_may_restart_as_often_as_it_is_allowed():
    def crashed(times):
        return seen(a_pytorchjob(RUNS), a_worker(0, RUNNING, restarts=times, last=ended(1)), a_worker(1, RUNNING, restarts=2))

    assert cause(crashed(3), container_restarts=3) is None
    assert cause(crashed(4), container_restarts=3) is Cause.CONTAINER_RESTARTS
    assert cause(crashed(4)) is None, "no limit unless one is given"


def test_a_pod_that_was_created_anew_counts_as_a_restart():
    evicted = a_worker(0, ended(1), uid="first")
    anew = seen(a_pytorchjob(RUNS), a_worker(0, RUNNING, uid="second"), removed=[evicted])
    assert cause(anew, container_restarts=0) is Cause.CONTAINER_RESTARTS


def test_deadlines_count_from_creation():
    runs = seen(a_pytorchjob(RUNS), a_worker(0, RUNNING), a_worker(1, RUNNING))
    assert look(runs, seconds=90, timeout=100).again_in == pytest.approx(10, abs=0.1)
    assert cause(runs, seconds=100, timeout=100) is Cause.TIMEOUT


def test_a_start_needs_every_replica_or_as_many_as_the_least():
    half = (a_worker(0, RUNNING), a_worker(1))
    assert cause(seen(a_pytorchjob(RUNS), *half), start_timeout=60) is Cause.START_TIMEOUT
    assert cause(seen(a_pytorchjob(RUNS, elastic=(1, 2)), *half), start_timeout=60) is None
    assert cause(seen(a_pytorchjob(RUNS), a_worker(0, RUNNING), a_worker(1, RUNNING)), start_timeout=60) is None


def test_a_queue_that_holds_it_back_does_not_use_up_the_time_to_start():
    suspended = seen(a_pytorchjob(("Suspended", "True"), runPolicy={"suspend": True}))
    assert look(suspended, start_timeout=10) == look(suspended), "no moment to wait for"
    resumed = seen(a_pytorchjob(("Suspended", "False", 100), runPolicy={"suspend": False}))
    assert cause(resumed, seconds=105, start_timeout=10) is None
    assert cause(resumed, seconds=111, start_timeout=10) is Cause.START_TIMEOUT


def test_a_workload_that_vanished():
    assert cause(seen(a_pytorchjob(RUNS)), seen(None)) is Cause.DELETED
    assert cause(seen(None)) is Cause.EXPIRED, "it was over and gone before we looked"


def test_a_ttl_that_runs_out_while_we_look_away_loses_no_success():
    pods = [a_worker(0, ended(0)), a_worker(1, ended(0))]
    assert cause(seen(a_pytorchjob(SUCCEEDED), *pods), seen(None, removed=pods)) is Cause.SUCCEEDED


def test_nothing_but_a_change_matters_without_limits():
    found = look(seen(a_pytorchjob(RUNS), a_worker(0, RUNNING), a_worker(1, RUNNING)))
    assert (found.ending, found.again_in, found.overdue) == (None, None, False)


def test_what_does_not_start_is_looked_at_again_after_a_minute():
    waiting = seen(a_pytorchjob())
    assert (look(waiting, seconds=50).again_in, look(waiting, seconds=50).overdue) == (pytest.approx(10, abs=0.1), False)
    assert look(waiting, seconds=60).overdue
