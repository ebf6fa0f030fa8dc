"""The generated schemas: up to date, and as strict as a server."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from airflow_mlxp import schemas
from airflow_mlxp.errors import InvalidArgument

ROOT = Path(__file__).parents[2]
POD = {"containers": [{"name": "pytorch", "image": "i"}]}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": {"spec": POD}}}
PYTORCHJOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "x"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": POD}}}},
}


def problems(obj):
    validator = jsonschema.Draft202012Validator(schemas.schema_for(obj["kind"]))
    return sorted("/".join(map(str, error.absolute_path)) + ": " + error.message for error in validator.iter_errors(obj))


def changed(obj, path, value):
    """A copy with one field set; ``path`` goes through lists by number."""
    result = copy.deepcopy(obj)
    node = result
    *parents, last = path.split("/")
    for key in parents:
        node = node[int(key)] if isinstance(node, list) else node.setdefault(key, {})
    node[last] = value
    return result


JOB_POD = "spec/template/spec"
TORCH_TEMPLATE = "spec/pytorchReplicaSpecs/Worker/template"


def test_the_files_are_what_the_models_give():
    done = subprocess.run(
        [sys.executable, "scripts/make_schemas.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
def test_schemas_are_valid_and_every_reference_leads_somewhere(kind):
    schema = schemas.schema_for(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    referred = {part.split('"')[0] for part in json.dumps(schema).split("#/$defs/")[1:]}
    assert referred == set(schema["$defs"])


@pytest.mark.parametrize(
    "obj",
    [
        JOB,
        PYTORCHJOB,
        changed(JOB, "status", {"anything": [1]}),
        changed(JOB, "metadata/creationTimestamp", None),
        changed(JOB, "metadata/managedFields", [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]),
        changed(JOB, f"{JOB_POD}/containers/0/resources", {"limits": {"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": "1"}}),
        changed(JOB, f"{JOB_POD}/containers/0/livenessProbe", {"httpGet": {"port": "http"}}),
        changed(JOB, f"{JOB_POD}/containers/0/livenessProbe", {"httpGet": {"port": 80}}),
        changed(JOB, f"{JOB_POD}/volumes", [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]),
        changed(JOB, f"{JOB_POD}/resources", {"limits": {"cpu": "1"}}),
        changed(JOB, "spec/template/metadata/generateName", "x-"),
        changed(PYTORCHJOB, "spec/runPolicy", {"schedulingPolicy": {"minResources": {"nvidia.com/gpu": 8}}}),
        changed(PYTORCHJOB, "spec/elasticPolicy", {"rdzvConf": [{"key": "timeout", "value": "9"}], "nProcPerNode": 8}),
        changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/metadata", {"labels": {"a": "b"}, "annotations": {}, "name": "x"}),
    ],
)
def test_accepted(obj):
    assert problems(obj) == []


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/containers", []), TORCH_TEMPLATE),
        (changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/spec/containers/0/imagePullSecrets", []), f"{TORCH_TEMPLATE}/spec/containers/0"),
        (changed(PYTORCHJOB, "spec/ttlSecondsAfterFinished", 1), "spec"),
        (changed(PYTORCHJOB, "spec/nprocPerNode", 8), "spec/nprocPerNode"),
        (changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/metadata/generateName", "x-"), f"{TORCH_TEMPLATE}/metadata"),
        (changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/spec/resources", {}), f"{TORCH_TEMPLATE}/spec"),
        (changed(PYTORCHJOB, f"{TORCH_TEMPLATE}/spec", {}), f"{TORCH_TEMPLATE}/spec"),
        (changed(PYTORCHJOB, "spec", {}), "spec"),
        (changed(JOB, "spec/imagePullSecrets", []), "spec"),
        (
            changed(JOB, "spec/template/metadata/annotations", {"sidecar.istio.io/inject": False}),
            "spec/template/metadata/annotations",
        ),
        (changed(JOB, "metadata/annotations", 'mlx.navercorp.com/zone="ai-infra"'), "metadata/annotations"),
        (changed(JOB, f"{JOB_POD}/containers/0/resources", {"limits": {"memory": "16 GB"}}), f"{JOB_POD}/containers/0/resources"),
        (changed(JOB, f"{JOB_POD}/containers/0/command", "python"), f"{JOB_POD}/containers/0/command"),
        (changed(JOB, "metadata/nmae", "x"), "metadata"),
        (changed(JOB, "spec/backoffLimit", "1"), "spec/backoffLimit"),
        (changed(JOB, "extra", {}), ""),
    ],
)
def test_refused_at(obj, path):
    found = problems(obj)
    assert len(found) == 1
    assert found[0].startswith(path)


def test_an_unknown_kind():
    with pytest.raises(InvalidArgument, match="kind='TrainJob'"):
        schemas.schema_for("TrainJob")
