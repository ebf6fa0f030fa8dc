"""Tasks in a real Airflow: scheduler, triggerer and REST API, against the embedded platform."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_mlxp.local.client import JOBS
from airflow_mlxp.local.platform import Platform
from tests.support.airflow_home import connection_environment
from tests.support.platform import running_platform
from tests.support.standalone import AirflowAPI, running_airflow, text_of, until

pytestmark = [
    pytest.mark.platform,
    pytest.mark.airflow,
    # The demo's helper lets go of Airflow's process on purpose: it outlives the command that starts it.
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
]

DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mlxp import MLXPJobOperator

PYTHON = ["python3", "-u", "-c"]
STEPS = '''
import json, os, time
for step in range(40):
    print("step", step, flush=True)
    time.sleep(0.3)
open(os.environ["MLXP_RESULT_PATH"], "w").write(json.dumps({"accuracy": 0.97}))
'''
LONG = "import time; print('long work begins', flush=True); time.sleep(600)"

def dag(name, **arguments):
    with DAG(name, schedule=None) as made:
        MLXPJobOperator(task_id="task", image="demo/any:1", command=PYTHON, **arguments)
    return made

class Lost(MLXPJobOperator):
    # its trigger dies of an argument
    def defer(self, *, trigger, **kwargs):
        trigger.options["timeout"] = "soon"
        super().defer(trigger=trigger, **kwargs)

with DAG("lost", schedule=None) as lost:
    Lost(task_id="task", image="demo/any:1", command=PYTHON, args=[LONG], grace_seconds=1)

steps = dag("steps", args=[STEPS])
short = dag("short", args=["print('short')"])
fails = dag("fails", args=["raise ValueError('my own mistake')"], backoff_limit=0)
long_deferred = dag("long_deferred", args=[LONG], grace_seconds=1)
long_sync = dag("long_sync", args=[LONG], grace_seconds=1, deferrable=False)
masked = dag("masked", args=["print('the token is', open('TOKEN_FILE').read())"], mlxp_conn_id="inline")
too_long = dag("too_long", args=[LONG], grace_seconds=1, execution_timeout=timedelta(seconds=8))
"""

DAG_IDS = ("steps", "short", "fails", "masked", "lost", "long_deferred", "long_sync", "too_long")


async def test_in_a_real_airflow(tmp_path: Path) -> None:
    dags, token = tmp_path / "dags", tmp_path / "token"
    dags.mkdir()
    (dags / "tests.py").write_text(DAGS.replace("TOKEN_FILE", str(token)), encoding="utf-8")
    async with (
        running_platform(tmp_path / "platform") as platform,
        running_airflow(
            tmp_path / "airflow", dags, connection_environment(platform.kubeconfig) | inline_connection(platform)
        ) as api,
    ):
        token.write_text(platform.server.token, encoding="utf-8")
        await api.wait_for_dag("steps")
        # One after the other: SQLite refuses one of two writers at the same moment.
        runs = {dag_id: await api.trigger(dag_id) for dag_id in DAG_IDS}
        async with asyncio.TaskGroup() as group:
            group.create_task(lines_show_while_the_task_is_deferred(api, runs["steps"]))
            group.create_task(ended(api, "short", runs["short"], "success"))
            group.create_task(a_failure_shows_its_reason(api, runs["fails"]))
            group.create_task(a_secret_of_the_connection_is_masked(api, platform, runs["masked"]))
            group.create_task(marked_failed(api, platform, "long_deferred", runs["long_deferred"], state="deferred"))
            group.create_task(marked_failed(api, platform, "long_sync", runs["long_sync"], state="running"))
            group.create_task(a_lost_trigger_leaves_nothing_behind(api, platform, runs["lost"]))
            group.create_task(a_time_out_deletes_the_job(api, platform, runs["too_long"]))


async def lines_show_while_the_task_is_deferred(api: AirflowAPI, run: str) -> None:
    async def shows_live() -> bool:
        deferred = await state_of(api, "steps", run) == "deferred"
        return deferred and "] step 3" in text_of(await api.log("steps", run, "task"))

    await until(shows_live, seconds=90, what="a live log line")
    await ended(api, "steps", run, "success")
    lines = [line.split("] ", 1)[1] for line in text_of(await api.log("steps", run, "task")).splitlines() if "] step " in line]
    assert lines == [f"step {number}" for number in range(40)]
    assert await api.xcom("steps", run, "task") == {"accuracy": 0.97}
    facts = await api.xcom("steps", run, "task", "workload")
    assert facts["kind"] == "Job"
    assert facts["timings"]["finished"]


async def a_failure_shows_its_reason(api: AirflowAPI, run: str) -> None:
    await ended(api, "fails", run, "failed")
    entries = await api.log("fails", run, "task")
    assert "ValueError: my own mistake" in text_of(entries)
    assert "ended with exit code 1: ValueError: my own mistake" in str(entries)


def inline_connection(platform: Platform) -> dict[str, str]:
    """The kubeconfig typed into the connection."""
    connection = {"conn_type": "mlxp", "extra": {"kube_config": platform.kubeconfig.read_text(encoding="utf-8")}}
    return {"AIRFLOW_CONN_INLINE": json.dumps(connection)}


async def a_secret_of_the_connection_is_masked(api: AirflowAPI, platform: Platform, run: str) -> None:
    await ended(api, "masked", run, "success")
    entries = await api.log("masked", run, "task")
    assert "the token is ***" in text_of(entries)
    assert platform.server.token not in str(entries)


async def marked_failed(api: AirflowAPI, platform: Platform, dag_id: str, run: str, *, state: str) -> None:
    async def at_work() -> bool:
        return await state_of(api, dag_id, run) == state and "long work begins" in text_of(await api.log(dag_id, run, "task"))

    await until(at_work, seconds=90, what=f"{dag_id} {state} and at work")
    assert await job_of(platform, dag_id)
    await api.set_task_state(dag_id, run, "task", "failed")
    await until(lambda: is_gone(platform, dag_id), seconds=12, what=f"delete of the Job of {dag_id}")
    assert await state_of(api, dag_id, run) == "failed"


async def a_lost_trigger_leaves_nothing_behind(api: AirflowAPI, platform: Platform, run: str) -> None:
    await ended(api, "lost", run, "failed")
    assert "deleted" in text_of(await api.log("lost", run, "task"))
    assert await is_gone(platform, "lost")


async def a_time_out_deletes_the_job(api: AirflowAPI, platform: Platform, run: str) -> None:
    await ended(api, "too_long", run, "failed")
    assert await is_gone(platform, "too_long")
    assert "8 s" in str(await api.log("too_long", run, "task"))


async def ended(api: AirflowAPI, dag_id: str, run: str, state: str) -> None:
    async def over() -> str | None:
        found = await state_of(api, dag_id, run)
        return found if found in {"success", "failed"} else None

    found = await until(over, seconds=120, what=f"end of {dag_id}")
    assert found == state, text_of(await api.log(dag_id, run, "task"))


async def state_of(api: AirflowAPI, dag_id: str, run: str) -> str | None:
    return (await api.tasks(dag_id, run))[0]["state"]


async def job_of(platform: Platform, dag_id: str) -> dict[str, Any] | None:
    jobs = (await platform.client.list(JOBS, platform.namespace))["items"]
    return next((job for job in jobs if job["metadata"]["annotations"]["airflow-mlxp/dag-id"] == dag_id), None)


async def is_gone(platform: Platform, dag_id: str) -> bool:
    return await job_of(platform, dag_id) is None
