"""One live workload for one task, whatever earlier tries left and whatever happens in between."""

import asyncio
from copy import deepcopy

import pytest

from airflow_mlxp import errors, identity, workloads
from airflow_mlxp.cluster import access, settle
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.cluster.settings import Settings
from airflow_mlxp.cluster.submit import submit
from airflow_mlxp.models import FailureClass
from airflow_mlxp.naming import workload_name
from airflow_mlxp.workloads.base import PODS
from tests.support import api_client
from tests.support.api_server import Reply, scripted_server, status
from tests.support.objects import NAMESPACE, a_manifest, a_pod_manifest, a_try, ti_id

JOB = workloads.get("Job")
JOBS = JOB.api.path(NAMESPACE)


@pytest.fixture
async def server():
    async with api_client.api_server() as server:
        yield server


@pytest.fixture
async def client(server):
    async with api_client.api_client(server) as client:
        yield client


@pytest.fixture
def reports():
    return []


def stamped(own, manifest=None, *, name=""):
    name = name or workload_name("prepare", own.ti_id)
    return identity.stamp(manifest or a_manifest(), own, JOB.pod_templates_of, name=name)


async def run(client, own, reports, manifest=None, *, name="", **options):
    manifest = stamped(own, manifest, name=name)
    return await submit(client, workload=JOB, manifest=manifest, identity=own, report=reports.append, **options)


async def left_by(client, number, *, manifest=None, conditions=(), **changes):
    """What try ``number`` has left on the cluster."""
    own = a_try(number, **changes)
    obj = (await client.create(JOB.api, NAMESPACE, stamped(own, manifest))).object
    if conditions:
        path = JOB.api.path(NAMESPACE, obj["metadata"]["name"]) + "/status"
        listed = [{"type": kind, "status": "True"} for kind in conditions]
        obj = await client.merge_patch(path, {"status": {"conditions": listed}})
    return obj


async def names(client):
    return {obj["metadata"]["name"] for obj in (await client.list(JOB.api, NAMESPACE)).items}


def creates(server):
    return [record for record in server.audit if record.method == "POST" and "dryRun" not in record.query]


async def test_one_task_is_one_create(client, server, reports):
    submission = await run(client, a_try(), reports)
    assert (submission.adopted, submission.ref.name) == (False, workload_name("prepare", ti_id(1)))
    assert await names(client) == {submission.ref.name}
    assert [line for line in reports if "created" in line] == [f"Job {NAMESPACE}/{submission.ref.name} created"]
    posts = [record for record in server.audit if record.method == "POST"]
    assert [record.path for record in posts] == [JOBS, JOBS], "a dry run and a create of the Job, nothing else"


async def test_goes_on_with_the_object_of_a_create_whose_answer_was_lost(client, reports):
    first = await left_by(client, 1)
    again = await run(client, a_try(start_date=None), reports)
    assert (again.ref.uid, again.adopted) == (first["metadata"]["uid"], True)


async def test_an_answer_lost_at_the_create_itself_is_found_by_its_name(client, reports):
    async def lose_the_answer():
        raise errors.Conflict(409, reason="AlreadyExists", message="already exists")  # what the repeated request would be told

    client.after["create"].append(lose_the_answer)
    submission = await run(client, a_try(), reports)
    assert await names(client) == {submission.ref.name}


async def test_a_name_that_is_taken_fails_and_says_by_whom(client, reports):
    await left_by(client, 7, dag_id="another")
    taken = workload_name("prepare", ti_id(7))
    with pytest.raises(errors.PermanentFailure, match=f"{taken} exists already and is owned by {ti_id(7)}"):
        await run(client, a_try(), reports, name=taken)
    assert await names(client) == {taken}


async def test_goes_on_with_what_a_lost_worker_left_running(client, server, reports):
    left = await left_by(client, 1)
    before = len(creates(server))
    submission = await run(client, a_try(2), reports)
    assert (submission.adopted, submission.ref.uid) == (True, left["metadata"]["uid"])
    assert len(creates(server)) == before
    now = await client.get(JOB.api.path(NAMESPACE, submission.ref.name))
    assert now["metadata"]["annotations"][identity.OWNER_ANNOTATION] == ti_id(2)
    assert now["metadata"]["annotations"][identity.TI_ID_ANNOTATION] == ti_id(1)


