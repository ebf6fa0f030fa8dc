"""What only a real control plane can show of a workload: its controllers, its admission, its scheduler, its limits."""

import asyncio

import pytest

from airflow_mlxp.cluster import delete
from airflow_mlxp.local.client import JOBS, PYTORCHJOBS
from airflow_mlxp.models import FailureClass, LogLines, Phase, PhaseChanged
from tests.real_cluster.seed import QUOTAS
from tests.support.following import OWNER, create, current, no_pod_runs, run, running_pods, watch
from tests.support.platform import a_job, a_pytorchjob, has, until


async def quota(platform, name="q", **hard):
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}
    await platform.client.create(QUOTAS, platform.namespace, body)
    # An admission plugin counts against what the controller has calculated.
    await until(platform, QUOTAS, name, lambda obj: obj.get("status", {}).get("hard"))


async def started(client, manifest):
    kind, ref = await create(client, manifest)
    await watch(client, kind, ref, until=lambda event: isinstance(event, LogLines))
    return kind, ref


async def test_a_quota_that_is_freed_lets_a_refused_worker_start(client, platform):
    await quota(platform, pods="2")
    blocker_kind, blocker = await started(client, a_job("blocker", "echo up; exec sleep 100"))
    kind, ref = await create(client, a_pytorchjob("train", "sleep 1; echo trained", workers=2))
    following = asyncio.create_task(watch(client, kind, ref))
    refused = await watch(client, kind, ref, owner=None, until=lambda event: "exceeded quota" in getattr(event, "message", ""))
    assert 'pods "train-worker-1" is forbidden: exceeded quota: q, requested: pods=1' in refused.warnings()[-1]
    await delete.fenced_delete(client, blocker_kind, blocker, owner=OWNER, by=OWNER, grace_seconds=1)
    followed = await following
    assert followed.outcome.succeeded, followed.outcome.diagnosis
    assert followed.lines("worker-1") == ["trained"]


async def test_gpus_that_no_node_has_are_told_in_the_schedulers_words(client):
    limits = {"limits": {"nvidia.com/gpu": "9"}}
    followed = await run(client, a_job("prepare", container={"resources": limits}), start_timeout=3)
    diagnosis = followed.outcome.diagnosis
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in diagnosis.as_text()
    assert diagnosis.category == "unschedulable"


async def test_a_zone_that_no_node_belongs_to(client):
    pod = {"nodeSelector": {"mlx.navercorp.com/zone": "nowhere"}}
    followed = await run(client, a_job("prepare", pod=pod), start_timeout=3)
    diagnosis = followed.outcome.diagnosis
    assert "didn't match Pod's node affinity/selector" in diagnosis.as_text()
    assert diagnosis.failure_class is FailureClass.PERMANENT


async def test_a_ttl_that_is_over_at_once_does_not_hide_the_end(client, platform):
    script = "echo one; echo 42 > /dev/termination-log"
    for manifest in (
        a_job("prepare", script, ttlSecondsAfterFinished=0),
        a_pytorchjob("train", script, workers=1, runPolicy={"ttlSecondsAfterFinished": 0}),
    ):
        followed = await run(client, manifest)
        assert followed.outcome.succeeded, followed.outcome.diagnosis
        assert followed.lines() == ["one"]


@pytest.mark.parametrize("suspended", ["job", "pytorchjob"])
async def test_suspended_and_resumed(client, suspended):
    if suspended == "job":
        manifest, resume = a_job("train", "echo one", suspend=True), {"spec": {"suspend": False}}
    else:
        manifest = a_pytorchjob("train", "echo one", workers=1, runPolicy={"suspend": True})
        resume = {"spec": {"runPolicy": {"suspend": False}}}
    kind, ref = await create(client, manifest)
    following = asyncio.create_task(watch(client, kind, ref, start_timeout=30))
    await watch(
        client, kind, ref, owner=None, until=lambda event: isinstance(event, PhaseChanged) and event.phase is Phase.SUSPENDED
    )
    await client.merge_patch(kind.api.path(ref.namespace, ref.name), resume)
    followed = await following
    assert followed.outcome.succeeded, followed.outcome.diagnosis
    assert Phase.SUSPENDED in followed.phases
    assert followed.lines() == ["one"]


