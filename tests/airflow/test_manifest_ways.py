"""All ways in, by ``dag.test()`` on the embedded platform: files, objects, overrides, exact names, sidecars, a Master."""

from pathlib import Path
from typing import Any

import pytest

from airflow_mlxp.local.client import JOBS
from tests.support.airflow_home import AirflowHome
from tests.support.platform import running_platform

pytestmark = [pytest.mark.platform, pytest.mark.airflow]

MANIFEST = """\
metadata:
  name: from-file
  creationTimestamp: null
spec:
  template:
    spec:
      containers:
        - name: main
          image: demo/any:1
          command: [sh, -c]
          args: ["echo {{ params.greeting }} from $WHO, length ${{ '{#' }}WHO}; echo {{ ti.task_id }} > $MLXP_RESULT_PATH"]
          env: [{name: WHO, value: {{ params.who }}}]
"""
DAG_FILE = """
from airflow.sdk import DAG
from airflow_mlxp import MLXPJobOperator, MLXPPyTorchJobOperator
from kubernetes import client as k8s

RAW = "spec: {template: {spec: {containers: [{name: main, image: i, command: [sh, -c], args: ['echo raw {{.Values}}']}]}}}"
SIDE = {"name": "side", "image": "i", "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
MAIN = k8s.V1Container(name="main", image="i", command=["sh", "-c"], args=["echo object {{ ds_nodash | length }}"])
TEMPLATE = k8s.V1PodTemplateSpec(spec=k8s.V1PodSpec(containers=[MAIN], restart_policy="Never"))
ENV = [{"name": "WHO", "value": "{{ params.who }} too"}]
WHO = {"spec": {"template": {"spec": {"containers": [{"name": "main", "env": ENV}]}}}}

with DAG("ways", schedule=None, params={"greeting": "hello", "who": "7"}) as dag:
    MLXPJobOperator(task_id="file", manifest="job.yaml")
    MLXPJobOperator(task_id="both", manifest="job.yaml", name="mine", overrides=WHO)
    MLXPJobOperator(task_id="exact", manifest="job.yaml", name="exact")
    MLXPJobOperator.partial(task_id="mapped", deferrable=False).expand(manifest=["job.yaml"])
    MLXPJobOperator(task_id="raw", manifest=RAW, templated=False)
    MLXPJobOperator(task_id="object", manifest=k8s.V1Job(spec=k8s.V1JobSpec(template=TEMPLATE)))
    MLXPJobOperator(task_id="sidecar", image="i", command=["sh", "-c", "echo main"], sidecars=[SIDE])
    MLXPPyTorchJobOperator(task_id="master", image="i", workers=1, master=True, command=["sh", "-c", "echo rank $RANK"])
"""


async def test_every_way_in(tmp_path: Path) -> None:
    home = AirflowHome(tmp_path / "airflow")
    home.migrate()
    (home.dags / "job.yaml").write_text(MANIFEST, encoding="utf-8")
    async with running_platform(tmp_path) as platform:
        run = await home.run("ways", DAG_FILE, kubeconfig=platform.kubeconfig)
        jobs: list[dict[str, Any]] = (await platform.client.list(JOBS, platform.namespace))["items"]
    tasks = ("file", "both", "exact", "mapped", "raw", "object", "sidecar", "master")
    assert run.states == dict.fromkeys(tasks, "success"), run.output
    names = {task: run.xcoms[task, "workload"]["name"] for task in tasks}
    assert (names["exact"], names["file"].rpartition("-")[0], names["both"].rpartition("-")[0]) == (
        "from-file",
        "from-file",
        "mine",
    )
    assert {names[task] for task in tasks if task != "master"} == {job["metadata"]["name"] for job in jobs}
    assert run.xcoms["file", "return_value"] == "file"
    for line in ("hello from 7, length 1", "hello from 7 too, length 5", "raw {{.Values}}", "object 8", "rank 0", "rank 1"):
        assert line in run.output
