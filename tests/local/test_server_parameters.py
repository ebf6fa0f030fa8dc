"""Parameters and bodies that can't be understood: the same answers as those of kube-apiserver 1.34.2."""

from __future__ import annotations

import pytest

from tests.local.conftest import JOBS, JSON_PATCH, MERGE_PATCH, PODS, PYTORCH_JOBS, STRATEGIC, a_job, a_pod, a_pytorchjob

OTHER_UID = "11111111-1111-1111-1111-111111111111"


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", JOBS, {"limit": "{}"}),
        ("GET", PYTORCH_JOBS, {"limit": "{}"}),
        ("GET", JOBS, {"timeoutSeconds": "{}"}),
        ("GET", JOBS, {"watch": "true", "timeoutSeconds": "{}"}),
        ("DELETE", JOBS, {"limit": "{}"}),
        ("DELETE", f"{JOBS}/train", {"gracePeriodSeconds": "{}"}),
        ("GET", f"{PODS}/worker/log", {"tailLines": "{}"}),
        ("GET", f"{PODS}/worker/log", {"limitBytes": "{}"}),
        ("GET", f"{PODS}/worker/log", {"sinceSeconds": "{}"}),
    ],
)
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "invalid syntax"),
        ("1.5", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("", "invalid syntax"),
        ("9" * 20, "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
async def test_what_is_no_integer(http, method, path, query, text, why):
    await http.create(PODS, a_pod())
    reply = await http(method, path, **{name: value.format(text) for name, value in query.items()})
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")
    assert reply.message == f'strconv.ParseInt: parsing "{text}": {why}'


async def test_a_limit_below_one_is_none(http):
    await http.create(JOBS, a_job())
    assert (await http("GET", JOBS, limit="-1")).names == (await http("GET", JOBS, limit="0")).names == ["train"]


@pytest.mark.parametrize("text", ["x", "", "TRUE", "2"])
async def test_every_text_but_false_and_0_is_true(http, text):
    await http.create(JOBS, a_job())
    events = [event async for event in http.watch(JOBS, watch=text, timeoutSeconds="1")]
    assert [event["type"] for event in events] == ["ADDED"]
    assert (await http("GET", JOBS, watch="FALSE")).names == (await http("GET", JOBS, watch="0")).names == ["train"]


async def test_what_is_no_version(http):
    await http.create(JOBS, a_job())
    text = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    reply = await http("GET", JOBS, resourceVersion="x")
    assert (reply.code, reply.message) == (400, f"invalid resource version: {text}")
    for path, query in ((JOBS, {"watch": "true"}), (f"{JOBS}/train", {})):
        reply = await http("GET", path, resourceVersion="x", **query)
        assert (reply.code, reply.body.get("reason"), reply.message) == (500, None, text)


async def test_list_parameters_that_exclude_each_other(http):
    reply = await http("GET", JOBS, resourceVersionMatch="Exact")
    assert "resourceVersionMatch is forbidden unless resourceVersion is provided" in reply.message
    reply = await http("GET", JOBS, sendInitialEvents="true")
    assert (reply.code, "sendInitialEvents is forbidden for list" in reply.message) == (422, True)


PATCHED = {
    f"{JOBS}/train": "Job.batch",
    f"{JOBS}/train/status": "Job.batch",
    f"{PYTORCH_JOBS}/train": "PyTorchJob.kubeflow.org",
    f"{PODS}/train": "Pod",
    f"{PODS}/train/status": "Pod",
}
"""The kind that an error names, by path."""


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        (path, media_type)
        for path in PATCHED
        for media_type in (MERGE_PATCH, JSON_PATCH, STRATEGIC)
        if (path, media_type) != (f"{PYTORCH_JOBS}/train", STRATEGIC)  # custom resources have no strategic merge patch
    ],
)
async def test_a_patch_of_another_uid(http, path, media_type):
    for collection, body in ((JOBS, a_job()), (PYTORCH_JOBS, a_pytorchjob()), (PODS, a_pod("train"))):
        await http.create(collection, body)
    operation = [{"op": "replace", "path": "/metadata/uid", "value": OTHER_UID}]
    patch = operation if media_type == JSON_PATCH else {"metadata": {"uid": OTHER_UID}}
    reply = await http("PATCH", path, patch, media_type=media_type)
    text = f'{PATCHED[path]} "train" is invalid: metadata.uid: Invalid value: "{OTHER_UID}": field is immutable'
    assert (reply.code, reply.body["reason"], reply.message) == (422, "Invalid", text)


async def test_a_patch_of_a_custom_resources_status_leaves_the_uid_alone(http):
    uid = (await http.create(PYTORCH_JOBS, a_pytorchjob()))["metadata"]["uid"]
    patch = {"metadata": {"uid": OTHER_UID}, "status": {"conditions": []}}
    reply = await http("PATCH", f"{PYTORCH_JOBS}/train/status", patch, media_type=MERGE_PATCH)
    assert (reply.code, reply.body["metadata"]["uid"], reply.body["status"]) == (200, uid, {"conditions": []})


async def test_a_patch_with_an_unknown_field(http):
    await http.create(JOBS, a_job())
    patch, why = {"spec": {"foo": 1}}, 'strict decoding error: unknown field "spec.foo"'
    reply = await http("PATCH", f"{JOBS}/train", patch, media_type=MERGE_PATCH, fieldValidation="Strict")
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert reply.message.startswith(' "" is invalid: patch: Invalid value: "{')
    assert reply.message.endswith(f'}}": {why}')
    reply = await http("PATCH", f"{JOBS}/train", patch, media_type=STRATEGIC, fieldValidation="Strict")
    assert (reply.code, reply.message) == (422, f' "" is invalid: patch: Invalid value: "map[spec:map[foo:1]]": {why}')
    reply = await http("PATCH", f"{JOBS}/train", {"spec": {"suspend": "x"}}, media_type=MERGE_PATCH)
    assert (reply.code, "cannot unmarshal string into Go struct field JobSpec.spec.suspend" in reply.message) == (422, True)