async def test_suspended_while_running_gives_its_node_back_and_starts_anew(client):
    kind, ref = await create(client, a_pytorchjob("train", "echo up; sleep 2; echo done", workers=1))
    following = asyncio.create_task(watch(client, kind, ref))
    await watch(client, kind, ref, owner=None, until=lambda event: isinstance(event, LogLines))
    path = kind.api.path(ref.namespace, ref.name)
    await client.merge_patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    await no_pod_runs(client)
    await client.merge_patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    followed = await following
    assert followed.outcome.succeeded, followed.outcome.diagnosis
    assert followed.lines() == ["up", "up", "done"], followed.events


async def test_a_job_that_fails_is_tried_again_by_its_controller_and_then_fails(client):
    followed = await run(client, a_job("prepare", "echo try; exit 7", backoffLimit=1))
    assert followed.outcome.diagnosis.exit_code == 7
    assert followed.lines() == ["try", "try"]


async def test_a_deadline_of_the_job_itself(client):
    followed = await run(client, a_job("prepare", "echo up; exec sleep 100", activeDeadlineSeconds=2))
    assert followed.outcome.diagnosis.category == "deadline_exceeded"
    assert followed.lines() == ["up"]
    await no_pod_runs(client)


async def test_an_indexed_job_gives_a_result_for_each_index(client):
    script = "echo result-$JOB_COMPLETION_INDEX > /dev/termination-log"
    followed = await run(client, a_job("prepare", script, completions=3, parallelism=2, completionMode="Indexed"))
    assert followed.outcome.succeeded
    assert sorted(text.strip() for text in followed.outcome.results.values()) == ["result-0", "result-1", "result-2"]


async def test_the_limit_of_the_operator_itself_leaves_nothing_running(client, platform):
    manifest = a_pytorchjob("train", "echo attempt; exit 3", workers=2, runPolicy={"backoffLimit": 2})
    followed = await run(client, manifest)
    assert not followed.outcome.succeeded
    assert followed.outcome.diagnosis.exit_code == 3
    await no_pod_runs(client)


async def test_exit_code_policy_with_a_permanent_code(client):
    followed = await run(client, a_pytorchjob("train", "echo gone wrong; exit 3", workers=1, policy="ExitCode"))
    assert followed.outcome.diagnosis.exit_code == 3
    assert followed.lines() == ["gone wrong"]


async def test_master_and_workers(client):
    manifest = a_pytorchjob("train", "echo rank $RANK of $WORLD_SIZE", workers=1, master="echo rank $RANK at $MASTER_ADDR")
    followed = await run(client, manifest)
    assert followed.outcome.succeeded, followed.outcome.diagnosis
    assert followed.lines("master-0") == ["rank 0 at 127.0.0.1"]
    assert "rank 1 of 2" in followed.lines("worker-0")


@pytest.mark.parametrize("resource", [JOBS, PYTORCHJOBS], ids=lambda resource: resource.kind)
async def test_a_fenced_delete_takes_the_pods_along(client, platform, resource):
    manifest = a_job("train", "echo up; exec sleep 100") if resource is JOBS else a_pytorchjob("train", "echo up; exec sleep 100")
    kind, ref = await started(client, manifest)
    outcome = await delete.fenced_delete(client, kind, ref, owner=OWNER, by=OWNER, grace_seconds=1)
    assert outcome is delete.DeleteOutcome.DELETED
    await until(platform, resource, "train", lambda obj: not obj)
    await no_pod_runs(client)
    again = await delete.fenced_delete(client, kind, ref, owner=OWNER, by=OWNER, grace_seconds=1)
    assert again is delete.DeleteOutcome.GONE


async def test_a_fenced_delete_leaves_what_another_try_owns(client):
    kind, ref = await started(client, a_job("train", "echo up; exec sleep 100"))
    outcome = await delete.fenced_delete(client, kind, ref, owner="another", by="another", grace_seconds=1)
    assert outcome is delete.DeleteOutcome.TAKEN
    assert await current(client, ref) is not None
    assert await running_pods(client)


async def test_a_job_that_somebody_deletes_in_the_foreground(client, platform):
    kind, ref = await started(client, a_pytorchjob("train", "echo up; exec sleep 100"))
    following = asyncio.create_task(watch(client, kind, ref))
    obj = await until(platform, PYTORCHJOBS, "train", has("Running"))
    await platform.client.delete(PYTORCHJOBS, obj, propagation="Foreground")
    followed = await following
    assert followed.outcome.diagnosis.category == "deleted"
    assert followed.outcome.diagnosis.failure_class is FailureClass.INFRASTRUCTURE
