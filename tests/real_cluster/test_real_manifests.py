"""Every golden manifest passes strict decoding and validation of the real API server, and the webhook of the operator."""

from pathlib import Path

import pytest
import yaml

from airflow_mlxp import workloads

OUTPUTS = sorted((Path(__file__).parents[1] / "golden" / "manifests").glob("*.output.yaml"))


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda path: path.name.removesuffix(".output.yaml"))
async def test_the_server_takes_it(client, platform, output):
    manifest = yaml.safe_load(output.read_text(encoding="utf-8"))["manifest"]
    manifest["metadata"]["namespace"] = platform.namespace
    created = await client.create(workloads.get(manifest["kind"]).api, platform.namespace, manifest, dry_run=True)
    assert created.warnings == ()
    assert created.object["spec"]
