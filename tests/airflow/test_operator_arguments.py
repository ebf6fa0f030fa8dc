"""What operators make of their arguments while a DAG is parsed."""

import inspect
from dataclasses import fields
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_mlxp import Elastic, MLXPJobOperator, MLXPPyTorchJobOperator
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
