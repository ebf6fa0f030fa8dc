"""Strategic merge: what the API server would make of the same patch."""

import json
from pathlib import Path

import pytest

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import job, overrides, pytorchjob
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec


def built(patch, **arguments):
    return job.build(JobSpec(image="i", overrides=patch, **arguments), namespace="p-x").manifest


def pod(patch, **arguments):
    return built({"spec": {"template": {"spec": patch}}}, **arguments)["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}, {"a": 1, "b": {"c": 1, "d": 2}}),
        ({"a": 1}, {"a": None, "b": None}, {}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({}, {"a": {"$patch": "delete"}}, {}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": 1, "b": 2}, {"$retainKeys": ["b"], "c": 3}, {"b": 2, "c": 3}),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": None, "valueFrom": {"x": 1}}]},
            {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
        ),
        ({"env": [{"name": "A"}, {"name": "B"}]}, {"env": [{"$patch": "delete", "name": "A"}]}, {"env": [{"name": "B"}]}),
        ({"env": [{"name": "A"}]}, {"env": [{"$patch": "replace"}, {"name": "B"}]}, {"env": [{"name": "B"}]}),
        ({"env": [{"name": "A"}]}, {"env": [{"$patch": "delete", "name": "Z"}]}, {"env": [{"name": "A"}]}),
        ({"ports": [{"containerPort": 1, "name": "a"}]}, {"ports": [{"containerPort": 1, "protocol": "UDP"}]},
         {"ports": [{"containerPort": 1, "name": "a", "protocol": "UDP"}]}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}, {"finalizers": ["a", "b", "c"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        (
            {"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}]},
            {"$setElementOrder/env": [{"name": "C"}, {"name": "A"}], "env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B"}, {"name": "C"}, {"name": "A", "value": "1"}]},
        ),
    ],
)  # fmt: skip
def test_merge(target, patch, merged):
    before = repr((target, patch))
    assert overrides.merge(target, patch) == merged
    assert repr((target, patch)) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"$patch": "merge"}, r"overrides.\$patch='merge'.*delete or replace"),
        ({"env": [{"value": "1"}]}, r"overrides.env\[0\].*a mapping with name"),
        ({"volumeMounts": ["x"]}, r"overrides.volumeMounts\[0\]='x'.*mountPath"),
    ],
)
def test_a_patch_that_the_server_would_refuse(patch, message):
    with pytest.raises(InvalidArgument, match=message):
        overrides.merge({}, patch)


def test_overrides_win_over_arguments_manifest_and_profile():
    patch = {"spec": {"backoffLimit": 9, "ttlSecondsAfterFinished": None, "suspend": True}}
    spec = built(patch, backoff_limit=5, manifest={"spec": {"suspend": False}})["spec"]
    assert (spec["backoffLimit"], spec["suspend"], "ttlSecondsAfterFinished" in spec) == (9, True, False)


def test_a_container_is_merged_by_its_name():
    main, extra = pod({"containers": [{"name": "main", "image": "j"}, {"name": "extra", "image": "e"}]}, command=["x"])[
        "containers"
    ]
    assert (main["image"], main["command"], extra) == ("j", ["x"], {"name": "extra", "image": "e"})


def test_the_templates_of_a_pytorchjob_follow_the_same_rules():
    patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [
        {"name": "pytorch", "env": [{"name": "NCCL_DEBUG", "value": "WARN"}]}
    ]}}}}}}  # fmt: skip
    manifest = pytorchjob.build(PyTorchJobSpec(image="i", workers=2, overrides=patch), namespace="p-x").manifest
    (container,) = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in container["env"]}
    assert (container["image"], env["NCCL_DEBUG"], env["GLOO_SOCKET_FAMILY"]) == ("i", "WARN", "AF_INET")


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("spec: {}", "overrides='str'"),
        ({"kind": "PyTorchJob"}, "overrides.kind='PyTorchJob'.*'Job'"),
        ({"apiVersion": "v1"}, "overrides.apiVersion='v1'"),
        ({"metadata": {"name": "x"}}, "overrides.metadata.name='x'.*give the argument name"),
        ({"spec": {1: 2}}, "overrides.spec=1"),
        ({"spec": {"template": {"spec": {"securityContext": {"fsGroup": 500}}}}}, "securityContext.fsGroup=500"),
        ({"spec": {"template": {"spec": {"containers": [{"name": "b"}]}}}}, "image=None.*'b'"),
        ({"spec": {"template": {"spec": None}}}, "overrides=None.*its spec"),
    ],
)
def test_refused(patch, message):
    with pytest.raises(InvalidArgument, match=message):
        built(patch)


GOLDEN = Path(__file__).parents[1] / "golden" / "overrides" / "api-server.jsonl"
JOB, *CASES = (json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_api_servers_own_code_merges_the_same(case):
    if "error" in case:
        with pytest.raises(InvalidArgument):
            overrides.merge(JOB["original"], case["patch"])
    else:
        assert overrides.merge(JOB["original"], case["patch"]) == case["merged"]


def test_a_container_that_is_merged_in_takes_nobodys_place():
    manifest = {"spec": {"template": {"spec": {"containers": [{"name": "mine", "image": "i"}]}}}}
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "p"}]}}}}
    template = job.build(JobSpec(manifest=manifest, overrides=patch), namespace="p-x").manifest["spec"]["template"]
    assert [container["name"] for container in template["spec"]["containers"]] == ["proxy", "mine"]
    assert template["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "mine"
