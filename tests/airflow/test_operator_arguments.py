"""What operators make of their arguments while a DAG is parsed."""

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from kubernetes import client as k8s

from airflow_mlxp import Elastic, MLXPJobOperator, MLXPPyTorchJobOperator, Volume, compat
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests.spec import JobSpec, PyTorchJobSpec
from airflow_mlxp.operators.base import MLXPOperator
from airflow_mlxp.operators.described import DescribedOperator

OPERATORS = [(MLXPJobOperator, JobSpec), (MLXPPyTorchJobOperator, PyTorchJobSpec)]


def job(**arguments: Any) -> MLXPJobOperator:
    return MLXPJobOperator(**{"task_id": "t", "image": "i:1"} | arguments)


def built(operator: MLXPOperator) -> dict[str, Any]:
    return operator.build(operator.spec(), namespace="p-demo").manifest


@pytest.mark.parametrize(("operator", "spec"), OPERATORS)
def test_every_field_of_the_spec_is_an_argument_of_its_own(operator: type[MLXPOperator], spec: type) -> None:
    named = {
        name
        for cls in operator.__mro__
        if issubclass(cls, DescribedOperator)
        for name in inspect.signature(cls.__init__).parameters
    }
    assert {field.name for field in fields(spec)} <= named


@pytest.mark.parametrize(("operator", "spec"), OPERATORS)
def test_template_fields_are_attributes(operator: type[MLXPOperator], spec: type) -> None:
    task = operator(task_id="t", image="i", **({"workers": 2} if spec is PyTorchJobSpec else {}))
    assert all(hasattr(task, name) for name in operator.template_fields)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"cpu": "four"}, "cpu"),
        ({"gpus": "many"}, "gpus"),
        ({"volumes": {"data": "claim"}}, "volumes"),
        ({"volumes": ["claim:/data"]}, "volumes"),
        ({"tolerations": {"key": "gpu"}}, "tolerations"),
        ({"node_selector": ["a"]}, "node_selector"),
        ({"labels": "a=b"}, "labels"),
        ({"env": "A=1"}, "env"),
        ({"image_pull_secrets": "registry"}, "image_pull_secrets"),
        ({"success_policy": "most"}, "success_policy"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"drain_timeout": "10m"}, "drain_timeout"),
        ({"manifest": "kind: Pod"}, "manifest.kind"),
        ({"restart_policy": "Always"}, "restart_policy"),
        ({"mlxp_conn_id": 3}, "mlxp_conn_id"),
        ({"deferrable": "no"}, "deferrable"),
        ({"overrides": {"kind": "Pod"}}, "overrides.kind"),
    ],
)
def test_a_mistake_is_told_while_parsing(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        job(**arguments)
    assert raised.value.argument == named


@pytest.mark.parametrize(
    "arguments",
    [
        {"cpu": "{{ params.cpu }}"},
        {"volumes": {"{{ params.path }}": "claim"}},
        {"manifest": "{" + "% if x %}kind: Job{" + "% endif %}"},
        {"args": ["--day", "{{ ds }}"], "env": {"DAY": "{{ ds }}"}},
        {"namespace": "{{ var.value.namespace }}"},
    ],
)
def test_what_is_templated_is_checked_later(arguments: dict[str, Any]) -> None:
    job(**arguments)


@pytest.mark.parametrize(("operator", "spec"), OPERATORS)
@pytest.mark.parametrize("value", [None, "{{ params.value }}"])
def test_every_argument_may_be_a_template_or_none(operator: type[MLXPOperator], spec: type, value: str | None) -> None:
    needed = {"image": "i"} | ({"workers": 2} if spec is PyTorchJobSpec else {})
    for name in sorted({field.name for field in fields(spec)} - ({"restart_policy", *needed} if value is None else set())):
        assert getattr(operator(task_id="t", **{**needed, name: value}), name) == value


@pytest.mark.parametrize(("operator", "spec"), OPERATORS)
def test_no_argument_takes_just_anything(operator: type[MLXPOperator], spec: type) -> None:
    needed = {"image": "i"} | ({"workers": 2} if spec is PyTorchJobSpec else {})
    for name in set(operator.template_fields) - set(operator.parts):
        with pytest.raises(InvalidArgument) as raised:
            operator(task_id="t", **{**needed, name: object()})
        assert raised.value.argument.startswith(name)


def test_what_stands_inside_of_records_and_objects_is_rendered() -> None:
    operator = MLXPPyTorchJobOperator(
        task_id="t",
        image="i",
        workers="{{ n }}",
        elastic=Elastic(min_replicas="{{ n - 1 }}", rdzv_conf={"timeout": "{{ n }}00"}),
        volumes={
            "/data": Volume(claim="{{ name }}"),
            "/v": k8s.V1Volume(name="v", secret=k8s.V1SecretVolumeSource(secret_name="{{ name }}")),
        },
        tolerations=[k8s.V1Toleration(key="{{ name }}", operator="Exists")],
        suspend="{{ n > 1 }}",
        ttl_seconds_after_finished="{{ n * 60 }}",
        overrides={"spec": {"runPolicy": {"schedulingPolicy": {"queue": "{{ name }}"}}}},
    )
    operator.render_template_fields({"n": 2, "name": "data"})
    spec = built(operator)["spec"]
    pod = spec["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert (spec["elasticPolicy"]["minReplicas"], spec["elasticPolicy"]["rdzvConf"]) == (1, [{"key": "timeout", "value": "200"}])
    assert pod["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    assert pod["volumes"][1]["secret"] == {"secretName": "data"}
    assert pod["tolerations"] == [{"key": "data", "operator": "Exists"}]
    assert spec["runPolicy"]["suspend"] is True
    assert spec["runPolicy"]["ttlSecondsAfterFinished"] == 120
    assert spec["runPolicy"]["schedulingPolicy"] == {"queue": "data"}


def test_a_wrong_value_of_a_template_is_told_at_execution() -> None:
    operator = job(suspend="{{ x }}", priority_class="{{ x }}")
    operator.render_template_fields({"x": "Not So"})
    with pytest.raises(InvalidArgument, match=r"='Not So'"):
        built(operator)


def test_a_manifest_that_jinja_leaves_alone() -> None:
    text = "spec: {template: {spec: {containers: [{name: main, args: ['${#A[@]} {{.Values}} {" + "%']}]}}}"
    operator = job(manifest=text, templated=False)
    operator.render_template_fields({})
    (container,) = built(operator)["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["${#A[@]} {{.Values}} {" + "%"]


FILE = "spec: {template: {spec: {containers: [{name: main, args: ['{{ name }}']}]}}}\n"


@pytest.fixture
def dag(tmp_path: Path) -> Iterator[DAG]:
    (tmp_path / "job.yaml").write_text(FILE, encoding="utf-8")
    (tmp_path / "wrong.json").write_text('{"kind": "Pod"}', encoding="utf-8")
    with DAG("d", schedule=None, template_searchpath=str(tmp_path)) as dag:
        yield dag


def arguments_of(operator: MLXPOperator) -> list[str]:
    args: list[str] = built(operator)["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def test_the_content_of_a_file_is_a_template(dag: DAG) -> None:
    operator = job(manifest="job.yaml")
    dag.resolve_template_files()
    assert operator.manifest == FILE
    operator.render_template_fields({"name": "a"})
    assert arguments_of(operator) == ["a"]


def test_the_content_of_a_file_can_stay_as_it_is(dag: DAG) -> None:
    operator = job(manifest="job.yaml", templated=False)
    dag.resolve_template_files()
    operator.render_template_fields({"name": "a"})
    assert arguments_of(operator) == ["{{ name }}"]


@pytest.mark.usefixtures("dag")
def test_a_file_that_only_rendering_names() -> None:
    operator = job(manifest="{{ which }}.yaml")
    context: Any = {"which": "job", "name": "b"}
    operator.render_template_fields(context)
    operator.read_manifest(context)
    assert arguments_of(operator) == ["b"]


@pytest.mark.usefixtures("dag")
@pytest.mark.parametrize(("name", "argument"), [("missing.yaml", "manifest"), ("wrong.json", "manifest.kind")])
def test_a_file_is_checked_while_parsing(name: str, argument: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        job(manifest=name)
    assert raised.value.argument == argument


def test_a_file_name_on_a_command_line_is_no_file() -> None:
    operator = job(args=["--config", "conf.yaml"])
    operator.render_template_fields({})
    assert built(operator)["spec"]["template"]["spec"]["containers"][0]["args"] == ["--config", "conf.yaml"]


def test_another_tasks_output_inside_of_a_record_makes_it_upstream() -> None:
    with DAG("d", schedule=None):
        first = job(task_id="first")
        train = MLXPPyTorchJobOperator(
            task_id="train",
            image="i",
            workers=2,
            elastic=Elastic(max_restarts=first.output),
            volumes={"/a": Volume(claim=first.output)},
        )
    assert train.upstream_task_ids == {"first"}


def test_the_manifest_is_shown_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden: list[str] = []
    monkeypatch.setattr(compat, "mask", hidden.append)
    operator = MLXPPyTorchJobOperator(task_id="t", image="i:{{ tag }}", workers=2, env={"API_KEY": "{{ key }}", "SIZE": "3"})
    context: Any = {"task": operator, "tag": "7", "key": "hunter2"}
    operator.render_template_fields(context)
    shown = {part: yaml.safe_load(getattr(operator, part) or "null") for part in operator.parts}
    assert shown["manifest_metadata"] == {"name": "pytorchjob", "namespace": "(the connection's)"}
    assert shown["manifest_policy"]["runPolicy"]["cleanPodPolicy"] == "None"
    assert shown["manifest_worker"]["template"]["spec"]["containers"][0]["image"] == "i:7"
    assert shown["manifest_master"] is None
    assert set(hidden) == {"hunter2"}


def test_what_is_wrong_is_shown_in_the_place_of_the_manifest() -> None:
    operator = job(cpu="{{ cpu }}")
    operator.render_template_fields({"task": operator, "cpu": "four"})  # type: ignore[typeddict-unknown-key,typeddict-item]
    assert str(operator.manifest_template).startswith("cpu='four': expected")  # type: ignore[attr-defined]


def test_output_of_another_task_is_checked_later() -> None:
    with DAG("d", schedule=None):
        first = job(task_id="first")
        job(task_id="second", cpu=first.output, args=["--model", first.output["path"]])


def test_a_mapped_task_needs_no_run_to_be_described() -> None:
    with DAG("d", schedule=None):
        MLXPPyTorchJobOperator.partial(task_id="t", image="i", workers=2).expand(args=[["1"], ["2"]])


def test_none_removes_a_default_and_silence_takes_it() -> None:
    assert built(job())["spec"]["ttlSecondsAfterFinished"] == 1_814_400
    assert "ttlSecondsAfterFinished" not in built(job(ttl_seconds_after_finished=None))["spec"]


def test_retries_of_the_task_decide_about_container_restarts() -> None:
    def limit(**arguments: Any) -> int | None:
        operator = MLXPPyTorchJobOperator(task_id="t", image="i", workers=2, **arguments)
        return operator.build(operator.spec(), namespace="n").container_restarts

    assert limit() == 3
    assert limit(retries=2) == 0
    assert limit(retries=2, elastic=Elastic(min_replicas=1, max_replicas=2)) == 3


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [({}, "single"), ({"completion_mode": "Indexed", "completions": 2}, "indexed"), ({"do_xcom_push": False}, "ignored")],
)
def test_shape_of_the_result(arguments: dict[str, Any], shape: str) -> None:
    operator = job(**arguments)
    assert operator.result_shape(built(operator)) == shape
