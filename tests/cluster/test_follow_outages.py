"""Following while the API server refuses something: a workload's end and its log stay right."""

import asyncio

import pytest

from airflow_mlxp.cluster import access
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.local.client import PODS
from airflow_mlxp.local.server.authorization import Denied
from airflow_mlxp.models import LogLines
from tests.support.following import create, watch
from tests.support.platform import a_job, running_platform

pytestmark = pytest.mark.platform

TOKEN = "token-of-the-task"
NUMBERS = "for i in $(seq 0 39); do echo $i; sleep 0.1; done"


@pytest.fixture
async def platform(tmp_path):
    async with running_platform(tmp_path / "platform") as running:
        running.server.tokens[TOKEN] = "task"
        yield running


@pytest.fixture
async def client(platform, tmp_path):
    """A user of its own: what it is denied, controllers and agent still may."""
    path = platform.server.write_kubeconfig(tmp_path / "kubeconfig", platform.namespace, token=TOKEN)
    async with Client(access.from_kubeconfig(path=str(path))) as client:
        yield client


class FirstLine:
    """Tells when the first line has been carried."""

    def __init__(self):
        self.came = asyncio.Event()

    def __call__(self, event):
        if isinstance(event, LogLines):
            self.came.set()
        return False


async def answered(platform, suffix, code):
    """Wait until the server has answered a request of this kind with this code."""
    async with asyncio.timeout(20):
        while not any(record.path.endswith(suffix) and record.code == code for record in platform.server.audit):  # noqa: ASYNC110 - the event lies behind an API
            await asyncio.sleep(0.05)


async def break_off(platform):
    """End every watch and log stream."""
    await platform.server.stop()
    await platform.server.start()


async def test_a_credential_that_is_refused_for_a_while_costs_no_line(platform, client):
    kind, ref = await create(client, a_job("train", NUMBERS))
    first_line = FirstLine()

    async def refuse_for_a_while():
        await first_line.came.wait()
        del platform.server.tokens[TOKEN]
        await break_off(platform)
        await answered(platform, "/log", 401)
        platform.server.tokens[TOKEN] = "task"

    async with asyncio.TaskGroup() as group:
        group.create_task(refuse_for_a_while())
        following = group.create_task(watch(client, kind, ref, until=first_line))
    followed = following.result()
    assert followed.outcome.succeeded
    assert followed.lines() == [str(number) for number in range(40)]


async def test_a_log_that_is_refused_midway_is_told_as_missing(platform, client):
    kind, ref = await create(client, a_job("train", NUMBERS))
    first_line = FirstLine()

    async def refuse_logs():
        await first_line.came.wait()
        platform.server.denied.add(Denied("task", "get", "pods/log"))
        await break_off(platform)

    async with asyncio.TaskGroup() as group:
        group.create_task(refuse_logs())
        following = group.create_task(watch(client, kind, ref, until=first_line))
    outcome = following.result().outcome
    assert outcome.succeeded
    assert ["forbidden" in gap.reason for gap in outcome.log_gaps] == [True]


async def test_a_pod_that_ended_while_it_could_not_be_watched_is_not_stopped(platform, client):
    platform.server.denied.add(Denied("task", "watch", "pods"))
    kind, ref = await create(client, a_job("train", "sleep 1"))
    followed = await watch(client, kind, ref)
    assert followed.outcome.succeeded
    assert not any("Stopping" in text for text in followed.warnings())
    assert (await platform.client.list(PODS, platform.namespace))["items"]


async def test_events_that_may_not_be_read_are_told_once(platform, client):
    platform.server.denied |= {Denied("task", verb, "events") for verb in ("list", "watch")}
    kind, ref = await create(client, a_job("train", "sleep 1; exit 3"))
    followed = await watch(client, kind, ref)
    assert followed.outcome.diagnosis.exit_code == 3
    (told,) = followed.warnings()
    assert told.startswith("EventsUnreadable: ")
