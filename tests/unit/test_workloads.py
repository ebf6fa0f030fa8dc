"""Kinds: phase from conditions, replicas, selectors, completion rule."""

from __future__ import annotations

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.models import Phase
from tests.support.builders import a_condition, a_job, a_pod, a_pytorchjob

JOB, PYTORCHJOB = workloads.get("Job"), workloads.get("PyTorchJob")


def test_registry_names_what_it_knows():
    assert [w.kind for w in workloads.all_workloads()] == ["Job", "PyTorchJob"]
    with pytest.raises(InvalidArgument, match=r"kind='PytorchJob': expected Job or PyTorchJob"):
        workloads.get("PytorchJob")


def test_api_paths():
    assert JOB.api.path("p-x", "a") == "/apis/batch/v1/namespaces/p-x/jobs/a"
    assert PYTORCHJOB.api.path("p-x") == "/apis/kubeflow.org/v1/namespaces/p-x/pytorchjobs"


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ([], Phase.PENDING),
        ([("Created", "True")], Phase.CREATED),
        ([("Created", "True"), ("Running", "True")], Phase.RUNNING),
        ([("Created", "True"), ("Restarting", "True")], Phase.RESTARTING),
        ([("Created", "True"), ("Running", "False"), ("Succeeded", "True")], Phase.SUCCEEDED),
        ([("Succeeded", "True"), ("Running", "False"), ("Created", "True")], Phase.SUCCEEDED),
        ([("Created", "True"), ("Running", "False"), ("Suspended", "True")], Phase.SUSPENDED),
        ([("Created", "True"), ("Running", "False"), ("Suspended", "False")], Phase.CREATED),
        ([("Created", "True"), ("Running", "True"), ("Suspended", "False")], Phase.RUNNING),
        ([("Failed", "True"), ("Succeeded", "True")], Phase.FAILED),
        ([("Succeeded", "True"), ("Failed", "True")], Phase.FAILED),
        ([("Succeeded", "False"), ("Created", "True")], Phase.CREATED),
        ([("Succeeded", "Unknown"), ("Failed", "Unknown")], Phase.CREATED),
        ([("Running", "True"), ("Quantum", "True")], Phase.RUNNING),
        ([("Quantum", "True")], Phase.PENDING),
    ],
)
def test_pytorchjob_phase(conditions, phase):
    assert PYTORCHJOB.phase_of(a_pytorchjob(*(a_condition(*c) for c in conditions))) is phase


def test_boolean_status_is_no_condition():
    obj = a_pytorchjob()
    obj["status"]["conditions"] = [{"type": "Succeeded", "status": True}]
    assert PYTORCHJOB.phase_of(obj) is Phase.CREATED


@pytest.mark.parametrize(
    ("conditions", "status", "phase"),
    [
        ([], {}, Phase.PENDING),
        ([], {"active": 1}, Phase.CREATED),
        ([], {"startTime": "2026-01-01T00:00:00Z"}, Phase.CREATED),
        ([], {"active": 1, "ready": 1}, Phase.RUNNING),
        ([], {"active": 1, "ready": 0, "failed": 1}, Phase.RESTARTING),
        ([], {"active": 2, "ready": 1, "failed": 1}, Phase.RUNNING),
        ([], {"active": 0, "uncountedTerminatedPods": {"failed": ["uid"]}}, Phase.RESTARTING),
        ([], {"active": 1, "succeeded": 1}, Phase.RUNNING),
        ([("SuccessCriteriaMet", "True")], {"succeeded": 1}, Phase.RUNNING),
        ([("FailureTarget", "True")], {"failed": 1}, Phase.RUNNING),
        ([("SuccessCriteriaMet", "True"), ("Complete", "True")], {}, Phase.SUCCEEDED),
        ([("FailureTarget", "True"), ("Failed", "True")], {}, Phase.FAILED),
        ([("Complete", "True"), ("Failed", "True")], {}, Phase.FAILED),
        ([("Complete", "False"), ("Failed", "False")], {"active": 1, "ready": 1}, Phase.RUNNING),
        ([("Suspended", "True")], {}, Phase.SUSPENDED),
        ([("Suspended", "False")], {"active": 1}, Phase.CREATED),
    ],
)
def test_job_phase(conditions, status, phase):
    assert JOB.phase_of(a_job(*(a_condition(*c) for c in conditions), status=status)) is phase


@pytest.mark.parametrize("workload", workloads.all_workloads(), ids=lambda w: w.kind)
def test_gone_object(workload):
    assert workload.phase_of(None) is Phase.GONE


def test_condition_that_decides_carries_reason_and_message():
    failed = a_condition(
        "Failed", reason="BackoffLimitExceeded", message="limit reached", lastTransitionTime="2026-01-01T00:00:00Z"
    )
    found = JOB.condition_of(a_job(a_condition("FailureTarget"), failed))
    assert (found.type, found.reason, found.message) == ("Failed", "BackoffLimitExceeded", "limit reached")


