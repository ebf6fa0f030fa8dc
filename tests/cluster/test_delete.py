"""Nothing is deleted that somebody else has taken over, and a delete that was begun is finished."""

import pytest

from airflow_mlxp import errors, identity, workloads
from airflow_mlxp.cluster import delete, ownership
from airflow_mlxp.cluster.delete import DeleteOutcome
from airflow_mlxp.workloads.base import PODS
from tests.support import api_client
from tests.support.objects import NAMESPACE, a_manifest, a_pod_manifest

JOB = workloads.get("Job")


@pytest.fixture
async def server():
    async with api_client.api_server() as server:
        yield server


@pytest.fixture
async def client(server):
    async with api_client.api_client(server) as client:
        yield client


async def create(client, owner="me", **meta):
    manifest = a_manifest()
    manifest["metadata"] |= {"annotations": {identity.OWNER_ANNOTATION: owner} if owner else {}} | meta
    return (await client.create(JOB.api, NAMESPACE, manifest)).object


async def set_owner(client, obj, owner):
    body = {"metadata": {"annotations": {identity.OWNER_ANNOTATION: owner}}}
    await client.merge_patch(JOB.api.path(NAMESPACE, obj["metadata"]["name"]), body)


async def fenced_delete(client, obj, *, owner="me", by="me"):
    ref = ownership.ref_of(JOB, obj)
    return await delete.fenced_delete(client, JOB, ref, owner=owner, by=by, grace_seconds=1)


async def exists(client, obj):
    return await ownership.read(client, JOB, ownership.ref_of(JOB, obj)) is not None


@pytest.mark.parametrize("owner", ["me", None])
async def test_deletes_its_own(client, owner):
    obj = await create(client)
    assert await fenced_delete(client, obj, owner=owner) is DeleteOutcome.DELETED
    assert not await exists(client, obj)


async def test_deletes_what_nobody_owns_when_asked_to_take_anything(client):
    obj = await create(client, owner="")
    assert await fenced_delete(client, obj, owner=None) is DeleteOutcome.DELETED
    assert not await exists(client, obj)


async def test_leaves_alone_what_a_new_try_has_adopted(client):
    obj = await create(client, owner="new-try")
    assert await fenced_delete(client, obj) is DeleteOutcome.TAKEN
    assert await exists(client, obj)


async def test_an_adoption_between_look_and_swap_wins(client):
    obj = await create(client)
    client.before["json_patch"].append(lambda: set_owner(client, obj, "new-try"))
    assert await fenced_delete(client, obj) is DeleteOutcome.TAKEN
    assert ownership.owner_of(await ownership.read(client, JOB, ownership.ref_of(JOB, obj))) == "new-try"


async def test_settling_reads_again_after_it_lost_the_swap(client):
    obj = await create(client)
    client.before["json_patch"].append(lambda: set_owner(client, obj, "another"))
    assert await fenced_delete(client, obj, owner=None) is DeleteOutcome.DELETED
    assert not await exists(client, obj)


async def test_finishes_a_delete_that_somebody_else_began(client):
    obj = await create(client, owner="deleting/sweep")
    assert await fenced_delete(client, obj) is DeleteOutcome.DELETED
    assert not await exists(client, obj)


async def test_goes_on_when_the_answer_to_its_own_swap_was_lost(client):
    async def lose_the_answer():
        raise errors.Unprocessable(422, message="the test failed")  # what the repeated request would be told

    obj = await create(client)
    client.after["json_patch"].append(lose_the_answer)
    assert await fenced_delete(client, obj) is DeleteOutcome.DELETED
    assert not await exists(client, obj)


async def test_gone_is_no_error(client):
    obj = await create(client)
    await fenced_delete(client, obj)
    assert await fenced_delete(client, obj) is DeleteOutcome.GONE


async def test_a_namesake_is_not_touched(client):
    old = await create(client)
    await fenced_delete(client, old)
    new = await create(client)
    assert await fenced_delete(client, old) is DeleteOutcome.GONE
    assert await exists(client, new)


async def test_waits_until_the_pods_are_gone_too(client):
    obj = await create(client)
    pod = (await client.create(PODS, NAMESPACE, a_pod_manifest(obj, JOB))).object
    stray = (await client.create(PODS, NAMESPACE, a_pod_manifest(obj, JOB, name="stray", owned=False))).object
    ref = ownership.ref_of(JOB, obj)
    assert not await delete.wait_until_gone(client, JOB, ref, timeout=0)
    assert [found["metadata"]["name"] for found in await delete.pods_of(client, JOB, ref)] == [pod["metadata"]["name"]]
    await fenced_delete(client, obj)
    assert await delete.wait_until_gone(client, JOB, ref, timeout=10)
    assert (await client.get(PODS.path(NAMESPACE, "stray")))["metadata"]["uid"] == stray["metadata"]["uid"]


async def test_stops_pods_once(client):
    obj = await create(client)
    pod = (await client.create(PODS, NAMESPACE, a_pod_manifest(obj, JOB))).object
    assert await delete.stop_pods(client, [pod], grace_seconds=0) == 1
    assert await delete.stop_pods(client, [pod], grace_seconds=0) == 0
