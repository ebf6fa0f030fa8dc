"""The embedded server stores new objects as a real one does.

``recorded_objects.jsonl`` holds objects as kube-apiserver 1.34.2 (controllers of Kubernetes 1.34.2, training-operator 1.9.3) sent
them right after their creation, without service-account volumes, tolerations, owners and managed fields.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from tests.local.conftest import JOBS, PODS, PYTORCH_JOBS

RECORDED = [json.loads(line) for line in Path(__file__).with_name("recorded_objects.jsonl").read_text().splitlines()]
COLLECTIONS = {"Job": JOBS, "PyTorchJob": PYTORCH_JOBS, "Pod": PODS}
CONTROLLER_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")


def _as_sent(recorded):
    """The recorded object without what only a server sets."""
    data = copy.deepcopy(recorded)
    data.pop("status", None)
    for name in ("uid", "creationTimestamp", "generation"):
        data["metadata"].pop(name, None)
    if data["kind"] == "Job":
        del data["spec"]["selector"]
        for name in CONTROLLER_LABELS:
            del data["metadata"]["labels"][name]
            del data["spec"]["template"]["metadata"]["labels"][name]
    return data


def _comparable(data):
    """Spec, status, labels and generation, with a fixed uid and without tolerations."""
    data = json.loads(json.dumps(data).replace(data["metadata"]["uid"], "uid"))
    data["spec"].pop("tolerations", None)
    return data["spec"], data.get("status"), data["metadata"].get("labels"), data["metadata"].get("generation")


@pytest.mark.parametrize("entry", RECORDED, ids=lambda entry: f"{entry['case']}-{entry['object']['metadata']['name']}")
async def test_an_object_is_stored_as_the_real_server_stores_it(http, entry):
    recorded = entry["object"]
    stored = await http.create(COLLECTIONS[recorded["kind"]], _as_sent(recorded), fieldValidation="Strict")
    assert _comparable(stored) == _comparable(recorded)
