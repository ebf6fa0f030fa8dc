"""Create, read, change and delete objects on the embedded API server."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from airflow_mlxp.local.server import Denied
from tests.local.conftest import (
    JOBS,
    JSON_PATCH,
    MERGE_PATCH,
    PODS,
    PYTORCH_JOBS,
    STRATEGIC,
    a_job,
    a_pod,
    a_pod_spec,
    a_pytorchjob,
)


async def test_a_request_without_credential_is_refused(http):
    http.headers = {}
    reply = await http("GET", JOBS)
    assert (reply.code, reply.body["reason"], reply.message) == (401, "Unauthorized", "Unauthorized")
    assert (await http("GET", "/readyz")).body == "ok"


async def test_a_token_can_be_taken_back(server, http):
    server.tokens["other"] = "ann"
    http.headers = {"Authorization": "Bearer other"}
    assert (await http("GET", JOBS)).code == 200
    del server.tokens["other"]
    assert (await http("GET", JOBS)).code == 401
    assert [(record.user, record.code) for record in server.audit][-2:] == [("ann", 200), ("", 401)]


async def test_a_right_can_be_taken_away(server, http):
    server.tokens["other"] = "ann"
    server.denied |= {Denied("ann", "watch", "jobs"), Denied("ann", "get", "pods/log")}
    http.headers = {"Authorization": "Bearer other"}
    assert (await http("GET", JOBS)).code == 200
    reply = await http("GET", JOBS, watch="true")
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    text = 'User "ann" cannot watch resource "jobs" in API group "batch" in the namespace "p-demo"'
    assert reply.message == f"jobs.batch is forbidden: {text}"
    reply = await http("GET", f"{PODS}/worker/log")
    text = 'User "ann" cannot get resource "pods/log" in API group "" in the namespace "p-demo"'
    assert reply.message == f'pods "worker" is forbidden: {text}'


async def test_a_job_gets_the_defaults_and_identity_of_the_real_server(http):
    job = await http.create(JOBS, a_job())
    uid = job["metadata"]["uid"]
    identity = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "train",
        "controller-uid": uid,
        "job-name": "train",
    }
    assert job["metadata"]["labels"] == identity
    assert job["metadata"]["generation"] == 1
    assert job["status"] == {}
    template = job["spec"].pop("template")
    assert template["metadata"]["labels"] == identity
    assert job["spec"] == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        "manualSelector": False,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
    }
    assert template["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert template["spec"]["terminationGracePeriodSeconds"] == 30


async def test_a_pod_gets_defaults_and_requests_from_limits(http):
    limits = {"cpu": "0.5", "nvidia.com/gpu": 1, "memory": "2048Mi"}
    container = {"name": "main", "image": "train", "resources": {"limits": limits}}
    pod = await http.create(PODS, a_pod(spec={"containers": [container]}))
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"] == {"cpu": "500m", "nvidia.com/gpu": "1", "memory": "2Gi"}
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["spec"]["serviceAccountName"] == "default"
    assert pod["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}


async def test_a_pytorchjob_is_stored_as_it_was_sent_with_the_defaults_of_its_crd(http):
    sent = a_pytorchjob()
    stored = await http.create(PYTORCH_JOBS, sent)
    assert stored["spec"] == sent["spec"]
    assert "status" not in stored
    sent = a_pytorchjob("limited")
    sent["spec"]["runPolicy"] = {"backoffLimit": 3}
    stored = await http.create(PYTORCH_JOBS, sent)
    assert stored["spec"]["runPolicy"] == {"backoffLimit": 3, "suspend": False}


async def test_names_are_taken_once(http):
    await http.create(JOBS, a_job())
    reply = await http("POST", JOBS, a_job())
    assert (reply.code, reply.body["reason"]) == (409, "AlreadyExists")
    assert reply.message == 'jobs.batch "train" already exists'
    assert reply.body["details"] == {"name": "train", "group": "batch", "kind": "jobs"}


async def test_generated_names_differ(http):
    names = {(await http.create(PODS, a_pod("", generateName="train-")))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("train-") and len(name) == 11 for name in names)


async def test_missing_objects_namespaces_and_resources(http):
    reply = await http("GET", f"{JOBS}/train")
    assert (reply.code, reply.message) == (404, 'jobs.batch "train" not found')
    reply = await http("POST", "/apis/batch/v1/namespaces/nowhere/jobs", a_job())
    assert (reply.code, reply.message) == (404, 'namespaces "nowhere" not found')
    assert (await http("GET", "/apis/batch/v1/namespaces/p-demo/cronjobs")).code == 404
    assert (await http("POST", f"{JOBS}/train", {})).code == 405


async def test_dry_run_checks_all_and_stores_nothing(http):
    reply = await http("POST", JOBS, a_job(), dryRun="All")
    assert reply.code == 201
    assert reply.body["metadata"]["uid"]
    assert (await http("GET", JOBS)).names == []
    assert (await http("POST", JOBS, a_job(), dryRun="Some")).code == 422


async def test_status_is_written_through_its_subresource_only(http):
    job = await http.create(JOBS, a_job() | {"status": {"active": 7}})
    assert job["status"] == {}
    reply = await http("PATCH", f"{JOBS}/train", {"status": {"active": 1}}, media_type=MERGE_PATCH)
    assert reply.body["status"] == {}
    patch = {"status": {"active": 1}, "spec": {"parallelism": 9}}
    reply = await http("PATCH", f"{JOBS}/train/status", patch, media_type=MERGE_PATCH)
    assert reply.body["status"] == {"active": 1}
    assert reply.body["spec"]["parallelism"] == 1
    assert reply.body["metadata"]["generation"] == 1


async def test_generation_counts_changes_of_the_spec(http):
    await http.create(JOBS, a_job())
    reply = await http("PATCH", f"{JOBS}/train", {"spec": {"suspend": True}}, media_type=MERGE_PATCH)
    assert reply.body["metadata"]["generation"] == 2
    before = reply.body["metadata"]["resourceVersion"]
    reply = await http("PATCH", f"{JOBS}/train", {"spec": {"suspend": True}}, media_type=MERGE_PATCH)
    assert reply.body["metadata"]["resourceVersion"] == before


async def test_an_update_of_an_old_version_conflicts(http):
    job = await http.create(JOBS, a_job())
    await http("PATCH", f"{JOBS}/train", {"metadata": {"labels": {"a": "b"}}}, media_type=MERGE_PATCH)
    reply = await http("PUT", f"{JOBS}/train", job)
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert reply.message.startswith('Operation cannot be fulfilled on jobs.batch "train": the object has been modified;')
    reply = await http(
        "PUT", f"{PYTORCH_JOBS}/train", await http.create(PYTORCH_JOBS, a_pytorchjob()) | {"metadata": {"name": "train"}}
    )
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")


async def test_a_json_patch_swaps_an_owner_only_while_it_is_the_expected(http):
    await http.create(JOBS, a_job(annotations={"airflow-mlxp/owner": "one"}))
    path = "/metadata/annotations/airflow-mlxp~1owner"

    def swap(expected, wanted):
        operations = [{"op": "test", "path": path, "value": expected}, {"op": "replace", "path": path, "value": wanted}]
        return http("PATCH", f"{JOBS}/train", operations, media_type=JSON_PATCH)

    replies = await asyncio.gather(swap("one", "two"), swap("one", "three"))
    assert sorted(reply.code for reply in replies) == [200, 422]
    refused = next(reply for reply in replies if reply.code == 422)
    assert (refused.body["reason"], refused.message) == (
        "Invalid",
        "the server rejected our request due to an error in our request",
    )


async def test_a_strategic_merge_patch_merges_lists_by_key_and_is_no_way_for_custom_resources(http):
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    await http.create(PODS, a_pod(spec={"containers": [{"name": "main", "image": "a", "env": env}]}))
    conditions = [{"type": "Ready", "status": "False"}]
    await http("PATCH", f"{PODS}/worker/status", {"status": {"conditions": conditions}}, media_type=STRATEGIC)
    patch = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}}
    reply = await http("PATCH", f"{PODS}/worker/status", patch, media_type=STRATEGIC)
    assert {c["type"]: c["status"] for c in reply.body["status"]["conditions"]} == {"Ready": "True", "PodScheduled": "True"}
    await http.create(PYTORCH_JOBS, a_pytorchjob())
    reply = await http("PATCH", f"{PYTORCH_JOBS}/train", {}, media_type=STRATEGIC)
    assert (reply.code, reply.body["reason"]) == (415, "UnsupportedMediaType")


async def test_server_side_apply_creates_and_merges(http):
    media_type = "application/apply-patch+yaml"
    assert (await http("PATCH", f"{JOBS}/train", a_job(), media_type=media_type)).code == 422
    reply = await http("PATCH", f"{JOBS}/train", a_job(), media_type=media_type, fieldManager="me")
    assert reply.code == 201
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {"a": "b"}}}
    reply = await http("PATCH", f"{JOBS}/train", body, media_type=media_type, fieldManager="me")
    assert reply.body["metadata"]["labels"]["a"] == "b"


async def test_the_template_of_a_job_is_immutable(http):
    await http.create(JOBS, a_job())
    patch = {"spec": {"template": {"spec": {"dnsPolicy": "Default"}}}}
    reply = await http("PATCH", f"{JOBS}/train", patch, media_type=MERGE_PATCH)
    assert reply.code == 422
    assert reply.message.startswith('Job.batch "train" is invalid: spec.template: Invalid value:')
    assert reply.message.endswith("field is immutable")


async def test_delete_checks_its_preconditions(http):
    job = await http.create(JOBS, a_job())
    uid = job["metadata"]["uid"]
    reply = await http("DELETE", f"{JOBS}/train", {"preconditions": {"uid": "other"}})
    assert (reply.code, reply.body["reason"]) == (409, "Conflict")
    assert f"does not match the UID in record ({uid})" in reply.message
    reply = await http("DELETE", f"{JOBS}/train", {"preconditions": {"uid": uid}, "propagationPolicy": "Background"})
    assert reply.body["status"] == "Success"
    assert reply.body["details"] == {"name": "train", "group": "batch", "kind": "jobs", "uid": uid}
    assert (await http("DELETE", f"{JOBS}/train")).code == 404


async def test_a_pod_on_a_node_ends_gracefully(http):
    await http.create(PODS, a_pod())
    binding = {"metadata": {"name": "worker"}, "target": {"kind": "Node", "name": "node"}}
    assert (await http("POST", f"{PODS}/worker/binding", binding)).code == 201
    assert (await http("POST", f"{PODS}/worker/binding", binding)).code == 409
    reply = await http("DELETE", f"{PODS}/worker", {"gracePeriodSeconds": 7})
    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 7
    pod = (await http("GET", f"{PODS}/worker")).body
    until = dt.datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    assert pod["metadata"]["generation"] == 2
    reply = await http("DELETE", f"{PODS}/worker", gracePeriodSeconds="0")
    last = reply.body["metadata"]
    assert (last["deletionGracePeriodSeconds"], last["generation"]) == (0, 2)
    assert dt.datetime.fromisoformat(last["deletionTimestamp"]) == until - dt.timedelta(seconds=7)
    assert (await http("GET", f"{PODS}/worker")).code == 404


async def test_a_pod_without_a_node_goes_at_once(http):
    await http.create(PODS, a_pod())
    assert (await http("DELETE", f"{PODS}/worker")).body["kind"] == "Pod"
    assert (await http("GET", f"{PODS}/worker")).code == 404


async def test_finalizers_hold_an_object(http):
    await http.create(PODS, a_pod(finalizers=["batch.kubernetes.io/job-tracking"]))
    assert (await http("DELETE", f"{PODS}/worker")).body["metadata"]["deletionTimestamp"]
    assert (await http("GET", f"{PODS}/worker")).code == 200
    await http("PATCH", f"{PODS}/worker", {"metadata": {"finalizers": None}}, media_type=MERGE_PATCH)
    assert (await http("GET", f"{PODS}/worker")).code == 404


async def _owned(http) -> str:
    uid = (await http.create(JOBS, a_job()))["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True, "blockOwnerDeletion": True}
    await http.create(PODS, a_pod(ownerReferences=[owner]))
    return uid


async def _wait_until_gone(http, path):
    async with asyncio.timeout(10):
        async for event in http.watch(path):
            if event["type"] == "DELETED":
                return


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_dependents_go_with_their_owner(http, policy):
    await _owned(http)
    reply = await http("DELETE", f"{JOBS}/train", {"propagationPolicy": policy})
    assert reply.code == 200
    if (await http("GET", PODS)).names:
        await _wait_until_gone(http, PODS)
    if (await http("GET", JOBS)).names:
        await _wait_until_gone(http, JOBS)
    assert (await http("GET", PODS)).names == []


async def test_foreground_deletion_waits_for_running_pods(http):
    await _owned(http)
    await http("POST", f"{PODS}/worker/binding", {"metadata": {"name": "worker"}, "target": {"name": "node"}})
    reply = await http("DELETE", f"{JOBS}/train", {"propagationPolicy": "Foreground"})
    assert reply.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    async with asyncio.timeout(10):
        async for event in http.watch(PODS):
            if "deletionTimestamp" in event["object"]["metadata"]:
                break
    assert (await http("GET", f"{JOBS}/train")).code == 200
    await http("DELETE", f"{PODS}/worker", {"gracePeriodSeconds": 0})
    if (await http("GET", JOBS)).names:
        await _wait_until_gone(http, JOBS)


async def test_a_job_orphans_its_pods_unless_told_otherwise(http):
    await _owned(http)
    assert (await http("DELETE", f"{JOBS}/train")).body["metadata"]["finalizers"] == ["orphan"]
    if (await http("GET", JOBS)).names:
        await _wait_until_gone(http, JOBS)
    pod = (await http("GET", f"{PODS}/worker")).body
    assert "ownerReferences" not in pod["metadata"]


async def test_an_object_without_living_owner_is_collected(http):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "nobody"}
    await http.create(PODS, a_pod(ownerReferences=[owner]))
    if (await http("GET", PODS)).names:
        await _wait_until_gone(http, PODS)


async def test_a_namespace_goes_with_its_content(http):
    await http.create(JOBS, a_job())
    reply = await http("DELETE", "/api/v1/namespaces/p-demo")
    assert reply.body["status"]["phase"] == "Terminating"
    reply = await http("POST", JOBS, a_job("late"))
    if reply.code == 403:
        assert "because it is being terminated" in reply.message
    if (await http("GET", "/api/v1/namespaces/p-demo")).code == 200:
        await _wait_until_gone(http, "/api/v1/namespaces")
    assert (await http("GET", JOBS)).names == []


async def test_delete_collection_takes_a_selector(http):
    await http.create(PODS, a_pod("a", labels={"app": "x"}))
    await http.create(PODS, a_pod("b", labels={"app": "y"}))
    reply = await http("DELETE", PODS, labelSelector="app=x")
    assert reply.names == ["a"]
    assert (await http("GET", PODS)).names == ["b"]


async def test_the_server_can_be_stopped_and_started_again(server, http):
    await http.create(JOBS, a_job(spec={"template": {"spec": a_pod_spec()}}))
    await server.stop()
    await server.start()
    assert (await http("GET", JOBS)).names == ["train"]
