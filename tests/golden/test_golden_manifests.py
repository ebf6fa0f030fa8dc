"""Each ``<case>.args.json`` (and ``.input.yaml``, the user's manifest) gives exactly its ``.output.yaml``.

``UPDATE_GOLDEN=1 pytest tests/golden`` writes the outputs anew: read the difference before committing it.
"""

import dataclasses
import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from airflow_mlxp import schemas
from airflow_mlxp.manifests import job, pytorchjob
from airflow_mlxp.manifests.elastic import Elastic
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec, Volume

FOLDER = Path(__file__).parent / "manifests"
CASES = sorted(path.name.removesuffix(".args.json") for path in FOLDER.glob("*.args.json"))
BUILDERS = {"Job": (job.build, JobSpec), "PyTorchJob": (pytorchjob.build, PyTorchJobSpec)}


def build(case):
    given = json.loads((FOLDER / f"{case}.args.json").read_text())
    arguments = dict(given.get("arguments", {}))
    if "elastic" in arguments:
        arguments["elastic"] = Elastic(**arguments["elastic"])
    if "volumes" in arguments:
        volumes = arguments["volumes"].items()
        arguments["volumes"] = {path: Volume(**volume) if isinstance(volume, dict) else volume for path, volume in volumes}
    manifest = FOLDER / f"{case}.input.yaml"
    if manifest.exists():
        arguments["manifest"] = manifest.read_text()
    builder, spec = BUILDERS[given["kind"]]
    return builder(spec(**arguments), namespace="p-vision", retries=given.get("retries", 0))


@pytest.mark.parametrize("case", CASES)
def test_output(case):
    built = build(case)
    jsonschema.Draft202012Validator(schemas.schema_for(built.manifest["kind"])).validate(built.manifest)
    plain = json.loads(json.dumps(dataclasses.asdict(built)))
    expected = FOLDER / f"{case}.output.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_text(yaml.safe_dump(plain, sort_keys=False, width=130))
    assert plain == yaml.safe_load(expected.read_text())


def test_every_output_has_a_case():
    assert sorted(path.name.removesuffix(".output.yaml") for path in FOLDER.glob("*.output.yaml")) == CASES


@pytest.mark.parametrize("case", ["guide-job-manifest", "guide-pytorchjob-manifest"])
def test_nothing_of_the_guides_samples_is_changed(case):
    def assert_inside(given, built):
        if isinstance(given, dict):
            for key, value in given.items():
                assert_inside(value, built[key])
        elif isinstance(given, list) and given and isinstance(given[0], dict):
            for one, other in zip(given, built, strict=False):
                assert_inside(one, other)
        else:
            assert given == built

    assert_inside(yaml.safe_load((FOLDER / f"{case}.input.yaml").read_text()), build(case).manifest)
