"""The nested generators of a watch, against scripted answers and in virtual time."""

import asyncio
import itertools
import json
from contextlib import aclosing

import msgspec
import pytest

from airflow_mlxp import errors
from airflow_mlxp.cluster.backoff import Backoff
from airflow_mlxp.cluster.rest import ListPage, WatchEvent
from airflow_mlxp.cluster.watch import Query, WatchLimits, watch_forever, watch_from, watch_once
from airflow_mlxp.cluster.watch_items import Bookmark, Changed, Interrupted, Listed, Resumed
from airflow_mlxp.workloads.base import PODS

LIMITS = WatchLimits(first_delay=1, longest_delay=30, quick_end=1, poll_interval=10, poll_span=60, refusal_grace=120)


def event(kind, version, *, uid="u", **status):
    obj = {"metadata": {"uid": uid, "resourceVersion": str(version), "managedFields": [1]}, "status": status}
    return WatchEvent(kind, msgspec.Raw(json.dumps(obj).encode()))


def refusal(code, **fields):
    return errors.cluster_error_type(code)(code, message=f"scripted {code}", **fields)


class Scripted:
    """Plays lists and watches: an exception is raised, a number waits so many seconds, ``for ever`` never ends."""

    def __init__(self, *, lists=(), watches=()):
        self.lists, self.watches = list(lists), list(watches)
        self.asked = []
        self.now = asyncio.get_running_loop().time

    async def list(self, api, namespace, **_):
        self.asked.append(("list", self.now()))
        found = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(found, Exception):
            raise found
        return ListPage(items=[{"metadata": {"uid": uid, "managedFields": []}} for uid in found], resource_version="100")

    async def watch(self, api, namespace, *, resource_version, **_):
        self.asked.append((resource_version, self.now()))
        for step in self.watches.pop(0) if self.watches else ["for ever"]:
            if isinstance(step, Exception):
                raise step
            if step == "for ever":
                await asyncio.Event().wait()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step


def query(client):
    return Query(client=client, api=PODS, namespace="p-demo")


async def take(count, client):
    items = []
    async with aclosing(watch_forever(query(client), LIMITS)) as stream:
        async for item in stream:
            items.append(item)
            if len(items) == count:
                return items
    return items


def kinds(items):
    return [type(item) for item in items]


async def test_once_gives_changes_and_bookmarks_undecoded():
    client = Scripted(watches=[[event("ADDED", 1, phase="Running"), event("BOOKMARK", 5), event("NEW", 6), event("DELETED", 7)]])
    items = [item async for item in watch_once(query(client), "0")]
    assert kinds(items) == [Changed, Bookmark, Changed]
    assert (items[0].head.uid, items[0].head.phase, items[2].deleted) == ("u", "Running", True)
    assert items[0].decode() == {"metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"phase": "Running"}}


@pytest.mark.looptime
async def test_each_call_goes_on_from_the_last_version_bookmarks_included():
    client = Scripted(watches=[[event("ADDED", 7), event("BOOKMARK", 9)], [event("MODIFIED", 11), refusal(410)]])
    items = [item async for item in watch_from(query(client), "5", Backoff())]
    assert kinds(items) == [Changed, Bookmark, Changed]
    assert [version for version, _ in client.asked] == ["5", "9"]


@pytest.mark.looptime
@pytest.mark.parametrize("code", [410, 504])
async def test_a_version_that_is_too_old_or_too_new_is_listed_anew(code):
    client = Scripted(lists=[["a"], ["b"]], watches=[[event("ADDED", 101), refusal(code)]])
    assert kinds(await take(3, client)) == [Listed, Changed, Listed]
    assert [what for what, _ in client.asked][:3] == ["list", "100", "list"]


@pytest.mark.looptime
async def test_pauses_grow_and_begin_anew_after_progress():
    down = [errors.ClusterUnreachable("reset")]
    client = Scripted(lists=[[]], watches=[down] * 8 + [[event("ADDED", 101), *down], down])
    assert kinds(await take(4, client)) == [Listed, Interrupted, Resumed, Changed]
    watched = [moment for what, moment in client.asked if what != "list"]
    pauses = [after - before for before, after in itertools.pairwise(watched)]
    assert len(pauses) == 8
    for number, pause in enumerate(pauses):
        assert min(30, 2**number) / 2 <= pause <= min(30, 2**number)


@pytest.mark.looptime
async def test_the_server_says_how_long_to_wait():
    client = Scripted(
        lists=[refusal(429, retry_after=50.0), []], watches=[[refusal(429, retry_after=70.0)], [event("ADDED", 101)]]
    )
    items = await take(6, client)
    assert kinds(items) == [Interrupted, Listed, Resumed, Interrupted, Resumed, Changed]
    moments = [moment for _, moment in client.asked]
    assert 50 <= moments[1] - moments[0] <= 52
    assert 70 <= moments[3] - moments[2] <= 72


@pytest.mark.looptime
async def test_a_server_that_closes_at_once_is_not_asked_in_a_loop():
    client = Scripted(lists=[[]], watches=[[]] * 6 + [[event("ADDED", 101)]])
    assert kinds(await take(2, client)) == [Listed, Changed]
    assert client.now() >= (1 + 2 + 4 + 8 + 16 + 30) / 2


@pytest.mark.looptime
async def test_a_quiet_watch_that_ends_in_time_is_opened_again_at_once(looptime):
    client = Scripted(lists=[[]], watches=[[70.0], [70.0], [event("ADDED", 101)]])
    await take(2, client)
    assert looptime == 140


@pytest.mark.looptime
async def test_lists_are_polled_where_watch_is_forbidden_and_watch_is_tried_again():
    client = Scripted(lists=[["a"]], watches=[[refusal(403)], [refusal(403)], [event("ADDED", 101)]])
    items = await take(16, client)
    assert kinds(items) == [Listed, Interrupted, *[Listed] * 12, Resumed, Changed]
    assert "every 10 s" in items[1].reason
    assert [round(moment) for what, moment in client.asked if what != "list"] == [0, 60, 120]


@pytest.mark.looptime
@pytest.mark.parametrize("code", [401, 403, 404])
async def test_a_list_refused_at_the_beginning_is_told_at_once(code):
    client = Scripted(lists=[refusal(code)])
    with pytest.raises(errors.cluster_error_type(code)):
        await take(1, client)
    assert client.now() == 0


@pytest.mark.looptime
async def test_a_list_refused_later_is_borne_for_a_while():
    client = Scripted(lists=[["a"], refusal(403)], watches=[[refusal(410)]])
    items = []
    with pytest.raises(errors.Forbidden):
        items += [item async for item in watch_forever(query(client), LIMITS)]
    assert 120 <= client.now() <= 160
    client = Scripted(lists=[["a"], *[refusal(403)] * 4, ["b"]], watches=[[refusal(410)]])
    assert kinds(await take(4, client)) == [Listed, Interrupted, Listed, Resumed]


@pytest.mark.looptime
async def test_an_outage_of_a_day_is_ridden_over():
    client = Scripted(lists=[["a"], *[errors.ClusterUnreachable("no route")] * 3000, ["b"]], watches=[[refusal(504)]])
    assert kinds(await take(4, client)) == [Listed, Interrupted, Listed, Resumed]
    assert client.now() > 12 * 3600


@pytest.mark.looptime
async def test_an_unreadable_event_is_a_broken_connection():
    broken = WatchEvent("ADDED", msgspec.Raw(b'{"metadata": null}'))
    client = Scripted(lists=[[]], watches=[[broken], [event("ADDED", 101)]])
    assert kinds(await take(4, client)) == [Listed, Interrupted, Resumed, Changed]
