"""Replicas from pods, restarts, and when a Succeeded workload has really succeeded."""

from __future__ import annotations

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.models import Phase, ReplicaPhase
from airflow_mlxp.workloads.replicas import current_replicas, effective_phase, replica_status, restart_counts, result_of
from airflow_mlxp.workloads.verdict import State, verdict
from tests.support.builders import a_condition, a_job, a_pod, a_pytorchjob, ended, running, waiting

PYTORCHJOB, JOB = workloads.get("PyTorchJob"), workloads.get("Job")
COMPLETED = "2026-01-01T00:05:00Z"
SUCCEEDED = a_condition("Succeeded", lastTransitionTime=COMPLETED)


def status(pod, *, job_terminal=False, **more):
    return replica_status(PYTORCHJOB, pod, job_terminal=job_terminal, **more)


@pytest.mark.parametrize(
    ("policy", "code", "terminal", "is_ended"),
    [
        ("Never", 0, False, True),
        ("Never", 1, False, True),
        ("OnFailure", 0, False, True),
        ("OnFailure", 1, False, False),
        ("OnFailure", 1, True, True),
        ("Always", 0, False, False),
        ("Always", 1, True, True),
    ],
)
def test_when_a_terminated_container_has_ended_for_good(policy, code, terminal, is_ended):
    found = status(a_pod("worker-0", ended(code), policy=policy), job_terminal=terminal)
    assert (found.ended, found.exit_code) == (is_ended, code)


def test_a_containers_own_restart_policy_wins():
    pod = a_pod("worker-0", ended(1), policy="OnFailure", spec={"containers": [{"name": "pytorch", "restartPolicy": "Never"}]})
    assert status(pod).ended


def test_sidecar_that_runs_on_does_not_count():
    found = status(a_pod("worker-0", ended(0), sidecars={"istio-proxy": running()}))
    assert (found.ended, found.exit_code, found.phase) == (True, 0, ReplicaPhase.RUNNING)


def test_sidecar_that_failed_is_not_the_exit_code():
    found = status(a_pod("worker-0", ended(0), phase="Failed", sidecars={"istio-proxy": ended(137)}))
    assert (found.ended, found.exit_code, found.reason) == (True, 0, "Completed")


def test_crash_loop_waits_for_its_next_chance_until_the_workload_is_terminal():
    pod = a_pod("worker-0", waiting("CrashLoopBackOff", last=ended(1), restarts=2), policy="OnFailure")
    before, after = status(pod), status(pod, job_terminal=True)
    assert (before.ended, before.reason, before.restarts, before.exit_code) == (False, "CrashLoopBackOff", 2, 1)
    assert after.ended


@pytest.mark.parametrize(("crashed_at", "is_ended"), [("2026-01-01T00:04:59Z", False), ("2026-01-01T00:05:01Z", True)])
@pytest.mark.parametrize("now", [waiting("CrashLoopBackOff"), running()])
def test_only_a_crash_after_the_condition_counts_as_the_end(now, crashed_at, is_ended):
    container = {**now, "lastState": ended(1, at=crashed_at)["state"]}
    found = status(a_pod("worker-0", container, policy="OnFailure"), job_terminal=True, completed_at=COMPLETED)
    assert found.ended is is_ended


def test_running_again_has_no_exit_code():
    found = status(a_pod("worker-0", {**running(), "lastState": ended(1)["state"], "restartCount": 1}, policy="OnFailure"))
    assert (found.exit_code, found.finished_at, found.reason, found.restarts) == (None, "", "", 1)


@pytest.mark.parametrize("reason", ["Evicted", "OutOfmemory", "NodeShutdown"])
def test_pod_that_failed_without_container_statuses(reason):
    found = status(a_pod("worker-0", phase="Failed", reason=reason, message="the node was low on memory"))
    assert (found.ended, found.reason, found.message, found.exit_code) == (True, reason, "the node was low on memory", None)


def test_disruption_is_the_reason_of_a_pod_that_is_stopped():
    disrupted = a_condition(
        "DisruptionTarget", reason="PreemptionByScheduler", message="preempting to accommodate a higher priority pod"
    )
    found = status(a_pod("worker-0", running(), conditions=[disrupted], meta={"deletionTimestamp": "2026-01-01T00:01:00Z"}))
    assert (found.reason, found.stopped, found.ended) == ("PreemptionByScheduler", True, False)