async def test_an_adoption_that_lost_the_swap_reads_again(client, reports):
    left = await left_by(client, 1)
    owner = {"metadata": {"annotations": {identity.OWNER_ANNOTATION: "deleting/sweep"}}}
    path = JOB.api.path(NAMESPACE, left["metadata"]["name"])
    client.before["json_patch"].append(lambda: client.merge_patch(path, owner))
    submission = await run(client, a_try(2), reports)
    assert not submission.adopted, "what is being deleted is never adopted"
    assert await names(client) == {submission.ref.name}


async def test_takes_the_result_of_a_success_that_nobody_read(client, reports):
    left = await left_by(client, 1, conditions=["SuccessCriteriaMet", "Complete"])
    assert (await run(client, a_try(2), reports)).ref.uid == left["metadata"]["uid"]


async def test_leaves_a_finished_one_and_submits_anew(client, reports):
    left = await left_by(client, 1, conditions=["FailureTarget", "Failed"])
    submission = await run(client, a_try(2), reports)
    assert await names(client) == {left["metadata"]["name"], submission.ref.name}


async def test_deletes_what_runs_with_another_manifest_before_it_creates(client, reports):
    left = await left_by(client, 1, manifest=a_manifest(backoffLimit=3))
    submission = await run(client, a_try(2), reports)
    assert await names(client) == {submission.ref.name}
    assert any(f"{left['metadata']['name']} of an earlier try is" in line for line in reports)


async def test_a_failed_one_with_pods_that_still_run_is_deleted(client, reports):
    left = await left_by(client, 1, conditions=["FailureTarget", "Failed"])
    await client.create(PODS, NAMESPACE, a_pod_manifest(left, JOB))
    submission = await run(client, a_try(2), reports)
    assert await names(client) == {submission.ref.name}
    assert (await client.list(PODS, NAMESPACE)).items == []


async def test_a_predecessor_that_does_not_go_is_the_platforms_fault(client, server, reports, monkeypatch):
    monkeypatch.setattr(settle, "_REMOVAL_SECONDS", 0.0)
    left = await left_by(client, 1, manifest=a_manifest(backoffLimit=3))
    path = JOB.api.path(NAMESPACE, left["metadata"]["name"])
    await client.merge_patch(path, {"metadata": {"finalizers": ["example.com/never"]}})
    before = len(creates(server))
    with pytest.raises(errors.InfrastructureFailure, match="still exists") as caught:
        await run(client, a_try(2), reports, grace_seconds=0)
    assert caught.value.diagnosis.category == "predecessor"
    assert len(creates(server)) == before, "no second workload beside the one that does not go"


async def test_a_newer_try_stops_an_older_one(client, reports):
    newer = await left_by(client, 2)
    with pytest.raises(errors.InfrastructureFailure, match="newer try"):
        await run(client, a_try(1), reports)
    assert await names(client) == {newer["metadata"]["name"]}


async def test_an_older_try_that_meets_a_newer_one_after_its_create_takes_back_its_own(client, reports):
    client.before["create"].append(lambda: left_by(client, 2))
    with pytest.raises(errors.InfrastructureFailure, match="newer try"):
        await run(client, a_try(1), reports)
    assert await names(client) == {workload_name("prepare", ti_id(2))}


async def test_a_newer_try_removes_what_an_older_one_created_at_the_same_time(client, reports):
    client.before["create"].append(lambda: left_by(client, 1))
    submission = await run(client, a_try(2), reports)
    assert await names(client) == {submission.ref.name}


async def test_another_airflows_workload_is_left_alone_and_told_once(client, reports):
    foreign = await left_by(client, 1, start_date=None)
    submission = await run(client, a_try(2), reports)
    assert await names(client) == {foreign["metadata"]["name"], submission.ref.name}
    assert len([line for line in reports if "left alone" in line]) == 1


