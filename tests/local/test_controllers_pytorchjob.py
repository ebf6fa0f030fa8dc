"""PyTorchJobs on the embedded platform: the sequences of the recordings, with what differs in training-operator 1.9.4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mlxp.local.client import EVENTS, PODS, PYTORCHJOBS, SERVICES, Resource
from airflow_mlxp.local.controllers import pytorchjob_pods, pytorchjob_status
from tests.support.platform import (
    QUICK_CONTROLLERS,
    a_pytorchjob,
    has,
    is_gone,
    log_of,
    platform,
    pods_of,
    reasons_of,
    running_platform,
    until,
)

__all__ = ["platform"]

QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")


def types(job):
    return [(item["type"], item["status"]) for item in job["status"]["conditions"]]


async def create(platform, body):
    await platform.client.create(PYTORCHJOBS, platform.namespace, body)


async def until_reason(platform, reason):
    async def look():
        return reason in await reasons_of(platform, "train")

    while not await look():
        await until(platform, PYTORCHJOBS, "train", lambda job: job)
    return (await reasons_of(platform, "train"))[reason]


async def test_workers_succeed(platform):
    await create(platform, a_pytorchjob("train", "sleep 0.5; echo $PET_NNODES"))
    running = await until(platform, PYTORCHJOBS, "train", has("Running"))
    assert running["status"]["replicaStatuses"]["Worker"]["active"] >= 1
    job = await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    assert types(job) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    created, running, succeeded = job["status"]["conditions"]
    assert created["message"] == "PyTorchJob train is created."
    assert running["message"] == f"PyTorchJob {platform.namespace}/train is running."
    assert succeeded["message"] == f"PyTorchJob {platform.namespace}/train successfully completed."
    assert job["status"]["replicaStatuses"]["Worker"] == {
        "selector": "training.kubeflow.org/job-name=train,training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker",
        "succeeded": 2,
    }
    assert job["status"]["completionTime"]
    pods = await pods_of(platform, "train")
    assert [pod["metadata"]["name"] for pod in pods] == ["train-worker-0", "train-worker-1"]
    assert pods[0]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert "training.kubeflow.org/job-role" not in pods[1]["metadata"]["labels"]
    assert await log_of(platform, "train-worker-1") == "2\n"
    service = await platform.client.get(SERVICES, platform.namespace, "train-worker-1")
    assert service["spec"]["clusterIP"] == "None"
    assert await until_reason(platform, "ExitedWithCode")


async def test_master_decides(platform):
    await create(platform, a_pytorchjob("train", "sleep 60", master="sleep 0.5"))
    job = await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    assert job["status"]["conditions"][-1]["message"] == "PyTorchJob train is successfully completed."
    counts = (
        await until(platform, PYTORCHJOBS, "train", lambda job: job["status"]["replicaStatuses"]["Worker"].get("succeeded"))
    )["status"]["replicaStatuses"]
    assert counts["Worker"]["succeeded"] == 2
    pods = await pods_of(platform, "train")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Running", "Running"]


async def test_elastic_job_succeeds_with_its_first_worker(platform):
    script = "case $HOSTNAME in *-0) sleep 0.5;; *) sleep 60;; esac"
    await create(platform, a_pytorchjob("train", script, elasticPolicy={"minReplicas": 2, "maxReplicas": 2, "rdzvId": "r"}))
    await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    pod = await platform.client.get(PODS, platform.namespace, "train-worker-1")
    assert pod["status"]["phase"] == "Running"


async def test_never_fails_with_the_first_worker(platform):
    script = "case $HOSTNAME in *-0) exit 1;; *) sleep 60;; esac"
    await create(platform, a_pytorchjob("train", script, policy="Never"))
    job = await until(platform, PYTORCHJOBS, "train", has("Failed"))
    assert job["status"]["conditions"][-1]["message"] == "PyTorchJob train is failed because 1 Worker replica(s) failed."
    assert job["status"]["completionTime"]


async def test_backoff_limit_leaves_pods_crash_looping(platform):
    await create(platform, a_pytorchjob("train", "exit 1", runPolicy={"backoffLimit": 3}))
    job = await until(platform, PYTORCHJOBS, "train", has("Failed"))
    assert job["status"]["conditions"][-1]["message"] == "Job train has failed because it has reached the specified backoff limit"
    assert types(job)[-2:] == [("Running", "False"), ("Failed", "True")]
    assert len(await pods_of(platform, "train")) == 2


async def test_backoff_limit_of_1_9_3_deletes_all_pods(tmp_path):
    older = replace(QUICK_CONTROLLERS, training_operator="1.9.3")
    async with running_platform(tmp_path, controllers=older) as platform:
        await create(platform, a_pytorchjob("train", "exit 1", runPolicy={"backoffLimit": 3}))
        await until(platform, PYTORCHJOBS, "train", has("Failed"))
        await until(platform, PODS, "train-worker-0", is_gone)


async def test_permanent_exit_code(platform):
    await create(platform, a_pytorchjob("train", "exit 1", policy="ExitCode"))
    job = await until(platform, PYTORCHJOBS, "train", has("Failed"))
    assert job["status"]["conditions"][-1]["message"] == 'job "train" is failing because "Worker" replica(s) failed.'
    assert "completionTime" not in job["status"]
    assert await until_reason(platform, "PyTorchJobFailed")


async def test_retryable_exit_code_makes_new_pods(platform, tmp_path):
    marker = tmp_path / "seen"
    script = f"if [ -e {marker} ]; then exit 0; fi; touch {marker}; exit 137"
    await create(platform, a_pytorchjob("train", script, workers=1, policy="ExitCode"))
    await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    assert await until_reason(platform, "PyTorchJobRestarting")


async def test_refused_pod_keeps_the_status_empty(platform):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "normal-quota"}, "spec": {"hard": {"pods": "1"}}}
    await platform.client.create(QUOTAS, platform.namespace, quota)
    await create(platform, a_pytorchjob("train", "sleep 1"))
    message = await until_reason(platform, "FailedCreatePod")
    assert 'pods "train-worker-1" is forbidden: exceeded quota: normal-quota' in message
    job = await platform.client.get(PYTORCHJOBS, platform.namespace, "train")
    assert not (job.get("status") or {}).get("conditions")
    answer = await platform.client.list(EVENTS, platform.namespace)
    refused = [item for item in answer["items"] if item["reason"] == "FailedCreatePod"]
    assert len(refused) == 1
    await platform.client.delete(QUOTAS, await platform.client.get(QUOTAS, platform.namespace, "normal-quota"))
    await until(platform, PYTORCHJOBS, "train", has("Succeeded"))


async def test_suspended_while_running_then_resumed(platform):
    await create(platform, a_pytorchjob("train", "sleep 1"))
    await until(platform, PYTORCHJOBS, "train", has("Running"))
    await platform.client.patch(PYTORCHJOBS, platform.namespace, "train", {"spec": {"runPolicy": {"suspend": True}}})
    job = await until(platform, PYTORCHJOBS, "train", has("Suspended"))
    assert types(job) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    await until(platform, PODS, "train-worker-0", is_gone)
    await platform.client.patch(PYTORCHJOBS, platform.namespace, "train", {"spec": {"runPolicy": {"suspend": False}}})
    job = await until(platform, PYTORCHJOBS, "train", has("Succeeded"))
    assert types(job) == [("Created", "True"), ("Suspended", "False"), ("Running", "False"), ("Succeeded", "True")]


async def test_image_that_cannot_be_pulled(platform):
    body = a_pytorchjob("train", container={"image": "registry.invalid/no-such-image:1"})
    await create(platform, body)
    assert "no-such-image" in await until_reason(platform, "ImagePullBackOff")
    job = await platform.client.get(PYTORCHJOBS, platform.namespace, "train")
    assert types(job) == [("Created", "True")]


@pytest.mark.parametrize(("policy", "left"), [("None", 2), ("Running", 1), ("All", 0)])
async def test_clean_pod_policy(platform, policy, left):
    script = "case $HOSTNAME in *-0) sleep 0.3;; *) sleep 60;; esac"
    body = a_pytorchjob("train", script, elasticPolicy={}, runPolicy={"cleanPodPolicy": policy})
    await create(platform, body)
    await until(
        platform, PYTORCHJOBS, "train", lambda job: types(job)[-1] == ("Succeeded", "True") if job.get("status") else False
    )
    if policy != "None":
        await until(platform, PODS, "train-worker-1", is_gone)
    if policy == "All":
        await until(platform, PODS, "train-worker-0", is_gone)
    assert len(await pods_of(platform, "train")) == left


async def test_ttl(platform):
    await create(platform, a_pytorchjob("train", runPolicy={"ttlSecondsAfterFinished": 0}))
    await until(platform, PYTORCHJOBS, "train", is_gone)
    await until(platform, PODS, "train-worker-0", is_gone)


def test_environment_of_master_and_workers():
    job = a_pytorchjob("train", master="true", nprocPerNode="4")
    job["metadata"]["namespace"] = "p-demo"
    specs = pytorchjob_pods.replica_specs(job)
    assert pytorchjob_pods.environment(job, specs, "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "train-master-0",
        "PET_MASTER_ADDR": "train-master-0",
        "WORLD_SIZE": "12",
        "RANK": "2",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NNODES": "3",
    }


def test_environment_of_elastic_workers():
    elastic = {
        "minReplicas": 2,
        "maxReplicas": 3,
        "rdzvId": "r",
        "maxRestarts": 0,
        "rdzvConf": [{"key": "timeout", "value": "9"}],
    }
    job = a_pytorchjob("train", elasticPolicy=elastic)
    specs = pytorchjob_pods.replica_specs(job)
    assert pytorchjob_pods.environment(job, specs, "Worker", 0) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_ENDPOINT": "train-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "2:3",
        "PET_MAX_RESTARTS": "0",
        "PET_RDZV_ID": "r",
        "PET_RDZV_CONF": "timeout=9",
    }


def test_conditions_do_not_change_after_failed():
    status = {}
    pytorchjob_status.set_condition(status, "Failed", "over")
    pytorchjob_status.set_condition(status, "Restarting", "again")
    assert [item["type"] for item in status["conditions"]] == ["Failed"]


def test_running_and_restarting_replace_each_other():
    status = {}
    for kind in ("Created", "Running", "Restarting", "Running"):
        pytorchjob_status.set_condition(status, kind, kind)
    assert [item["type"] for item in status["conditions"]] == ["Created", "Running"]
