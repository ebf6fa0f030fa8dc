"""What a user sees of a workload, from its first pod to its outcome, on the embedded platform."""

import asyncio
from contextlib import aclosing

import pytest

from airflow_mlxp import identity
from airflow_mlxp.cluster import access, ownership
from airflow_mlxp.cluster.follow import FollowOptions, follow
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.errors import AccessError, ClusterError
from airflow_mlxp.local.client import PODS, Resource
from airflow_mlxp.models import FailureClass, LogLines, Phase, PhaseChanged, ReplicaChanged
from tests.support.following import OWNER, Followed, create, current, no_pod_runs, run, running_pods, watch
from tests.support.objects import a_pod_manifest
from tests.support.platform import a_job, a_pytorchjob, running_platform

pytestmark = pytest.mark.platform
QUOTAS = Resource(group="", version="v1", plural="resourcequotas", kind="ResourceQuota")
INDEX = {"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-index']"}}}


@pytest.fixture
async def platform(tmp_path):
    async with running_platform(tmp_path / "platform") as running:
        yield running


@pytest.fixture
async def client(platform):
    async with Client(access.from_kubeconfig(path=str(platform.kubeconfig))) as client:
        yield client


async def test_a_job_that_succeeds(client):
    script = "echo one; echo two; echo '{\"rows\": 7}' > /dev/termination-log"
    kind, ref = await create(client, a_job("prepare", script))
    followed = await watch(client, kind, ref)
    assert followed.outcome.succeeded
    assert followed.outcome.diagnosis is None
    assert followed.phases[-2:] == [Phase.RUNNING, Phase.SUCCEEDED]
    assert followed.lines() == ["one", "two"]
    assert [text.strip() for text in followed.outcome.results.values()] == ['{"rows": 7}']
    assert followed.outcome.log_gaps == ()
    timings = followed.outcome.timings
    assert timings.created <= timings.started <= timings.finished
    annotations = (await current(client, ref))["metadata"]["annotations"]
    assert annotations[identity.OUTCOME_ANNOTATION] == "success"


async def test_lines_arrive_while_it_runs(client):
    kind, ref = await create(client, a_job("prepare", "echo ready; sleep 100"))
    followed = await watch(client, kind, ref, until=lambda event: isinstance(event, LogLines))
    assert followed.lines() == ["ready"]


async def test_a_script_that_fails_shows_its_traceback_and_exit_code(client):
    script = "python3 -c 'raise ValueError(\"bad data\")'"
    followed = await run(client, a_job("prepare", script))
    assert "ValueError: bad data" in followed.lines()
    diagnosis = followed.outcome.diagnosis
    assert (diagnosis.category, diagnosis.exit_code, diagnosis.failure_class) == ("exit_code", 1, FailureClass.WORKLOAD)
    assert "ValueError: bad data" in diagnosis.as_text()
    assert await running_pods(client) == []


async def test_without_logs_the_diagnosis_has_its_evidence_all_the_same(client):
    followed = await run(client, a_job("prepare", "python3 -c 'raise ValueError(\"bad data\")'"), logs=False)
    assert followed.lines() == []
    assert "ValueError: bad data" in followed.outcome.diagnosis.as_text()


async def test_the_log_of_an_init_container_that_fails_is_shown(client):
    init = {"name": "fetch", "image": "x", "command": ["sh", "-c", "echo no such bucket; exit 4"]}
    followed = await run(client, a_job("prepare", "echo never", pod={"initContainers": [init]}))
    assert followed.lines() == ["no such bucket"]
    assert "fetch" in followed.outcome.diagnosis.sentence


FIRST_DONE = "case $INDEX in 0) echo done;; *) for i in 1 2 3; do echo checkpoint $i; sleep 0.5; done; exit {code};; esac"


def elastic(script, **spec):
    return a_pytorchjob("train", script, container={"env": [INDEX]}, elasticPolicy={"minReplicas": 2, "maxReplicas": 2}, **spec)


async def test_the_task_ends_after_the_worker_that_still_writes_its_checkpoint(client):
    followed = await run(client, elastic(FIRST_DONE.format(code=0)))
    assert followed.outcome.succeeded
    assert followed.lines("worker-1") == ["checkpoint 1", "checkpoint 2", "checkpoint 3"]
    (draining,) = [text for text in followed.warnings() if text.startswith("Draining")]
    assert "worker-1" in draining
    assert "600 s" in draining
    assert [replica.exit_code for replica in followed.outcome.replicas] == [0, 0]


