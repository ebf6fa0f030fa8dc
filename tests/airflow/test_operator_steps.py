"""Steps of a task that a whole DAG run shows only when things go wrong, on the embedded platform."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError, TaskDeferralTimeout, TaskDeferred

from airflow_mlxp import MLXPJobOperator
from airflow_mlxp.errors import InfrastructureFailure, WorkloadFailure
from airflow_mlxp.local.client import JOBS
from airflow_mlxp.local.platform import Platform
from airflow_mlxp.models import Diagnosis, FailureClass, LogGap, WorkloadRef
from airflow_mlxp.operators import base
from airflow_mlxp.triggers.events import EventStatus, WorkloadEvent
from tests.support.airflow_home import connection_environment
from tests.support.platform import is_gone, pods_of, running_platform, until

pytestmark = pytest.mark.platform

TI_ID = "01a00000-0000-7000-8000-000000000001"


class Task:
    """One operator with the context of one try, as a worker has it."""

    def __init__(self, *, retry: bool = False, **arguments: Any) -> None:
        arguments = {
            "task_id": "t",
            "image": "i:1",
            "command": ["sh", "-c"],
            "args": ["sleep 600"],
            "grace_seconds": 1,
        } | arguments
        self.operator = MLXPJobOperator(**arguments)
        self.xcoms: dict[str, Any] = {}
        self.submitted = threading.Event()
        self.stored: dict[str, Any] = {}
        ti = SimpleNamespace(
            id=TI_ID,
            dag_id="d",
            task_id="t",
            run_id="r",
            map_index=-1,
            try_number=1,
            max_tries=1,
            task=self.operator,
            xcom_push=self._push,
            xcom_pull=lambda key, map_indexes: self.xcoms.get(key),
            _ti_context_from_server=SimpleNamespace(should_retry=retry),
        )
        dag_run = SimpleNamespace(start_date=None, logical_date=None, run_after=None, clear_number=0)
        store = SimpleNamespace(get=self.stored.get, set=self.stored.__setitem__)
        self.context: Any = {"ti": ti, "dag_run": dag_run, "task_state_store": store}

    def _push(self, key: str, value: Any) -> None:
        self.xcoms[key] = value
        self.submitted.set()

    async def execute(self) -> Any:
        return await asyncio.to_thread(MLXPJobOperator.execute.__wrapped__, self.operator, self.context)

    async def complete(self, **event: Any) -> Any:
        payload = WorkloadEvent(**event).to_payload()
        return await asyncio.to_thread(self.operator.execute_complete, self.context, payload)

    @property
    def job(self) -> str:
        return str(self.xcoms["workload"]["name"])


@pytest.fixture
async def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Platform]:
    async with running_platform(tmp_path) as running:
        for name, value in connection_environment(running.kubeconfig).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    written: list[str] = []
    monkeypatch.setattr(base, "_write", lambda record: written.append(record.text))
    return written


def diagnosis(failure_class: FailureClass) -> Diagnosis:
    return Diagnosis(category="c", failure_class=failure_class, sentence="It broke.", evidence=("line",), advice="Mend it.")


async def deferred(task: Task) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as raised:
        await task.execute()
    return raised.value


async def test_the_deferral_carries_names_only(platform: Platform) -> None:
    task = Task(execution_timeout=base.timedelta(seconds=60))
    found = await deferred(task)
    classpath, kwargs = found.trigger.serialize()
    assert classpath == "airflow_mlxp.triggers.workload.MLXPWorkloadTrigger"
    assert (kwargs["conn_id"], kwargs["owner"], kwargs["ref"]["name"]) == ("mlxp_default", TI_ID, task.job)
    assert kwargs["options"]["timeout"] == 60
    assert found.timeout.total_seconds() == 60 + 1 + base.DEFER_MARGIN
    assert platform.server.token not in str(kwargs)
    assert len(task.stored["mlxp_nonces"]) == 1


@pytest.mark.parametrize("text", ["A=(1 2); echo ${#A[@]}", "echo {{ ds "])
def test_text_that_jinja_can_not_read_is_named_with_the_way_out(text: str) -> None:
    operator = MLXPJobOperator(task_id="t", image="demo/any:1", command=["bash", "-c"], args=[f"set -e\n{text}"])
    with pytest.raises(AirflowFailException) as raised:
        operator.render_template_fields({})
    assert "line 2" in str(raised.value)
    assert text.strip() in str(raised.value)
    assert "{% raw %}" in str(raised.value)


async def test_a_repeated_submit_meets_its_own_job(platform: Platform) -> None:
    first, again = Task(), Task()
    await deferred(first)
    await deferred(again)
    assert first.xcoms == again.xcoms
    assert len((await platform.client.list(JOBS, platform.namespace))["items"]) == 1


async def test_a_finished_job_is_not_deferred_for(platform: Platform) -> None:
    task = Task(args=["echo 7 > $MLXP_RESULT_PATH"])
    await deferred(task)
    await until(platform, JOBS, task.job, lambda job: (job.get("status") or {}).get("completionTime"))
    again = Task(args=["echo 7 > $MLXP_RESULT_PATH"])
    assert await again.execute() == 7


@pytest.mark.parametrize(
    ("error", "retry", "raised", "stays"),
    [
        ("Trigger timeout", True, TaskDeferralTimeout, False),
        ("Trigger failure", False, TaskDeferralError, False),
        ("Trigger failure", True, TaskDeferralError, True),
    ],
)
async def test_a_lost_trigger(platform: Platform, error: str, retry: bool, raised: type[Exception], stays: bool) -> None:
    task = Task(retry=retry)
    await deferred(task)
    with pytest.raises(raised):
        await asyncio.to_thread(task.operator.resume_execution, "__fail__", {"error": error}, task.context)
    assert (await platform.client.find(JOBS, platform.namespace, task.job) is not None) is stays


async def test_a_kill_while_the_worker_follows(platform: Platform) -> None:
    task = Task(deferrable=False)
    execution = asyncio.create_task(task.execute())
    assert await asyncio.to_thread(task.submitted.wait, 20)
    await until(platform, JOBS, task.job, lambda job: (job.get("status") or {}).get("ready"))
    await asyncio.to_thread(task.operator.on_kill)
    with pytest.raises(InfrastructureFailure, match="killed"):
        await execution
    await until(platform, JOBS, task.job, is_gone, seconds=5)


async def test_a_kill_after_the_deferral_began(platform: Platform) -> None:
    task = Task()
    await deferred(task)
    await asyncio.to_thread(task.operator.on_kill)
    await until(platform, JOBS, task.job, is_gone, seconds=5)


async def test_the_end_comes_from_the_event_alone(lines: list[str]) -> None:
    ref = WorkloadRef(kind="Job", namespace="n", name="j", uid="u")
    gap = LogGap(replica="worker-1", pod="p", container="main", since="2026-01-01T00:00:00Z", reason="the pod was deleted")
    task = Task()
    assert await task.complete(status=EventStatus.SUCCEEDED, ref=ref, server="https://s", result=[1], log_gaps=(gap,)) == [1]
    assert task.xcoms["workload"]["server"] == "https://s"
    assert lines == []  # the trigger has told the gap


async def test_lines_that_were_late_are_written_at_the_end(platform: Platform, lines: list[str]) -> None:
    task = Task(args=["seq 3"])
    await deferred(task)
    await until(platform, JOBS, task.job, lambda job: (job.get("status") or {}).get("succeeded"))
    (pod,) = await pods_of(platform, task.job)
    late = LogGap(
        replica="0",
        pod=pod["metadata"]["name"],
        pod_uid=pod["metadata"]["uid"],
        container="main",
        since="",
        reason="late",
        is_open=True,
    )
    gone = replace(late, pod_uid="another")
    lines.clear()
    ref = WorkloadRef(**{key: task.xcoms["workload"][key] for key in ("kind", "namespace", "name", "uid")})
    await task.complete(status=EventStatus.SUCCEEDED, ref=ref, log_gaps=(late, gone))
    assert "\n".join(lines[:-1]).splitlines() == ["[0] 1", "[0] 2", "[0] 3"]
    assert lines[-1].endswith("are missing: the pod was deleted before its log was read to the end")


@pytest.mark.parametrize(
    ("failure_class", "raised"),
    [
        (FailureClass.PERMANENT, AirflowFailException),
        (FailureClass.INFRASTRUCTURE, InfrastructureFailure),
        (FailureClass.WORKLOAD, WorkloadFailure),
    ],
)
async def test_who_has_to_act_decides_about_retries(failure_class: FailureClass, raised: type[Exception]) -> None:
    with pytest.raises(raised) as caught:
        await Task().complete(status=EventStatus.FAILED, diagnosis=diagnosis(failure_class))
    assert str(caught.value) == "It broke.\n  line\nMend it."
