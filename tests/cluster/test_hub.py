"""One watch, many waits: what an observer sees, and what it costs."""

import asyncio
import contextvars
from contextlib import AsyncExitStack

import pytest

from airflow_mlxp import errors, workloads
from airflow_mlxp.cluster import hub
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.cluster.watch import WatchLimits
from airflow_mlxp.models import WorkloadRef
from tests.support.watch_server import (
    DONE,
    FAILED,
    NAMESPACE,
    RUNNING,
    Cluster,
    a_job,
    a_pod,
    an_event,
    error_event,
    watch_server,
)

JOB = workloads.get("Job")
FAST = WatchLimits(first_delay=0.01, longest_delay=0.02, quick_end=0.01, poll_interval=0.02, poll_span=0.1, refusal_grace=0.1)
LIMITS = hub.HubLimits(first_list=5, event_linger=0.05, watch=FAST)


def ref(number=0, uid=None):
    return WorkloadRef(kind="Job", namespace=NAMESPACE, name=f"job-{number}", uid=uid or f"uid-{number}")


def observing(client, number=0, uid=None, *, limits=LIMITS):
    return hub.observe(client, JOB, ref(number, uid), limits=limits)


async def until(observation, condition):
    async with asyncio.timeout(5):
        while not condition(observation):
            await observation.changed()


async def until_true(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the server has no event for every condition
            await asyncio.sleep(0.005)


def phase(observation):
    return JOB.phase_of(observation.workload).value


async def test_the_present_state_and_every_change():
    cluster = Cluster()
    cluster.put("jobs", a_job(**RUNNING))
    cluster.put("pods", a_pod())
    cluster.put("pods", a_pod(7))
    async with watch_server(cluster) as client, observing(client) as seen:
        assert (phase(seen), list(seen.pods)) == ("Running", ["pod-0-0"])
        assert "managedFields" not in seen.workload["metadata"]
        assert not await seen.changed(0.01)
        cluster.put("pods", a_pod(index=1))
        await until(seen, lambda seen: len(seen.pods) == 2)
        cluster.put("jobs", a_job(**DONE))
        await until(seen, lambda seen: phase(seen) == "Succeeded")
        assert not await seen.changed(0.01)


async def test_ten_observers_share_three_lists_and_their_clients_may_close():
    cluster = Cluster()
    for number in range(10):
        cluster.put("jobs", a_job(number))
        cluster.put("pods", a_pod(number))
    async with watch_server(cluster) as client, AsyncExitStack() as rest:
        first = AsyncExitStack()
        own = await first.enter_async_context(Client(client.access))
        await first.enter_async_context(observing(own))
        others = [await rest.enter_async_context(observing(client, number)) for number in range(1, 10)]
        await first.aclose()
        cluster.put("jobs", a_job(9, **DONE))
        await until(others[-1], lambda seen: phase(seen) == "Succeeded")
        await until_true(lambda: cluster.streams == 3)
        assert {key: count for key, count in cluster.counts.items() if key[0] == "list"} == {
            ("list", "jobs"): 1,
            ("list", "pods"): 1,
            ("list", "events"): 1,
        }
        assert cluster.count("get") == 0


async def test_nothing_stays_open_when_the_last_observer_has_left():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client:
        async with observing(client), observing(client):
            await until_true(lambda: cluster.streams == 3)
        await until_true(lambda: cluster.streams == 0)
        assert not hub._HUBS[asyncio.get_running_loop()]
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in names if name.startswith("watch ")]