def test_pytorchjob_replicas_master_first_with_the_operators_defaults():
    assert PYTORCHJOB.replicas_of(a_pytorchjob(workers=2, master=True)) == ("master-0", "worker-0", "worker-1")
    assert PYTORCHJOB.replicas_of(a_pytorchjob(workers=None)) == ("worker-0",)


def test_replica_specs_are_found_in_any_case():
    obj = a_pytorchjob()
    obj["spec"]["pytorchReplicaSpecs"] = {"worker": {"replicas": 1}, "MASTER": {}}
    assert PYTORCHJOB.replicas_of(obj) == ("master-0", "worker-0")


def test_a_count_that_no_name_has_room_for_is_not_listed_whole():
    assert len(PYTORCHJOB.replicas_of(a_pytorchjob(workers=10**9))) == 100_000


def test_job_replicas_only_when_indexed():
    assert JOB.replicas_of(a_job(completions=3)) == ()
    assert JOB.replicas_of(a_job(completions=3, completionMode="Indexed")) == ("0", "1", "2")


def test_replica_of_pods():
    assert PYTORCHJOB.replica_of(a_pod("worker-11")) == "worker-11"
    plain = {
        "metadata": {"name": "prepare-x7k2p", "generateName": "prepare-", "labels": {"batch.kubernetes.io/job-name": "prepare"}}
    }
    indexed = {"metadata": {"name": "prepare-3-abcde", "annotations": {"batch.kubernetes.io/job-completion-index": "3"}}}
    assert (JOB.replica_of(plain), JOB.replica_of(indexed)) == ("x7k2p", "3")


def test_selectors():
    assert JOB.pod_selector("a") == "batch.kubernetes.io/job-name=a"
    assert PYTORCHJOB.pod_selector("a") == "training.kubeflow.org/job-name=a"


@pytest.mark.parametrize(
    ("names", "annotation", "expected"),
    [
        (["proxy", "main"], None, "main"),
        (["proxy", "train"], None, "proxy"),
        (["proxy", "train", "main"], "train", "train"),
        (["proxy", "main"], "missing", "main"),
        ([], None, "main"),
    ],
)
def test_training_container_of_a_job(names, annotation, expected):
    annotations = {"kubectl.kubernetes.io/default-container": annotation} if annotation else {}
    pod = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": name} for name in names]}}
    assert JOB.training_container_of(pod) == expected


def test_training_container_of_a_pytorchjob():
    pod = {"spec": {"containers": [{"name": "proxy"}, {"name": "pytorch"}]}}
    assert PYTORCHJOB.training_container_of(pod) == "pytorch"
    assert PYTORCHJOB.training_container_of({"spec": {"containers": [{"name": "only"}]}}) == "only"


@pytest.mark.parametrize(
    ("elastic", "needed"),
    [
        (None, 4),
        ({}, 4),
        ({"minReplicas": 4, "maxReplicas": 4}, 4),
        ({"minReplicas": 2, "maxReplicas": 4}, 2),
        ({"minReplicas": 2}, 4),
        ({"maxReplicas": 8}, 4),
        ({"minReplicas": 6, "maxReplicas": 8}, 4),
    ],
)
def test_replicas_that_have_to_end_well(elastic, needed):
    rule = PYTORCHJOB.completion_of(a_pytorchjob(workers=4, **({"elasticPolicy": elastic} if elastic is not None else {})))
    assert (rule.replicas, rule.min_replicas, rule.condition_is_sufficient) == (4, needed, False)


@pytest.mark.parametrize(("policy", "removes"), [(None, False), ("None", False), ("Running", True), ("All", True)])
def test_clean_pod_policy(policy, removes):
    assert PYTORCHJOB.completion_of(a_pytorchjob(runPolicy={"cleanPodPolicy": policy})).removes_running_pods is removes


def test_a_jobs_condition_is_sufficient():
    assert JOB.completion_of(a_job(completions=3)).condition_is_sufficient


def test_pod_templates_are_the_objects_own():
    job, training = a_job(), a_pytorchjob(master=True)
    JOB.pod_templates_of(job)[0]["metadata"] = {"labels": {"a": "b"}}
    assert job["spec"]["template"]["metadata"] == {"labels": {"a": "b"}}
    specs = training["spec"]["pytorchReplicaSpecs"]
    master, worker = PYTORCHJOB.pod_templates_of(training)
    assert master is specs["Master"]["template"]
    assert worker is specs["Worker"]["template"]


def test_is_suspended():
    assert JOB.is_suspended(a_job(suspend=True))
    assert not JOB.is_suspended(a_job())
    assert PYTORCHJOB.is_suspended(a_pytorchjob(runPolicy={"suspend": True}))
    assert not PYTORCHJOB.is_suspended(a_pytorchjob(suspend=True))