async def test_a_worker_that_fails_after_the_condition_says_success(client):
    kind, ref = await create(client, elastic(FIRST_DONE.format(code=3), policy="OnFailure"))
    followed = await watch(client, kind, ref)
    assert not followed.outcome.succeeded
    assert followed.outcome.diagnosis.category == "partial_failure"
    assert "worker-1" in followed.outcome.diagnosis.sentence
    assert (await current(client, ref))["metadata"]["annotations"][identity.OUTCOME_ANNOTATION] == "partial_failure"
    await no_pod_runs(client)


async def test_a_worker_that_does_not_end_is_stopped_at_the_drain_limit(client):
    script = "case $INDEX in 0) sleep 1;; *) echo working; sleep 100;; esac"
    followed = await run(client, elastic(script), drain_timeout=2, grace_seconds=1)
    assert followed.outcome.diagnosis.category == "partial_failure"
    assert any(text.startswith("Stopping") and "train-worker-1" in text for text in followed.warnings())
    await no_pod_runs(client)


async def test_what_still_runs_after_failed_is_stopped_and_its_log_kept(client):
    script = "case $INDEX in 0) sleep 1; exit 3;; *) trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done;; esac"
    followed = await run(client, elastic(script, policy="Never"))
    assert followed.outcome.diagnosis.replica == "worker-0"
    assert followed.outcome.diagnosis.exit_code == 3
    assert followed.lines("worker-1")[0] == "up"
    await no_pod_runs(client)


async def test_restarts_beyond_the_limit_end_it_with_the_last_words(client):
    script = "echo attempt; echo out of luck >&2; exit 5"
    kind, ref = await create(client, a_pytorchjob("train", script, workers=1, runPolicy={"backoffLimit": 20}))
    followed = await watch(client, kind, ref, container_restarts=2)
    assert followed.outcome.diagnosis.category == "container_restarts"
    assert "out of luck" in followed.outcome.diagnosis.as_text()
    assert followed.lines() == ["attempt", "out of luck"] * 3
    await no_pod_runs(client)
    assert await current(client, ref) is None


async def test_a_timeout_deletes_it(client):
    kind, ref = await create(client, a_job("prepare", "echo up; exec sleep 100"))
    followed = await watch(client, kind, ref, timeout=2)
    assert followed.outcome.diagnosis.category == "timeout"
    assert followed.warnings()[0].startswith(f"Stopping: Job {ref.name} is deleted: ")
    assert followed.lines() == ["up"]
    await no_pod_runs(client)
    assert await current(client, ref) is None


async def test_an_image_that_can_not_be_had_is_told_at_once_and_ends_at_the_start_timeout(client):
    followed = await run(client, a_job("prepare", container={"image": "registry.invalid/train:1"}), start_timeout=2)
    diagnosis = followed.outcome.diagnosis
    assert (diagnosis.category, diagnosis.failure_class) == ("image_pull", FailureClass.PERMANENT)
    reasons = [event.replica.reason for event in followed.of(ReplicaChanged)]
    assert reasons.count("ImagePullBackOff") == 1