async def test_a_cancelled_observer_leaves_nothing_open():
    cluster = Cluster()
    cluster.put("jobs", a_job())

    async def wait(client):
        async with observing(client) as seen:
            await seen.changed()
            await seen.changed()

    async with watch_server(cluster) as client:
        task = asyncio.create_task(wait(client))
        await until_true(lambda: cluster.streams == 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_true(lambda: cluster.streams == 0)


async def test_sources_run_outside_the_context_of_who_came_first():
    whose, contexts = contextvars.ContextVar("whose"), []

    def factory(loop, coroutine, context=None):
        if getattr(coroutine, "__qualname__", "") == "Source._run":
            contexts.append(context)
        return asyncio.Task(coroutine, loop=loop, context=context)

    cluster = Cluster()
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client:
        whose.set("the log of the first task")
        asyncio.get_running_loop().set_task_factory(factory)
        async with observing(client):
            await until_true(lambda: cluster.streams == 3)
    assert len(contexts) == 3
    assert all(context is not None and whose not in context for context in contexts)


async def test_gone_and_taken_names():
    cluster = Cluster()
    cluster.put("jobs", a_job(0))
    cluster.put("jobs", a_job(1))
    async with watch_server(cluster) as client, observing(client, 0) as seen, observing(client, 1, "uid-of-before") as other:
        assert other.workload is None
        cluster.delete("jobs", "job-0")
        await until(seen, lambda seen: seen.workload is None)
        cluster.put("jobs", {**a_job(0), "metadata": {**a_job(0)["metadata"], "uid": "another"}})
        assert not await seen.changed(0.05)
        assert seen.workload is None


async def test_pods_of_another_uid_under_the_same_labels_are_not_ours():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    stranger = a_pod(index=5)
    stranger["metadata"]["ownerReferences"] = [{"uid": "uid-of-before"}]
    cluster.put("pods", stranger)
    cluster.put("pods", a_pod())
    async with watch_server(cluster) as client, observing(client) as seen:
        assert list(seen.pods) == ["pod-0-0"]


async def test_deleted_pods_stay_as_evidence_with_their_last_state():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    cluster.put("pods", a_pod())
    async with watch_server(cluster) as client, observing(client) as seen:
        cluster.put("pods", a_pod(phase="Failed"))
        cluster.delete("pods", "job-0-0")
        await until(seen, lambda seen: seen.removed_pods)
        assert seen.pods == {}
        assert seen.removed_pods["pod-0-0"]["status"]["phase"] == "Failed"


async def test_an_object_younger_than_the_shared_list_is_seen_at_once():
    cluster = Cluster()
    cluster.put("jobs", a_job(0))
    async with watch_server(cluster) as client, observing(client, 0):
        await until_true(lambda: cluster.streams == 3)
        cluster.put("jobs", a_job(1, **RUNNING))
        async with observing(client, 1) as young:
            assert phase(young) == "Running"
            cluster.put("jobs", a_job(1, **DONE))
            await until(young, lambda seen: phase(seen) == "Succeeded")


async def test_what_ended_unobserved_is_read_when_somebody_asks():
    cluster = Cluster()
    for number in range(3):
        cluster.put("jobs", a_job(number, **(DONE if number else RUNNING)))
        cluster.put("pods", a_pod(number, phase="Succeeded" if number else "Running"))
    async with watch_server(cluster) as client, observing(client, 0):
        await until_true(lambda: cluster.streams == 2)
        before = cluster.counts
        async with observing(client, 2) as ended:
            assert (phase(ended), list(ended.pods)) == ("Succeeded", ["pod-2-0"])
        assert cluster.counts - before == {("get", "jobs"): 1, ("list", "pods"): 1}


async def test_objects_without_our_label_are_watched_by_name():
    cluster = Cluster()
    cluster.put("jobs", a_job(labelled=False))
    cluster.put("pods", a_pod(labelled=False))
    async with watch_server(cluster) as client, observing(client) as seen, observing(client) as same:
        assert list(seen.pods) == ["pod-0-0"]
        cluster.put("jobs", a_job(labelled=False, **DONE))
        await until(seen, lambda seen: phase(seen) == "Succeeded")
        await until(same, lambda seen: phase(seen) == "Succeeded")
        named = [query for verb, plural, query in cluster.requests if (verb, plural) == ("list", "jobs")]
        assert [query.get("fieldSelector") for query in named].count("metadata.name=job-0") == 1


async def test_changes_in_a_gap_are_found_after_410():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    cluster.put("pods", a_pod())
    async with watch_server(cluster) as client, observing(client) as seen:
        await until_true(lambda: cluster.streams == 3)
        cluster.faults["watch", "jobs"] += [410, error_event(410)]
        cluster.faults["watch", "pods"] += ["reset", error_event(410)]
        cluster.put("pods", a_pod(index=1))
        cluster.put("jobs", a_job(**DONE))
        cluster.delete("pods", "job-0-0")
        cluster.compact()
        cluster.drop_streams()
        await until(seen, lambda seen: phase(seen) == "Succeeded" and list(seen.pods) == ["pod-0-1"])
        assert list(seen.removed_pods) == ["pod-0-0"]


async def test_what_went_in_a_gap_is_gone_for_who_joins_later():
    cluster = Cluster()
    cluster.put("jobs", a_job(0))
    cluster.put("jobs", a_job(1))
    cluster.put("pods", a_pod(1))
    async with watch_server(cluster) as client, observing(client, 0) as seen:
        await until_true(lambda: cluster.streams == 3)
        cluster.delete("jobs", "job-1")
        cluster.delete("pods", "job-1-0")
        cluster.put("jobs", a_job(0, **DONE))
        cluster.compact()
        cluster.drop_streams()
        await until(seen, lambda seen: phase(seen) == "Succeeded")
        await until_true(lambda: cluster.count("list", "pods") == 2 and cluster.open["pods"])
        async with observing(client, 1) as late:
            assert (late.workload, late.pods) == (None, {})


async def test_an_interruption_is_told_and_so_is_its_end():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client, observing(client) as seen:
        await until_true(lambda: cluster.streams == 3)
        cluster.refused["watch", "jobs"] = 503
        cluster.drop_streams()
        await until(seen, lambda seen: "503" in seen.interrupted)
        del cluster.refused["watch", "jobs"]
        cluster.put("jobs", a_job(**DONE))
        await until(seen, lambda seen: not seen.interrupted and phase(seen) == "Succeeded")


async def test_lists_are_polled_where_watching_is_forbidden():
    cluster = Cluster()
    cluster.refused["watch", "jobs"] = 403
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client, observing(client) as seen:
        await until(seen, lambda seen: "forbidden" in seen.interrupted)
        cluster.put("jobs", a_job(**DONE))
        await until(seen, lambda seen: phase(seen) == "Succeeded")
        del cluster.refused["watch", "jobs"]
        await until_true(lambda: cluster.open["jobs"])
        cluster.delete("jobs", "job-0")
        await until(seen, lambda seen: seen.workload is None and not seen.interrupted)


@pytest.mark.parametrize(("code", "error"), [(403, errors.Forbidden), (401, errors.Unauthorized)])
async def test_a_refused_list_is_raised_where_it_is_waited_for(code, error):
    cluster = Cluster()
    cluster.refused["list", "pods"] = code
    async with watch_server(cluster) as client:
        with pytest.raises(error):
            async with observing(client):
                pytest.fail("nothing is known of the pods")


async def test_a_role_that_is_taken_away_ends_the_wait_after_a_grace():
    cluster = Cluster()
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client, observing(client) as seen:
        await until_true(lambda: cluster.streams == 3)
        cluster.refused["list", "jobs"] = 403
        cluster.faults["watch", "jobs"] = [410]
        cluster.drop_streams()
        with pytest.raises(errors.Forbidden):
            await until(seen, lambda seen: False)
        del cluster.refused["list", "jobs"]
        async with observing(client) as anew:
            assert anew.workload is not None


async def test_an_unreachable_server_is_named_when_the_first_list_does_not_come():
    cluster = Cluster()
    cluster.refused["list", "jobs"] = 503
    limits = hub.HubLimits(first_list=0.3, watch=FAST)
    async with watch_server(cluster) as client:
        with pytest.raises(errors.ClusterUnreachable, match=r"could not list jobs for 0\.3 s.*503"):
            async with observing(client, limits=limits):
                pytest.fail("nothing is known of the job")


async def test_warnings_about_the_workload_and_its_pods_only():
    cluster = Cluster()
    job, pod = cluster.put("jobs", a_job()), a_pod(phase="Pending")
    cluster.put("events", an_event("quota", job, "exceeded quota"))
    cluster.put("events", an_event("early", pod, "0/1 nodes are available"))
    cluster.put("events", an_event("normal", job, "created", kind="Normal"))
    cluster.put("events", an_event("other", a_job(5), "not ours"))
    async with watch_server(cluster) as client, observing(client) as seen:
        assert await seen.events_known(5)
        assert [event["message"] for event in seen.events] == ["exceeded quota"]
        cluster.put("pods", pod)
        await until(seen, lambda seen: len(seen.events) == 2)
        cluster.put("events", an_event("quota", job, "exceeded quota", count=2))
        await until(seen, lambda seen: [event["count"] for event in seen.events] == [1, 2])


async def test_events_are_watched_while_a_workload_does_not_run_and_after_it_failed():
    cluster = Cluster()
    job = cluster.put("jobs", a_job())
    async with watch_server(cluster) as client, observing(client) as seen:
        await until_true(lambda: cluster.streams == 3)
        cluster.put("pods", a_pod())
        cluster.put("jobs", a_job(**RUNNING))
        await until_true(lambda: cluster.streams == 2)
        cluster.put("events", an_event("limit", job, "reached the backoff limit"))
        cluster.put("jobs", a_job(**FAILED))
        await until(seen, lambda seen: phase(seen) == "Failed")
        assert await seen.events_known(5)
        assert [event["message"] for event in seen.events] == ["reached the backoff limit"]


async def test_a_role_without_events_fails_nobody():
    cluster = Cluster()
    cluster.refused["list", "events"] = 403
    cluster.put("jobs", a_job())
    async with watch_server(cluster) as client, observing(client) as seen:
        assert not await seen.events_known(5)
        assert "403" in seen.events_error
        assert not seen.interrupted
        cluster.put("jobs", a_job(**DONE))
        await until(seen, lambda seen: phase(seen) == "Succeeded")


async def test_a_thousand_observers_cost_no_more_requests_than_one():
    cluster = Cluster()
    for number in range(1000):
        cluster.put("jobs", a_job(number, **RUNNING))
        cluster.put("pods", a_pod(number))
    ended = 0

    async def wait(client, number):
        nonlocal ended
        async with observing(client, number) as seen:
            await until(seen, lambda seen: phase(seen) == "Succeeded")
            ended += 1

    async with watch_server(cluster) as client, asyncio.TaskGroup() as group:
        for number in range(1000):
            group.create_task(wait(client, number))
        await until_true(lambda: cluster.streams == 2)
        for number in range(1000):
            cluster.put("jobs", a_job(number, **DONE))
    assert ended == 1000
    assert cluster.counts.total() == 4