async def test_a_merge_patch_that_is_no_object(http):
    await http.create(JOBS, a_job())
    reply = await http("PATCH", f"{JOBS}/train", [1], media_type=MERGE_PATCH)
    text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    assert (reply.code, reply.message) == (400, text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"metadata": {"name": "other"}, "target": {"name": "node"}}, "name in URL does not match name in Binding object"),
        ({"target": {"name": "node"}}, "name in URL does not match name in Binding object"),
        ({"metadata": {"name": "worker"}, "target": {}}, "target.name: Required value"),
    ],
)
async def test_a_binding_names_pod_and_node(http, body, text):
    await http.create(PODS, a_pod())
    reply = await http("POST", f"{PODS}/worker/binding", body)
    assert (reply.code, reply.message) == (500 if "target" in text else 400, text)


@pytest.mark.parametrize(
    "path", [f"{JOBS}s", f"{JOBS}/train/nothing", "/api/v1/nothing", "/api/v2/pods", "/apis/batch/v9", "/apis/batch/v1/jobs/x"]
)
async def test_a_path_without_a_resource(http, path):
    reply = await http("GET", path)
    assert (reply.code, reply.body["reason"], reply.body["details"]) == (404, "NotFound", {})
    assert reply.message == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/apis/nothing/v1", "/apis/kubeflow.org/v1/namespaces/p-demo/nothing", "/nothing"])
async def test_a_path_of_no_built_in_group(http, path):
    reply = await http("GET", path)
    assert (reply.code, reply.body) == (404, "404 page not found\n")


async def test_a_dry_run_that_is_not_known(http):
    text = 'dryRun: Unsupported value: ["Some"]: supported values: "All"'
    reply = await http("POST", JOBS, a_job(), dryRun="Some")
    assert reply.message == f'CreateOptions.meta.k8s.io "" is invalid: {text}'
    for body, query in ((None, {"dryRun": "Some"}), ({"dryRun": ["Some"]}, {})):
        reply = await http("DELETE", f"{JOBS}/train", body, **query)
        assert (reply.code, reply.message) == (422, f'DeleteOptions.meta.k8s.io "" is invalid: {text}')


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (
            {"propagationPolicy": "x"},
            422,
            'propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        ({"gracePeriodSeconds": "x"}, 500, "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"gracePeriodSeconds": 1.5}, 500, "number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"preconditions": "x"}, 500, "string into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
        ({"preconditions": {"uid": 1}}, 500, "number into Go struct field Preconditions.preconditions.uid of type types.UID"),
        ({"dryRun": "All"}, 500, "string into Go struct field DeleteOptions.dryRun of type []string"),
        ({"dryRun": [1]}, 500, "number into Go struct field DeleteOptions.dryRun of type string"),
        ([1], 500, "json: cannot unmarshal array into Go value"),
    ],
)
async def test_delete_options_that_cannot_be(http, body, code, text):
    await http.create(JOBS, a_job())
    reply = await http("DELETE", f"{JOBS}/train", body)
    assert (reply.code, text in reply.message) == (code, True), reply.message
    assert (await http("GET", f"{JOBS}/train")).code == 200


async def test_a_negative_grace_period_is_a_second(http):
    await http.create(PODS, a_pod())
    await http("POST", f"{PODS}/worker/binding", {"metadata": {"name": "worker"}, "target": {"name": "node"}})
    reply = await http("DELETE", f"{PODS}/worker", {"gracePeriodSeconds": -1})
    assert reply.body["metadata"]["deletionGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("a=" + "v" * 64, f'values[0][a]: Invalid value: "{"v" * 64}": must be no more than 63 characters'),
        ("k" * 64 + "=v", f'<nil>: Invalid value: "{"k" * 64}": name part must be no more than 63 characters'),
        ("/a", '<nil>: Invalid value: "/a": prefix part must be non-empty'),
        ("a>x", "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ],
)
async def test_a_selector_of_what_can_be_no_label(http, selector, text):
    reply = await http("GET", JOBS, labelSelector=selector)
    assert (reply.code, reply.message) == (400, f"unable to parse requirement: {text}")


@pytest.mark.parametrize("body", [{"metadata": "x"}, {"metadata": {"name": "worker"}, "target": [1]}])
async def test_a_binding_that_cannot_be_decoded(http, body):
    await http.create(PODS, a_pod())
    reply = await http("POST", f"{PODS}/worker/binding", body)
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")
    assert "into Go struct field Binding." in reply.message


async def test_a_status_that_is_no_object(http):
    await http.create(PODS, a_pod())
    await http.create(PYTORCH_JOBS, a_pytorchjob())
    reply = await http("PATCH", f"{PODS}/worker/status", {"status": "x"}, media_type=MERGE_PATCH)
    assert (reply.code, "Go struct field Pod.status of type v1.PodStatus" in reply.message) == (422, True)
    reply = await http("PATCH", f"{PYTORCH_JOBS}/train/status", {"status": "x"}, media_type=MERGE_PATCH)
    assert (reply.code, 'status in body must be of type object: "string"' in reply.message) == (422, True)


async def test_an_update_names_its_object(http):
    job = await http.create(JOBS, a_job())
    del job["metadata"]["name"]
    reply = await http("PUT", f"{JOBS}/train", job)
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")
    assert reply.message == "the name of the object (train based on URL) was undeterminable: name must be provided"
