"""Tasks in ``dag.test()`` on the embedded platform: the whole way, without scheduler and triggerer."""

from pathlib import Path
from typing import Any

import pytest

from airflow_mlxp.local.client import JOBS, PODS
from tests.support.airflow_home import AirflowHome, DagRun
from tests.support.platform import running_platform

pytestmark = [pytest.mark.platform, pytest.mark.airflow]

HEADER = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mlxp import Elastic, MLXPJobOperator, MLXPPyTorchJobOperator, Volume

PYTHON = ["python3", "-u", "-c"]
RESULT = '''
import json, os, time
for step in range(3):
    print("step", step, flush=True)
    time.sleep(0.1)
open(os.environ["MLXP_RESULT_PATH"], "w").write(json.dumps({"accuracy": 0.97}))
'''
FAIL = '''
print("about to fail")
raise ValueError("my own mistake")
'''
"""

SCENARIOS = (
    HEADER
    + """
with DAG("scenarios", schedule=None) as dag:
    common = {"image": "demo/any:1", "command": PYTHON}
    MLXPJobOperator(task_id="deferred", args=[RESULT], **common)
    MLXPJobOperator(task_id="sync", args=[RESULT], deferrable=False, **common)
    MLXPJobOperator(task_id="fails", args=[FAIL], backoff_limit=0, **common)
    MLXPJobOperator(task_id="fails_sync", args=[FAIL], backoff_limit=0, deferrable=False, **common)
    MLXPJobOperator(task_id="refused", args=["pass"], manifest={"spec": {"ttlSeconds": 5}}, **common)
    MLXPJobOperator(task_id="submitted", args=["import time; time.sleep(60)"], wait=False, **common)
    MLXPJobOperator(task_id="templated", args=["print('run', '{{ run_id }}')"], env={"A": "{{ task.task_id }}"},
        volumes={"/data": Volume(claim="demo-data", read_only=True)}, **common)
    each = [["print('mapped', 1)"], ["print('mapped', 2)"]]
    MLXPJobOperator.partial(task_id="mapped", deferrable=False, **common).expand(args=each)
    MLXPJobOperator(task_id="empty", args=["{{ none }}"], cpu="{{ 'many' }}", **common)
    MLXPJobOperator(
        task_id="too_long", args=["import time; time.sleep(60)"], deferrable=False,
        execution_timeout=timedelta(seconds=3), **common
    )
    NODES = "import os; print('nodes', os.environ['PET_NNODES'])"
    MLXPPyTorchJobOperator(task_id="train", workers=2, elastic=Elastic(max_restarts=0), args=[NODES], **common)
"""
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    made = AirflowHome(tmp_path_factory.mktemp("airflow"))
    made.migrate()
    return made


async def test_scenarios(home: AirflowHome, tmp_path: Path) -> None:
    async with running_platform(tmp_path, volumes={"demo-data": None}) as platform:
        run = await home.run("scenarios", SCENARIOS, kubeconfig=platform.kubeconfig)
        jobs = (await platform.client.list(JOBS, platform.namespace))["items"]
        pods = (await platform.client.list(PODS, platform.namespace))["items"]
    check(run, jobs, pods, namespace=platform.namespace)


def check(run: DagRun, jobs: list[dict[str, Any]], pods: list[dict[str, Any]], *, namespace: str) -> None:
    """What a run of the scenarios shows, and what it leaves."""
    expected = dict.fromkeys(("fails", "fails_sync", "refused", "empty", "too_long"), "failed")
    assert run.states == dict.fromkeys(("deferred", "sync", "submitted", "templated", "mapped", "train"), "success") | expected, (
        run.output
    )
    _check_success(run, namespace)
    _check_failure(run)
    assert {_task_of(job) for job in jobs} == {"deferred", "sync", "fails", "fails_sync", "submitted", "templated", "mapped"}
    assert {_task_of(pod) for pod in pods if pod["status"]["phase"] == "Running"} == {"submitted"}


def _task_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["annotations"]["airflow-mlxp/task-id"])


def _check_success(run: DagRun, namespace: str) -> None:
    for task in ("deferred", "sync"):
        assert run.xcoms[task, "return_value"] == {"accuracy": 0.97}
        facts = run.xcoms[task, "workload"]
        assert (facts["kind"], facts["namespace"]) == ("Job", namespace)
        assert facts["name"].startswith(f"{task}-")
        assert facts["timings"]["created"] <= facts["timings"]["finished"]
    assert run.output.count("step 2") == 2
    assert ("submitted", "return_value") not in run.xcoms
    assert run.xcoms["train", "workload"]["kind"] == "PyTorchJob"
    assert "[worker-0] nodes 2:2" in run.output
    assert "[worker-1] nodes 2:2" in run.output
    assert "run manual__" in run.output
    assert "mapped 1" in run.output
    assert "mapped 2" in run.output


def _check_failure(run: DagRun) -> None:
    assert run.output.count("ended with exit code 1: ValueError: my own mistake") == 2
    assert "] Traceback (most recent call last):" in run.output
    assert 'unknown field "spec.ttlSeconds"' in run.output
    assert "cpu='many'" in run.output
