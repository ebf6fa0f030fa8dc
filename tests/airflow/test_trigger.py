"""The trigger on the embedded platform, driven as Airflow's triggerer drives it."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from airflow_mlxp import compat, identity
from airflow_mlxp.local.client import JOBS
from airflow_mlxp.local.platform import Platform
from airflow_mlxp.models import WorkloadRef
from airflow_mlxp.triggers import events, workload
from airflow_mlxp.triggers.events import EventStatus, WorkloadEvent
from airflow_mlxp.triggers.workload import MLXPWorkloadTrigger
from tests.support.airflow_home import connection_environment
from tests.support.platform import a_job, is_gone, running_platform, until

pytestmark = pytest.mark.platform

OWNER = "01a00000-0000-7000-8000-000000000001"
TASK_LABEL = {identity.TASK_LABEL: "0" * 32}


@dataclass
class Cluster:
    platform: Platform
    logs: list[dict[str, Any]]

    async def job(self, name: str, script: str) -> WorkloadRef:
        """A Job that the try OWNER has submitted."""
        manifest = a_job(name, script)
        manifest["metadata"] |= {"labels": TASK_LABEL, "annotations": {identity.OWNER_ANNOTATION: OWNER}}
        manifest["spec"]["template"]["metadata"] = {"labels": TASK_LABEL}
        made = await self.platform.client.create(JOBS, self.platform.namespace, manifest)
        return WorkloadRef(kind="Job", namespace=self.platform.namespace, name=name, uid=made["metadata"]["uid"])

    def text(self) -> str:
        return "\n".join(str(entry["event"]) for entry in self.logs)


def trigger(ref: WorkloadRef, *, in_triggerer: bool = True, **arguments: Any) -> MLXPWorkloadTrigger:
    """As the triggerer makes it: from what the operator's trigger serialized."""
    options = {"grace_seconds": 1} | arguments.pop("options", {})
    deferred = MLXPWorkloadTrigger(conn_id="mlxp_default", ref=asdict(ref), owner=OWNER, options=options, **arguments)
    _, kwargs = deferred.serialize()
    made = MLXPWorkloadTrigger(**json.loads(json.dumps(kwargs)))
    if in_triggerer:
        made.trigger_id = 7
        made._task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=3)
    return made


async def event_of(made: MLXPWorkloadTrigger) -> WorkloadEvent:
    fired = [event async for event in made.run()]
    assert len(fired) == 1
    return events.decode(fired[0].payload)


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    structlog.reset_defaults()
    monkeypatch.setattr(workload, "log", structlog.get_logger())
    monkeypatch.setattr(MLXPWorkloadTrigger, "_warm", True)
    async with running_platform(tmp_path) as platform:
        for name, value in connection_environment(platform.kubeconfig).items():
            monkeypatch.setenv(name, value)
        with capture_logs() as logs:
            yield Cluster(platform, logs)


def task_is(monkeypatch: pytest.MonkeyPatch, state: str | None, *, seconds: float = 0) -> None:
    """What the supervisor answers about the task: there is none here."""

    async def task_state(*, dag_id: str, run_id: str, task_id: str, map_index: int) -> str | None:
        assert (dag_id, run_id, task_id, map_index) == ("d", "r", "t", 3)
        await asyncio.sleep(seconds)
        return state

    monkeypatch.setattr(compat, "task_state", task_state)


async def test_success_with_lines_and_result(cluster: Cluster) -> None:
    ref = await cluster.job("good", "echo first; echo second; echo '{\"a\": 1}' > /dev/termination-log")
    event = await event_of(trigger(ref))
    assert (event.status, event.ref, event.result) == (EventStatus.SUCCEEDED, ref, {"a": 1})
    assert event.server == cluster.platform.server.url
    assert "] first\n" in cluster.text()
    assert "Job good: Succeeded" in cluster.text()
    line = next(entry for entry in cluster.logs if "] first" in entry["event"])
    assert line["timestamp"].endswith("Z")
    assert line["pod"].startswith("good-")


async def test_failure_with_diagnosis(cluster: Cluster) -> None:
    event = await event_of(trigger(await cluster.job("bad", "echo no such file >&2; exit 3")))
    assert event.status is EventStatus.FAILED
    assert event.diagnosis is not None
    assert event.diagnosis.exit_code == 3