def test_unschedulable():
    why = a_condition(
        "PodScheduled", "False", reason="Unschedulable", message="0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )
    found = status(a_pod("worker-0", phase="Pending", spec={"nodeName": None}, conditions=[why]))
    assert (found.phase, found.reason, found.node) == (ReplicaPhase.PENDING, "Unschedulable", "")
    assert "Insufficient" in found.message


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ({"state": {"running": {}}}, "Init:0/1"),
        (ended(1), "Init:Error"),
        (waiting("CrashLoopBackOff", last=ended(1)), "Init:CrashLoopBackOff"),
        (waiting("ImagePullBackOff"), "Init:ImagePullBackOff"),
        (ended(0), "PodInitializing"),
    ],
)
def test_init_container_is_reported_as_kubectl_does(init, reason):
    pod = a_pod("worker-0", waiting("PodInitializing"), phase="Pending", initContainerStatuses=[{"name": "init-pytorch", **init}])
    assert status(pod).reason == reason


def test_native_sidecar_is_no_init_container():
    spec = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}], "containers": [{"name": "pytorch"}]}
    assert status(a_pod("worker-0", running(), spec=spec, initContainerStatuses=[{"name": "proxy", **running()}])).reason == ""


def test_removed_pod_has_ended_and_says_so():
    found = status(a_pod("worker-0", running()), removed=True)
    assert (found.ended, found.stopped, found.exit_code, found.reason) == (True, True, None, "Deleted")


@pytest.mark.parametrize(("finished", "stopped"), [("2026-01-01T00:00:59Z", False), ("2026-01-01T00:01:10Z", True)])
def test_end_before_the_deletion_began_is_the_programs_own(finished, stopped):
    meta = {"deletionTimestamp": "2026-01-01T00:01:30Z", "deletionGracePeriodSeconds": 30}
    assert status(a_pod("worker-0", ended(1, at=finished), meta=meta)).stopped is stopped


def test_newest_pod_of_a_replica_counts_and_a_living_one_before_a_removed_one():
    old = a_pod("worker-0", ended(1), uid="old", phase="Failed", meta={"creationTimestamp": "2026-01-01T00:09:00Z"})
    new = a_pod("worker-0", running(), uid="new")
    found = current_replicas(PYTORCHJOB, a_pytorchjob(), [new, a_pod("worker-1", running())], [old])
    assert [(r.replica, r.pod_uid) for r in found] == [("worker-0", "new"), ("worker-1", "worker-1-uid")]


def test_replicas_come_in_log_order():
    pods = [a_pod(name, running()) for name in ("worker-10", "worker-2", "master-0")]
    found = current_replicas(PYTORCHJOB, a_pytorchjob(workers=11, master=True), pods)
    assert [r.replica for r in found] == ["master-0", "worker-2", "worker-10"]


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.CREATED])
def test_a_started_replica_makes_it_running(phase):
    assert effective_phase(phase, [status(a_pod("worker-0", running()))]) is Phase.RUNNING
    assert effective_phase(phase, [status(a_pod("worker-0", phase="Pending"))]) is phase


def test_pods_never_change_a_decided_phase():
    assert effective_phase(Phase.SUSPENDED, [status(a_pod("worker-0", running()))]) is Phase.SUSPENDED


def test_restarts_are_counted_over_recreated_pods():
    pods = [
        a_pod("worker-0", {**running(), "restartCount": 2}, uid="a"),
        a_pod("worker-0", {**running(), "restartCount": 1}, uid="b"),
        a_pod("worker-1", running()),
    ]
    assert restart_counts(PYTORCHJOB, pods) == {"worker-0": 4, "worker-1": 0}
    assert restart_counts(PYTORCHJOB, pods, suspended={"a"}) == {"worker-0": 1, "worker-1": 0}


@pytest.mark.parametrize(
    ("state", "policy", "count"),
    [
        (waiting("CrashLoopBackOff", last=ended(1), restarts=2), "OnFailure", 3),
        (ended(1), "OnFailure", 1),
        (ended(0), "OnFailure", 0),
        (ended(1), "Never", 0),
        (running(), "OnFailure", 0),
    ],
)
def test_a_restart_that_is_waited_for_counts(state, policy, count):
    assert restart_counts(PYTORCHJOB, [a_pod("worker-0", state, policy=policy)]) == {"worker-0": count}


