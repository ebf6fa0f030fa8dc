"""Batch Jobs on the embedded platform: the sequences of the recordings."""

from __future__ import annotations

import pytest

from airflow_mlxp.local.client import JOBS, PODS
from airflow_mlxp.local.controllers import job_state
from tests.support.platform import a_job, has, is_gone, log_of, platform, pods_of, reasons_of, until

__all__ = ["platform"]


def types(job):
    return [(item["type"], item["status"], item["reason"]) for item in job["status"]["conditions"]]


async def test_success(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", "echo hello; exit 0"))
    job = await until(platform, JOBS, "train", has("Complete"))
    assert types(job) == [("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")]
    assert job["status"]["succeeded"] == 1
    assert "active" not in job["status"]
    assert job["status"]["uncountedTerminatedPods"] == {}
    assert job["status"]["completionTime"] >= job["status"]["startTime"]
    (pod,) = await pods_of(platform, "train")
    assert "finalizers" not in pod["metadata"]
    assert pod["metadata"]["name"].startswith("train-")
    assert await log_of(platform, pod["metadata"]["name"]) == "hello\n"
    reasons = await until_reason(platform, "train", "Completed")
    assert reasons["SuccessfulCreate"] == f"Created pod: {pod['metadata']['name']}"


async def until_reason(platform, name, reason):
    found = {}

    async def look():
        nonlocal found
        found = await reasons_of(platform, name)
        return reason in found

    while not await look():
        await until(platform, JOBS, name, lambda job: job)
    return found


async def test_failed_pods_are_replaced_until_the_limit(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", "exit 3", backoffLimit=1))
    job = await until(platform, JOBS, "train", has("Failed"))
    assert types(job) == [("FailureTarget", "True", "BackoffLimitExceeded"), ("Failed", "True", "BackoffLimitExceeded")]
    assert job["status"]["failed"] == 2
    pods = await pods_of(platform, "train")
    assert [pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for pod in pods] == [3, 3]
    assert await until_reason(platform, "train", "BackoffLimitExceeded")


async def test_restart_in_place_stops_at_the_limit(platform):
    job = a_job("train", "exit 3", backoffLimit=1, pod={"restartPolicy": "OnFailure"})
    await platform.client.create(JOBS, platform.namespace, job)
    job = await until(platform, JOBS, "train", has("Failed"))
    assert types(job)[-1] == ("Failed", "True", "BackoffLimitExceeded")
    assert await pods_of(platform, "train") == []


async def test_deadline(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", "sleep 60", activeDeadlineSeconds=1))
    job = await until(platform, JOBS, "train", has("Failed"))
    assert types(job) == [("FailureTarget", "True", "DeadlineExceeded"), ("Failed", "True", "DeadlineExceeded")]
    assert job["status"]["failed"] == 1
    assert await pods_of(platform, "train") == []


async def test_indexed(platform):
    body = a_job("train", "echo index $JOB_COMPLETION_INDEX", completions=3, parallelism=3, completionMode="Indexed")
    await platform.client.create(JOBS, platform.namespace, body)
    job = await until(platform, JOBS, "train", has("Complete"))
    assert job["status"]["completedIndexes"] == "0-2"
    assert job["status"]["succeeded"] == 3
    pods = await pods_of(platform, "train")
    assert [pod["spec"]["hostname"] for pod in pods] == ["train-0", "train-1", "train-2"]
    assert [await log_of(platform, pod["metadata"]["name"]) for pod in pods] == ["index 0\n", "index 1\n", "index 2\n"]


async def test_suspended_then_resumed(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", suspend=True))
    job = await until(platform, JOBS, "train", has("Suspended"))
    assert "startTime" not in job["status"]
    assert await pods_of(platform, "train") == []
    await platform.client.patch(JOBS, platform.namespace, "train", {"spec": {"suspend": False}})
    job = await until(platform, JOBS, "train", has("Complete"))
    assert types(job)[0] == ("Suspended", "False", "JobResumed")


async def test_ttl_takes_job_and_pods(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", ttlSecondsAfterFinished=0))
    await until(platform, JOBS, "train", lambda job: job)
    await until(platform, JOBS, "train", is_gone)
    assert await pods_of(platform, "train") == []


async def test_deleted_job_takes_its_running_pod_along(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", "sleep 60"))
    job = await until(platform, JOBS, "train", lambda job: job.get("status", {}).get("ready"))
    (pod,) = await pods_of(platform, "train")
    await platform.client.delete(JOBS, job)
    await until(platform, PODS, pod["metadata"]["name"], is_gone)


@pytest.mark.parametrize(("indexes", "text"), [((), ""), ((4,), "4"), ((0, 1, 2, 5), "0-2,5"), ((1, 3, 5), "1,3,5")])
def test_indexes_are_written_as_ranges(indexes, text):
    assert job_state.format_indexes(indexes) == text
    assert job_state.parse_indexes(text) == set(indexes)


async def test_pods_of_a_job_that_was_deleted_without_them_can_be_deleted(platform):
    await platform.client.create(JOBS, platform.namespace, a_job("train", "sleep 60"))
    job = await until(platform, JOBS, "train", lambda job: (job.get("status") or {}).get("active"))
    (pod,) = await pods_of(platform, "train")
    await platform.client.delete(JOBS, job, propagation="Orphan")
    name = pod["metadata"]["name"]
    orphan = await until(platform, PODS, name, lambda pod: not pod["metadata"].get("finalizers"))
    assert "ownerReferences" not in orphan["metadata"]
    await platform.client.delete(PODS, orphan, grace_seconds=1)
    await until(platform, PODS, name, is_gone)