async def test_a_manifest_that_the_server_refuses_fails_with_its_words_and_creates_nothing(client, server, reports):
    manifest = a_manifest()
    manifest["spec"]["ttlSecondsAfterFinish"] = 60
    with pytest.raises(errors.PermanentFailure, match=r'unknown field "spec.ttlSecondsAfterFinish"') as caught:
        await run(client, a_try(), reports, manifest)
    assert caught.value.diagnosis.category == "refused"
    assert await names(client) == set()
    assert creates(server) == []


async def test_a_cancellation_between_request_and_answer_leaves_nothing(client, reports):
    stored, answered = asyncio.Event(), asyncio.Event()

    async def hold_back_the_answer():
        stored.set()
        await answered.wait()

    client.after["create"].append(hold_back_the_answer)
    task = asyncio.create_task(run(client, a_try(), reports))
    await stored.wait()
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, answered.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await names(client) == set()


async def test_a_cancelled_create_that_is_never_answered_is_looked_up_by_name(client, reports, monkeypatch):
    monkeypatch.setattr("airflow_mlxp.cluster.submit._ANSWER_SECONDS", 0.05)
    stored = asyncio.Event()

    async def never_answer():
        stored.set()
        await asyncio.Event().wait()

    client.after["create"].append(never_answer)
    task = asyncio.create_task(run(client, a_try(), reports))
    await stored.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await names(client) == set()


EMPTY = Reply(200, {"kind": "JobList", "metadata": {"resourceVersion": "1"}, "items": []})


@pytest.fixture
async def scripted():
    async with scripted_server() as server:
        server.on("GET", JOBS, EMPTY)
        yield server


async def run_against(server, reports, **settings):
    config = access.from_fields(server=server.url, namespace=NAMESPACE)
    quick = Settings(request_deadline=0.2, backoff_initial=0.01, **settings)
    async with Client(config, settings=quick) as client:
        return await run(client, a_try(), reports)


def created():
    obj = deepcopy(stamped(a_try()))
    obj["metadata"]["uid"] = "1"
    return Reply(201, obj)


async def test_a_webhook_without_dry_run_is_told_and_the_create_stays_strict(scripted, reports):
    message = 'admission webhook "x" does not support dry run'
    scripted.on("POST", JOBS, status(400, "BadRequest", message), created())
    await run_against(scripted, reports)
    dry, real = scripted.seen("POST", JOBS)
    assert dry.query == {"dryRun": "All", "fieldValidation": "Strict"}
    assert real.query == {"fieldValidation": "Strict"}
    assert any("does not support dry run" in line for line in reports)


@pytest.mark.parametrize(
    ("answer", "category", "failure_class"),
    [
        (status(500, "InternalError", 'failed calling webhook "v": connection refused'), "api_server", "infrastructure"),
        (status(403, "Forbidden", "exceeded quota: q, requested: count/jobs.batch=1"), "quota", "infrastructure"),
        (status(403, "Forbidden", "User cannot create resource jobs"), "refused", "permanent"),
        (status(404, "NotFound", 'namespaces "p-demo" not found'), "refused", "permanent"),
        (status(422, "Invalid", "spec.template: Required value"), "refused", "permanent"),
        (status(401, "Unauthorized", "Unauthorized"), "api_server", "infrastructure"),
    ],
)
async def test_who_has_to_act_on_a_refusal(scripted, reports, answer, category, failure_class):
    scripted.on("POST", JOBS, answer)
    with pytest.raises(errors.WorkloadError) as caught:
        await run_against(scripted, reports)
    found = caught.value.diagnosis
    assert (found.category, found.failure_class) == (category, FailureClass(failure_class))
    assert answer.body["message"] in found.sentence
    assert all("dryRun" in request.query for request in scripted.seen("POST", JOBS)), "nothing was created"


async def test_a_409_without_an_object_is_a_busy_quota_and_repeated(scripted, reports):
    path = JOB.api.path(NAMESPACE, workload_name("prepare", ti_id(1)))
    busy = status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas: please apply your changes")
    scripted.on("POST", JOBS, created(), busy, created())
    scripted.on("GET", path, status(404, "NotFound"))
    submission = await run_against(scripted, reports)
    assert submission.ref.uid == "1"