def test_init_restarts_count_native_sidecars_do_not():
    spec = {
        "initContainers": [{"name": "init-pytorch"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "pytorch"}],
    }
    statuses = [{"name": "init-pytorch", **running(), "restartCount": 3}, {"name": "proxy", **running(), "restartCount": 9}]
    assert restart_counts(PYTORCHJOB, [a_pod("worker-0", spec=spec, initContainerStatuses=statuses)]) == {"worker-0": 3}


def test_only_a_zero_exit_hands_back_a_result():
    assert result_of(PYTORCHJOB, a_pod("worker-0", ended(0, message='{"a": 1}'))) == '{"a": 1}'
    assert result_of(PYTORCHJOB, a_pod("worker-0", ended(1, message="Traceback ..."))) == ""
    assert result_of(PYTORCHJOB, a_pod("worker-0", running())) == ""


def judge(pods, obj=None, *, removed=(), **options):
    obj = obj or a_pytorchjob(SUCCEEDED)
    return verdict(PYTORCHJOB, obj, current_replicas(PYTORCHJOB, obj, pods, removed), **options)


GOOD, BAD = a_pod("worker-0", ended(0), phase="Succeeded"), a_pod("worker-1", ended(1), phase="Failed")


def test_success_needs_every_replica():
    assert judge([GOOD, a_pod("worker-1", ended(0))]).state is State.SUCCEEDED
    assert judge([GOOD, BAD]) == judge([GOOD, BAD], waited=9999)
    assert (judge([GOOD, BAD]).state, judge([GOOD, BAD]).failed) == (State.PARTIAL_FAILURE, ("worker-1",))


def test_any_policy_takes_the_condition():
    assert judge([GOOD, BAD], success_policy="any").state is State.SUCCEEDED


def test_drain_ends_at_its_limit():
    pods = [GOOD, a_pod("worker-1", running())]
    assert judge(pods, waited=599).state is State.DRAINING
    late = judge(pods, waited=600)
    assert (late.state, late.left) == (State.PARTIAL_FAILURE, ("worker-1",))


def test_elastic_range_needs_only_the_lower_bound():
    obj = a_pytorchjob(SUCCEEDED, elasticPolicy={"minReplicas": 1, "maxReplicas": 2})
    assert judge([GOOD, BAD], obj).state is State.SUCCEEDED
    assert judge([a_pod("worker-0", ended(1)), BAD], obj).state is State.PARTIAL_FAILURE
    assert judge([GOOD, a_pod("worker-1", running())], obj).state is State.DRAINING


def test_replica_not_seen_yet_is_waited_for_a_little():
    assert judge([GOOD]).state is State.DRAINING
    settled = judge([GOOD], waited=31)
    assert (settled.state, settled.missing) == (State.PARTIAL_FAILURE, ("worker-1",))


def test_pending_replica_with_a_node_is_about_to_start():
    assert judge([GOOD, a_pod("worker-1", phase="Pending")], waited=31).state is State.DRAINING
    assert judge([GOOD, a_pod("worker-1", phase="Pending", spec={"nodeName": None})], waited=31).state is State.PARTIAL_FAILURE


def test_pods_removed_by_the_manifests_own_policy_are_no_failure():
    obj = a_pytorchjob(SUCCEEDED, runPolicy={"cleanPodPolicy": "Running"})
    meta = {"deletionTimestamp": "2026-01-01T00:01:20Z", "deletionGracePeriodSeconds": 30}
    stopped = a_pod("worker-1", ended(1, at="2026-01-01T00:00:55Z"), meta=meta)
    assert judge([GOOD], obj, removed=[stopped]).state is State.SUCCEEDED
    assert judge([GOOD], obj, removed=[a_pod("worker-1", running())]).state is State.SUCCEEDED
    assert judge([GOOD, BAD], obj).state is State.PARTIAL_FAILURE
    assert judge([], obj, waited=31).state is State.SUCCEEDED


def test_pod_removed_by_somebody_else_is_a_failure():
    assert judge([GOOD], removed=[a_pod("worker-1", running())]).state is State.PARTIAL_FAILURE


def test_other_phases():
    assert judge([BAD], a_pytorchjob(a_condition("Failed"), SUCCEEDED)).state is State.FAILED
    assert judge([GOOD], a_pytorchjob()).state is State.UNFINISHED
    assert verdict(PYTORCHJOB, None, ()).state is State.GONE
    assert verdict(JOB, a_job(a_condition("Complete")), ()).state is State.SUCCEEDED
