"""Users' manifests: what is read, mended and refused."""

import pytest

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import load as loading
from airflow_mlxp.workloads.job import JOB
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB


def load(manifest, api):
    loaded = loading.load(manifest, api)
    return loaded.manifest, loaded.warnings


def test_nothing_gives_an_empty_manifest_of_the_kind():
    assert load(None, PYTORCHJOB.api) == ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, [])


def test_a_mapping_is_copied():
    given = {"metadata": {"labels": {"a": "b"}}, "spec": {"list": (1, 2)}}
    loaded, _ = load(given, JOB.api)
    loaded["metadata"]["labels"]["a"] = "changed"
    assert given["metadata"]["labels"] == {"a": "b"}
    assert loaded["spec"] == {"list": [1, 2]}


def test_dates_in_yaml_stay_text():
    loaded, warnings = load("metadata: {annotations: {day: 2026-12-01}}\nspec: {args: [2026-12-01T00:00:00Z]}", JOB.api)
    assert loaded["metadata"]["annotations"] == {"day": "2026-12-01"}
    assert loaded["spec"]["args"] == ["2026-12-01T00:00:00Z"]
    assert warnings == []


def test_values_that_must_be_text_are_sent_as_text_and_told():
    text = "spec: {template: {metadata: {annotations: {sidecar.istio.io/inject: false, size: 3}}}}"
    loaded, warnings = load(text, JOB.api)
    assert loaded["spec"]["template"]["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false", "size": "3"}
    assert [warning.split(":")[0] for warning in warnings] == [
        "manifest.spec.template.metadata.annotations.sidecar.istio.io/inject",
        "manifest.spec.template.metadata.annotations.size",
    ]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("metadata:\n  name: x\n   labels: {}\n", r"manifest line 3, column \d+.*mapping values are not allowed"),
        ("a: b: c", r"manifest line 1"),
        ("", "0 documents"),
        ("kind: Job\n---\nkind: Job\n", "2 documents"),
        ("just text", "manifest='str'"),
        ("- a\n- b", "manifest='list'"),
        (3, "manifest='int'"),
        ("kind: job", "manifest.kind='job'.*write it exactly so: Job"),
        ("kind: Deployment", "manifest.kind='Deployment'.*use the operator of that kind"),
        ("apiVersion: batch/v2", "manifest.apiVersion='batch/v2'"),
        ("metadata: {annotations: 'mlx.navercorp.com/zone=\"ai-infra\"'}", "manifest.metadata.annotations=.*'key: value'"),
        ("metadata: {labels: [a]}", "manifest.metadata.labels"),
        ("metadata: {labels: {a: {b: c}}}", "manifest.metadata.labels.a"),
        ("spec: {1: 2}", "manifest.spec=1.*quote the key"),
        ({"spec": {"args": [object()]}}, r"manifest.spec.args\[0\]='object'"),
        ({"spec": {"when": b"x"}}, "manifest.spec.when='bytes'"),
    ],
)
def test_refused(manifest, message):
    with pytest.raises(InvalidArgument, match=message):
        load(manifest, JOB.api)


def test_tags_that_run_code_are_no_yaml():
    with pytest.raises(InvalidArgument, match="could not determine a constructor"):
        load("a: !!python/object/apply:os.getcwd []", JOB.api)
