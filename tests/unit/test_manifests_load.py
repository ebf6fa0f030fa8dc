"""Users' manifests: what is read, mended and refused."""

import pytest
from kubernetes import client as k8s

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


def test_objects_of_the_kubernetes_package_stand_where_a_mapping_may():
    container = k8s.V1Container(name="main", image="i", security_context=k8s.V1SecurityContext(run_as_user=500))
    template = k8s.V1PodTemplateSpec(spec=k8s.V1PodSpec(containers=[container], host_ipc=True))
    whole = k8s.V1Job(metadata=k8s.V1ObjectMeta(name="n"), spec=k8s.V1JobSpec(template=template))
    expected = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "n"},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "main", "image": "i", "securityContext": {"runAsUser": 500}}],
                    "hostIPC": True,
                }
            }
        },
    }
    assert load(whole, JOB.api) == (expected, [])
    assert load({"spec": {"template": template}}, JOB.api)[0]["spec"] == expected["spec"]


def test_what_a_server_sets_is_left_out_with_a_note():
    labels = {"batch.kubernetes.io/controller-uid": "u", "job-name": "n", "mine": "yes"}
    given = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "creationTimestamp": "2026-12-01T00:00:00Z",
            "managedFields": [{}],
            "ownerReferences": [{"name": "cron"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {"metadata": {"creationTimestamp": None, "labels": labels}, "spec": {}},
        },
        "status": {"active": 1},
    }
    loaded = loading.load(given, JOB.api)
    assert loaded.manifest["metadata"] == {"name": "n", "annotations": {}}
    assert loaded.manifest["spec"] == {"template": {"metadata": {"labels": {"mine": "yes"}}, "spec": {}}}
    assert "status" not in loaded.manifest
    (note,) = loaded.notes
    assert note.startswith("Left out of the manifest, since a server sets it: status, metadata.uid, metadata.creationTimestamp,")


def test_owners_of_the_users_own_stay():
    assert load({"metadata": {"ownerReferences": [{"name": "n"}]}}, JOB.api)[0]["metadata"]["ownerReferences"] == [{"name": "n"}]


def test_a_selector_of_the_users_own_stays():
    spec = {"manualSelector": True, "selector": {"matchLabels": {"job-name": "mine"}}, "template": {}}
    assert load({"spec": spec}, JOB.api)[0]["spec"]["selector"] == spec["selector"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec:\n  suspend: true\n  suspend: false\n", "manifest line 3, column 3.*'suspend' is given twice"),
        ('{"spec": {"a": 1,\n "a": 2}}', "manifest line 2, column 2.*'a' is given twice"),
        ("missing.yaml", "manifest='missing.yaml'.*a file"),
    ],
)
def test_refused_text(text, message):
    with pytest.raises(InvalidArgument, match=message):
        load(text, JOB.api)


def test_anchors_and_merge_keys_are_no_duplicates():
    text = "spec:\n  a: &base {x: '1', y: '1'}\n  b: {<<: *base, y: '2'}\n  c: {<<: *base, x: '3'}\n"
    assert load(text, JOB.api)[0]["spec"]["b"] == {"x": "1", "y": "2"}


def test_text_as_kubectl_reads_it():
    assert load('{\n\t"spec": {\n\t\t"at": "12:30"}}', JOB.api)[0]["spec"] == {"at": "12:30"}
    assert load("spec: {at: 12:30, number: 0o17, octal: 0400, float: 1.5}", JOB.api)[0]["spec"]["at"] == "12:30"
    assert load("spec: {octal: 0400, float: 1.5, count: 3}", JOB.api)[0]["spec"] == {"octal": 256, "float": 1.5, "count": 3}


def test_numbers_on_a_command_line_and_in_variables_are_sent_as_text():
    text = "spec: {template: {spec: {containers: [{args: [--epochs, 3], env: [{name: N, value: 1}, {name: S, valueFrom: {}}]}]}}}"
    loaded, warnings = load(text, JOB.api)
    (container,) = loaded["spec"]["template"]["spec"]["containers"]
    assert container == {"args": ["--epochs", "3"], "env": [{"name": "N", "value": "1"}, {"name": "S", "valueFrom": {}}]}
    assert len(warnings) == 2