async def test_a_quota_is_told_once_while_it_waits(client, platform):
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}
    await platform.client.create(QUOTAS, platform.namespace, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    followed = await run(client, elastic("sleep 100"), start_timeout=3)
    told = [text for text in followed.warnings() if "exceeded quota" in text]
    assert len(told) == 1
    assert Phase.RUNNING in followed.phases, "the worker that runs says so though the status is unwritten"
    assert followed.outcome.diagnosis.category == "quota"


async def test_a_workload_that_somebody_deletes(client):
    kind, ref = await create(client, a_job("prepare", "echo up; exec sleep 100"))
    task = asyncio.create_task(watch(client, kind, ref))
    await watch(client, kind, ref, until=lambda event: isinstance(event, LogLines))
    await client.delete(kind.api.path(ref.namespace, ref.name), uid=ref.uid)
    followed = await task
    assert followed.outcome.phase is Phase.GONE
    diagnosis = followed.outcome.diagnosis
    assert (diagnosis.category, diagnosis.failure_class) == ("deleted", FailureClass.INFRASTRUCTURE)


async def test_a_workload_that_is_gone_before_the_first_look(client):
    kind, ref = await create(client, a_job("prepare"))
    await client.delete(kind.api.path(ref.namespace, ref.name), uid=ref.uid)
    assert (await watch(client, kind, ref)).outcome.diagnosis.category == "expired"


async def test_a_workload_that_is_over_already_gives_its_log_and_result(client):
    kind, ref = await create(client, a_job("prepare", "echo one; echo 42 > /dev/termination-log"))
    assert (await watch(client, kind, ref)).outcome.succeeded
    again = await watch(client, kind, ref)
    assert (again.outcome.succeeded, again.lines()) == (True, ["one"])
    assert [text.strip() for text in again.outcome.results.values()] == ["42"]


async def test_who_only_looks_changes_nothing(client):
    script = "case $INDEX in 0) exit 3;; *) exec sleep 100;; esac"
    kind, ref = await create(client, elastic(script, policy="Never"))
    followed = await watch(client, kind, ref, owner=None)
    assert not followed.outcome.succeeded
    assert await running_pods(client) == ["train-worker-1"]
    assert identity.OUTCOME_ANNOTATION not in (await current(client, ref))["metadata"]["annotations"]


async def test_a_workload_that_another_try_has_adopted_is_not_deleted(client):
    kind, ref = await create(client, a_job("prepare", "exec sleep 100"))
    adopted = {"metadata": {"annotations": {identity.OWNER_ANNOTATION: "new-try"}}}
    await client.merge_patch(kind.api.path(ref.namespace, ref.name), adopted)
    followed = await watch(client, kind, ref, timeout=1)
    assert followed.outcome.diagnosis.category == "timeout"
    assert any(text.startswith("Taken") for text in followed.warnings())
    assert await current(client, ref) is not None


async def test_a_cancellation_leaves_the_workload_alone_and_no_task_behind(client):
    kind, ref = await create(client, a_job("prepare", "echo up; exec sleep 100"))
    before = asyncio.all_tasks()
    seen = asyncio.Event()

    async def until_cancelled():
        async with aclosing(follow(client, kind, ref, owner=OWNER, options=FollowOptions())) as events:
            async for event in events:
                if isinstance(event, LogLines):
                    seen.set()

    task = asyncio.create_task(until_cancelled())
    async with asyncio.timeout(20):
        await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ours = ("follow Job", "log prepare", "log of prepare")
    left = [each for each in asyncio.all_tasks() - before if each.get_name().startswith(ours)]
    assert left == []
    assert ownership.owner_of(await current(client, ref)) == OWNER


async def test_every_line_once_and_in_order_though_the_reader_is_slow(client):
    kind, ref = await create(client, a_job("prepare", "seq 1 20000"))
    lines = []
    async with asyncio.timeout(60), aclosing(follow(client, kind, ref, owner=None, options=FollowOptions())) as events:
        async for event in events:
            if isinstance(event, LogLines):
                lines += [line.text for line in event.lines]
                await asyncio.sleep(0.005)
    assert lines == [str(number) for number in range(1, 20001)]


async def test_a_pod_that_the_controller_creates_again_after_failed_is_stopped_too(platform, client):
    kind, ref = await create(client, a_pytorchjob("train", "exit 3", workers=1, policy="Never"))
    obj = await current(client, ref)
    late = a_pod_manifest(obj, kind, name="train-worker-0-again")
    late["metadata"]["namespace"] = ref.namespace
    late["spec"]["containers"][0] |= {"name": "pytorch", "command": ["sleep", "100"]}
    followed = Followed()
    async with asyncio.timeout(30), aclosing(follow(client, kind, ref, owner=OWNER, options=FollowOptions())) as events:
        async for event in events:
            followed.events.append(event)
            if isinstance(event, PhaseChanged) and event.phase is Phase.FAILED:
                await platform.client.create(PODS, ref.namespace, late)
    assert followed.outcome.diagnosis.exit_code == 3
    await no_pod_runs(client)


async def test_a_role_that_may_not_watch_is_an_error_and_no_outcome(platform, client):
    kind, ref = await create(client, a_job("prepare", "exec sleep 100"))
    async with Client(access.from_fields(server=platform.server.url, ca=platform.server.ca_pem, token="wrong")) as stranger:
        with pytest.raises((AccessError, ClusterError)):
            await watch(stranger, kind, ref)
