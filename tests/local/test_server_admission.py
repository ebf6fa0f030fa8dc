"""What the embedded API server refuses, and in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.local.server import formats, patching, strategic
from tests.local.conftest import JOBS, PODS, PYTORCH_JOBS, a_job, a_pod, a_pod_spec, a_pytorchjob

QUOTAS = "/api/v1/namespaces/p-demo/resourcequotas"


async def test_strict_validation_names_every_unknown_field(http):
    job = a_job()
    job["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
    job["spec"]["foo"] = 1
    reply = await http("POST", JOBS, job, fieldValidation="Strict")
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")
    assert reply.message.startswith('Job in version "v1" cannot be handled as a Job: strict decoding error: ')
    assert 'unknown field "spec.template.spec.containers[0].imag"' in reply.message
    assert 'unknown field "spec.foo"' in reply.message


async def test_unknown_fields_are_dropped_with_a_warning_or_in_silence(http):
    for name, validation, warnings in (("a", "Warn", ['299 - "unknown field \\"spec.foo\\""']), ("b", "Ignore", [])):
        job = a_pytorchjob(name)
        job["spec"]["foo"] = 1
        reply = await http("POST", PYTORCH_JOBS, job, fieldValidation=validation)
        assert reply.code == 201
        assert "foo" not in reply.body["spec"]
        assert reply.headers.getall("Warning", []) == warnings


async def test_strict_validation_of_a_pytorchjob(http):
    job = a_pytorchjob()
    job["spec"]["foo"] = 1
    reply = await http("POST", PYTORCH_JOBS, job, fieldValidation="Strict")
    text = 'PyTorchJob in version "v1" cannot be handled as a PyTorchJob: strict decoding error: unknown field "spec.foo"'
    assert (reply.code, reply.message) == (400, text)


async def test_annotations_must_be_strings(http):
    reply = await http("POST", JOBS, a_job(annotations={"sidecar.istio.io/inject": False}))
    assert reply.code == 400
    assert reply.message.endswith(
        "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.annotations of type string"
    )


async def test_wrong_types_of_built_in_and_custom_kinds(http):
    reply = await http("POST", JOBS, a_job(spec={"parallelism": "two"}))
    assert reply.code == 400
    assert "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32" in reply.message
    job = a_pytorchjob()
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "two"
    reply = await http("POST", PYTORCH_JOBS, job)
    assert reply.code == 422
    assert 'replicas in body must be of type integer: "string"' in reply.message
    assert reply.body["details"]["causes"][0]["reason"] == "FieldValueTypeInvalid"


async def test_a_job_needs_a_restart_policy_that_ends(http):
    job = a_job(spec={"template": {"spec": a_pod_spec(restartPolicy="Always")}})
    reply = await http("POST", JOBS, job)
    assert reply.code == 422
    text = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert reply.message == f'Job.batch "train" is invalid: {text}'
    assert reply.body["details"]["causes"] == [
        {
            "reason": "FieldValueRequired",
            "message": 'Required value: valid values: "OnFailure", "Never"',
            "field": "spec.template.spec.restartPolicy",
        }
    ]


async def test_bad_names_and_labels(http):
    reply = await http("POST", JOBS, a_job("Train_1"))
    assert reply.message.startswith('Job.batch "Train_1" is invalid: ')
    assert 'metadata.name: Invalid value: "Train_1": a lowercase RFC 1123 subdomain must consist of' in reply.message
    reply = await http("POST", JOBS, a_job(labels={"a": "b c"}))
    assert 'metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of' in reply.message
    reply = await http("POST", JOBS, a_job("x" * 64))
    assert "must be no more than 63 characters" in reply.message


@pytest.mark.parametrize(
    ("container", "text"),
    [
        ({"name": "main"}, "containers[0].image: Required value"),
        ({"image": "a"}, "containers[0].name: Required value"),
        (
            {"name": "main", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            'containers[0].volumeMounts[0].name: Not found: "data"',
        ),
        (
            {"name": "main", "image": "a", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            'containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"name": "main", "image": "a", "resources": {"requests": {"nvidia.com/gpu": "1"}}},
            "containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
    ],
)
async def test_containers_that_cannot_be(http, container, text):
    reply = await http("POST", PODS, a_pod(spec={"containers": [container]}))
    assert reply.code == 422
    assert text in reply.message


async def test_a_quantity_that_is_none(http):
    container = {"name": "main", "image": "a", "resources": {"limits": {"memory": "16 GB"}}}
    reply = await http("POST", JOBS, a_job(spec={"template": {"spec": a_pod_spec(containers=[container])}}))
    assert reply.code == 400
    assert "quantities must match the regular expression" in reply.message


def _without_worker(job):
    job["spec"]["elasticPolicy"] = {"maxReplicas": 2}
    job["spec"]["pytorchReplicaSpecs"] = {}


def _other_container(job):
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "main"


def _two_masters(job):
    replicas = job["spec"]["pytorchReplicaSpecs"]
    replicas["Master"] = {**replicas["Worker"], "replicas": 2}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_without_worker, "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"),
        (
            _other_container,
            (
                "spec.pytorchReplicaSpecs[Worker].template.spec.containers: Required value: "
                "must have at least one container with name pytorch"
            ),
        ),
        (_two_masters, "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    ],
)
async def test_the_webhook_refuses_what_the_operator_cannot_run(http, change, text):
    job = a_pytorchjob()
    change(job)
    reply = await http("POST", PYTORCH_JOBS, job)
    name = "validator.pytorchjob.training-operator.kubeflow.org"
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == f'admission webhook "{name}" denied the request: {text}'


async def test_the_webhook_wants_a_dns_1035_name_and_warns_of_the_old_field(http):
    reply = await http("POST", PYTORCH_JOBS, a_pytorchjob("1train"))
    assert 'metadata.name: Invalid value: "1train": should match: a DNS-1035 label must consist' in reply.message
    job = a_pytorchjob()
    job["spec"]["elasticPolicy"] = {"nProcPerNode": 2}
    reply = await http("POST", PYTORCH_JOBS, job)
    assert "spec.elasticPolicy.nProcPerNode is deprecated" in reply.headers["Warning"]


def _gpu_pod(name, gpus):
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    return a_pod(name, spec={"containers": [{"name": "main", "image": "a", "resources": resources}]})


async def test_a_quota_refuses_and_counts(http):
    hard = {"requests.nvidia.com/gpu": "2"}
    await http.create(QUOTAS, {"metadata": {"name": "normal-quota"}, "spec": {"hard": hard}})
    await http.create(PODS, _gpu_pod("a", 2))
    reply = await http("POST", PODS, _gpu_pod("b", 1))
    assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
    assert reply.message == (
        'pods "b" is forbidden: exceeded quota: normal-quota, requested: requests.nvidia.com/gpu=1, '
        "used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2"
    )
    quota = (await http("GET", f"{QUOTAS}/normal-quota")).body
    assert quota["status"] == {"hard": hard, "used": {"requests.nvidia.com/gpu": "2"}}
    ended = {"status": {"phase": "Succeeded"}}
    await http("PATCH", f"{PODS}/a/status", ended, media_type="application/merge-patch+json")
    await http.create(PODS, _gpu_pod("b", 1))
    assert (await http("GET", f"{QUOTAS}/normal-quota")).body["status"]["used"] == {"requests.nvidia.com/gpu": "1"}


async def test_a_quota_of_cpu_wants_it_specified(http):
    await http.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "4"}}})
    reply = await http("POST", PODS, a_pod())
    assert reply.message == 'pods "worker" is forbidden: failed quota: q: must specify requests.cpu for: main'


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_quantities_keep_the_amount(number, suffix):
    text = f"{number}{suffix}"
    canonical = formats.canonical_quantity(text)
    assert formats.quantity(canonical) == formats.quantity(text)
    assert formats.canonical_quantity(canonical) == canonical


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
_OBJECT = st.dictionaries(st.text("abc", min_size=1, max_size=2), _JSON, max_size=4)


def _has_null(value):
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return value is None


@given(_OBJECT, _OBJECT)
def test_a_merge_patch_is_idempotent_and_changes_neither_side(target, patch):
    before = repr(target), repr(patch)
    once = patching.merge(target, patch)
    assert patching.merge(once, patch) == once
    assert (repr(target), repr(patch)) == before
    if not _has_null(patch):
        assert strategic.merge({}, patch) == patching.merge({}, patch)


def test_strategic_directives():
    old = {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {
        "$setElementOrder/env": [{"name": "C"}, {"name": "B"}],
        "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}],
        "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}],
    }
    new = strategic.merge(old, patch)
    assert [entry["name"] for entry in new["env"]] == ["C", "B"]
    assert new["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