async def test_the_event_waits_until_the_deferral_is_over(cluster: Cluster) -> None:
    deferred_at = datetime.now(UTC) - timedelta(seconds=workload.HOLD_SECONDS - 2)
    begun = time.monotonic()
    await event_of(trigger(await cluster.job("quick", "true"), deferred_at=deferred_at.isoformat()))
    assert time.monotonic() - begun >= 1.9


async def test_a_trigger_that_starts_late_says_that_lines_may_appear_twice(cluster: Cluster) -> None:
    deferred_at = datetime.now(UTC) - timedelta(seconds=90)
    await event_of(trigger(await cluster.job("quick", "true"), deferred_at=deferred_at.isoformat()))
    assert "90 s after the deferral" in cluster.text()


async def test_a_connection_that_cant_be_used_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = await cluster.job("quick", "true")
    monkeypatch.setenv("AIRFLOW_CONN_MLXP_DEFAULT", json.dumps({"conn_type": "mlxp", "extra": {"kubeconfig": "x"}}))
    event = await event_of(trigger(ref))
    assert event.status is EventStatus.LOST
    assert event.diagnosis is not None
    assert "unknown field 'kubeconfig'" in event.diagnosis.sentence


async def cancelled_as_by_airflow(made: MLXPWorkloadTrigger, *, again_every: float = 0.1) -> None:
    """Run until the Job is at work, then cancel and call ``on_kill()`` as Airflow does, which cancels it again and again."""

    async def run_trigger() -> None:
        try:
            await event_of(made)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(made.on_kill(), timeout=30)
            await made.cleanup()
            raise

    task = asyncio.create_task(run_trigger())
    while not task.done():
        await asyncio.wait([task], timeout=again_every)
        task.cancel("__airflow_user_action__")


async def at_work(cluster: Cluster, name: str) -> None:
    await until(cluster.platform, JOBS, name, lambda job: (job.get("status") or {}).get("ready"))


async def test_a_killed_task_deletes_though_it_is_cancelled_again_and_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_is(monkeypatch, "failed", seconds=0.5)
    ref = await cluster.job("long", "sleep 600")
    await at_work(cluster, "long")
    await cancelled_as_by_airflow(trigger(ref))
    await until(cluster.platform, JOBS, "long", is_gone, seconds=10)


async def test_a_stalled_triggerer_leaves_the_job_alone(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    task_is(monkeypatch, "deferred")
    made = trigger(await cluster.job("long", "sleep 600"))
    await at_work(cluster, "long")
    await made.on_kill()
    assert "still deferred" in cluster.text()
    job = await cluster.platform.client.find(JOBS, cluster.platform.namespace, "long")
    assert job is not None
    assert "deletionTimestamp" not in job["metadata"]


async def test_another_try_has_taken_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    task_is(monkeypatch, None)
    made = trigger(await cluster.job("long", "sleep 600"))
    patch = {"metadata": {"annotations": {identity.OWNER_ANNOTATION: "somebody else"}}}
    await cluster.platform.client.patch(JOBS, cluster.platform.namespace, "long", patch)
    await made.on_kill()
    assert "another try owns it" in cluster.text()
    assert await cluster.platform.client.find(JOBS, cluster.platform.namespace, "long")


@pytest.mark.parametrize("in_triggerer", [True, False])
async def test_cancellation_alone_deletes_only_in_dag_test(cluster: Cluster, in_triggerer: bool) -> None:
    made = trigger(await cluster.job("long", "sleep 600"), in_triggerer=in_triggerer)
    task = asyncio.create_task(event_of(made))
    await at_work(cluster, "long")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await cluster.platform.client.find(JOBS, cluster.platform.namespace, "long") is None) is not in_triggerer


async def test_before_airflow_3_3_the_tasks_state_decides(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "calls_on_kill", lambda: False)
    task_is(monkeypatch, "failed")
    task = asyncio.create_task(event_of(trigger(await cluster.job("long", "sleep 600"))))
    await at_work(cluster, "long")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(cluster.platform, JOBS, "long", is_gone, seconds=10)


def test_arguments_of_a_later_version_are_ignored() -> None:
    ref = {"kind": "Job", "namespace": "n", "name": "j", "uid": "u", "cluster": "later"}
    made = MLXPWorkloadTrigger(conn_id="c", ref=ref, owner=OWNER, invented=1, schema_version=9)
    assert made.ref == WorkloadRef(kind="Job", namespace="n", name="j", uid="u")
    assert "secret" not in json.dumps(made.serialize())
