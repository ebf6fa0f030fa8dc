"""Submission against real admission: one create for one try, and refusals that name their reason."""

import pytest

from airflow_mlxp import errors, identity, workloads
from airflow_mlxp.cluster.submit import submit
from airflow_mlxp.local.client import JOBS, PYTORCHJOBS
from airflow_mlxp.naming import workload_name
from tests.real_cluster.seed import ROLES, USER, USER_RULES
from tests.support.objects import a_try
from tests.support.platform import a_job, a_pytorchjob

TOO_MUCH = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}


async def send(client, manifest, *, number=1, reports=None):
    own, kind = a_try(number), workloads.get(manifest["kind"])
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": client.access.namespace}}
    stamped = identity.stamp(body, own, kind.pod_templates_of, name=workload_name("train", own.ti_id))
    report = (reports if reports is not None else []).append
    return await submit(client, workload=kind, manifest=stamped, identity=own, grace_seconds=1, report=report)


async def objects_of(platform, resource):
    return (await platform.client.list(resource, platform.namespace))["items"]


@pytest.mark.parametrize("manifest", [a_job("train", "sleep 100"), a_pytorchjob("train", "sleep 100")], ids=["Job", "PyTorchJob"])
async def test_one_try_is_one_create_and_the_next_goes_on_with_it(client, platform, manifest):
    first = await send(client, manifest)
    second = await send(client, manifest, number=2)
    assert (first.adopted, second.adopted, second.ref) == (False, True, first.ref)
    creates = [entry for entry in platform.requests(verb="create") if entry["objectRef"]["resource"] in {"jobs", "pytorchjobs"}]
    real = [entry for entry in creates if "dryRun" not in entry["requestURI"]]
    assert len(real) == 1
    assert {entry["user"]["username"] for entry in creates} == {f"system:serviceaccount:{platform.namespace}:{USER}"}


async def test_another_spec_replaces_what_an_earlier_try_left(client, platform):
    first = await send(client, a_job("train", "sleep 100"))
    second = await send(client, a_job("train", "sleep 99"), number=2)
    assert not second.adopted
    assert [obj["metadata"]["uid"] for obj in await objects_of(platform, JOBS)] == [second.ref.uid]
    assert first.ref.uid != second.ref.uid


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (a_job(ttlSeconds=5), 'strict decoding error: unknown field "spec.ttlSeconds"'),
        (a_pytorchjob(ttlSecondsAfterFinished=5), 'unknown field "spec.ttlSecondsAfterFinished"'),
        (a_pytorchjob(container={"name": "main"}), "pytorch"),
        (
            a_job(container={"resources": TOO_MUCH}),
            "must be less than or equal to cpu",
        ),
    ],
    ids=["unknown field of a Job", "unknown field of a PyTorchJob", "webhook", "validation"],
)
async def test_a_refusal_is_the_servers_own_and_nothing_is_created(client, platform, manifest, message):
    with pytest.raises(errors.PermanentFailure, match=message) as refused:
        await send(client, manifest)
    assert refused.value.diagnosis.category == "refused"
    assert await objects_of(platform, JOBS) + await objects_of(platform, PYTORCHJOBS) == []


async def test_a_right_that_is_missing_is_named(client, platform):
    rules = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} for rule in USER_RULES]
    await platform.client.patch(ROLES, platform.namespace, USER, {"rules": rules})
    with pytest.raises(errors.PermanentFailure, match='cannot create resource "jobs" in API group "batch"'):
        await send(client, a_job())
