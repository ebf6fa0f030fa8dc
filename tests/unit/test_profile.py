"""The platform's defaults."""

import dataclasses

from airflow_mlxp.manifests import job, pytorchjob
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec
from airflow_mlxp.profile import MLXP, Default


def test_every_default_says_where_it_comes_from_and_why():
    for name, default in MLXP.defaults():
        assert default.path, name
        assert default.section, name
        assert default.reason, name


def test_values_of_the_guide():
    assert MLXP.ttl_seconds_after_finished.value == 3 * 7 * 24 * 3600
    assert MLXP.zone_key.value == "mlx.navercorp.com/zone"
    assert MLXP.istio_annotation.value == {"sidecar.istio.io/inject": "false"}


def test_a_profile_without_values_adds_nothing():
    nothing = Default(value=None, path="-", section="-", reason="-")
    kept = {"container_restarts", "container_restarts_with_retries"}
    bare = dataclasses.replace(MLXP, **{name: nothing for name, _ in MLXP.defaults() if name not in kept})
    assert job.build(JobSpec(image="i"), namespace="n", profile=bare).manifest["spec"] == {
        "template": {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    }
    torch = pytorchjob.build(PyTorchJobSpec(image="i", workers=1), namespace="n", profile=bare).manifest["spec"]
    assert torch["runPolicy"] == {"backoffLimit": 5}
    assert torch["elasticPolicy"] == {"rdzvId": "pytorchjob", "minReplicas": 1, "maxReplicas": 1}
