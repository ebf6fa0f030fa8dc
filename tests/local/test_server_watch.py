"""Lists, pages, selectors and watches of the embedded API server."""

from __future__ import annotations

import asyncio

import pytest

from airflow_mlxp.local.server import Server, ServerSettings
from tests.local.conftest import JOBS, MERGE_PATCH, PODS, Http, a_job, a_pod


async def _take(events, count):
    taken = []
    async with asyncio.timeout(10):
        async for event in events:
            taken.append(event)
            if len(taken) == count:
                break
    return taken


def _told(events):
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


async def test_items_of_a_list_have_no_kind_but_the_list_has(http):
    await http.create(JOBS, a_job())
    body = (await http("GET", JOBS)).body
    assert (body["kind"], body["apiVersion"]) == ("JobList", "batch/v1")
    assert "kind" not in body["items"][0]
    assert int(body["metadata"]["resourceVersion"]) >= int(body["items"][0]["metadata"]["resourceVersion"])


async def test_pages_show_the_state_at_the_first_page(http):
    for name in "abcde":
        await http.create(PODS, a_pod(name))
    first = await http("GET", PODS, limit="2")
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    await http("DELETE", f"{PODS}/d")
    await http.create(PODS, a_pod("bb"))
    token = first.body["metadata"]["continue"]
    second = await http("GET", PODS, **{"limit": "9", "continue": token})
    assert second.names == ["c", "d", "e"]
    assert second.body["metadata"] == {"resourceVersion": first.body["metadata"]["resourceVersion"]}


async def test_a_page_whose_version_is_forgotten_is_gone_but_offers_a_way_on(server, http):
    for name in "abc":
        await http.create(PODS, a_pod(name))
    first = await http("GET", PODS, limit="1")
    await http("DELETE", f"{PODS}/b")
    server.store.compact()
    gone = await http("GET", PODS, **{"continue": first.body["metadata"]["continue"]})
    assert (gone.code, gone.body["reason"]) == (410, "Expired")
    rest = await http("GET", PODS, **{"continue": gone.body["metadata"]["continue"]})
    assert rest.names == ["c"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=x", ["a"]),
        ("app!=x", ["b", "c"]),
        ("app in (x, y)", ["a", "b"]),
        ("app notin (x),tier", ["b"]),
        ("!tier", ["c"]),
        ("tier>1", ["b"]),
    ],
)
async def test_label_selectors(http, selector, names):
    await http.create(PODS, a_pod("a", labels={"app": "x", "tier": "1"}))
    await http.create(PODS, a_pod("b", labels={"app": "y", "tier": "2"}))
    await http.create(PODS, a_pod("c"))
    assert (await http("GET", PODS, labelSelector=selector)).names == names


async def test_field_selectors(http):
    await http.create(PODS, a_pod("a"))
    await http.create(PODS, a_pod("b"))
    await http("POST", f"{PODS}/b/binding", {"metadata": {"name": "b"}, "target": {"name": "node"}})
    assert (await http("GET", PODS, fieldSelector="spec.nodeName=node")).names == ["b"]
    assert (await http("GET", PODS, fieldSelector="spec.nodeName=")).names == ["a"]
    assert (await http("GET", PODS, fieldSelector="metadata.name!=a,status.phase=Pending")).names == ["b"]
    reply = await http("GET", PODS, fieldSelector="spec.image=x")
    assert (reply.code, reply.message) == (400, "field label not supported: spec.image")


async def test_a_watch_goes_on_where_the_list_ended(http):
    await http.create(JOBS, a_job("a"))
    version = (await http("GET", JOBS)).body["metadata"]["resourceVersion"]
    await http.create(JOBS, a_job("b"))
    await http("PATCH", f"{JOBS}/a", {"metadata": {"labels": {"x": "y"}}}, media_type=MERGE_PATCH)
    await http("DELETE", f"{JOBS}/b", propagationPolicy="Background")
    events = await _take(http.watch(JOBS, resourceVersion=version), 3)
    assert _told(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)
    assert events[0]["object"]["kind"] == "Job"


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_without_version_begins_with_what_exists(http, version):
    await http.create(JOBS, a_job("a"))
    assert _told(await _take(http.watch(JOBS, resourceVersion=version), 1)) == [("ADDED", "a")]


async def test_entering_and_leaving_a_selection_is_told_as_added_and_deleted(http):
    await http.create(PODS, a_pod("a"))
    version = (await http("GET", PODS)).body["metadata"]["resourceVersion"]
    for value in ("x", None):
        await http("PATCH", f"{PODS}/a", {"metadata": {"labels": {"app": value}}}, media_type=MERGE_PATCH)
    events = await _take(http.watch(PODS, resourceVersion=version, labelSelector="app"), 2)
    assert _told(events) == [("ADDED", "a"), ("DELETED", "a")]
    assert events[1]["object"]["metadata"]["labels"] == {"app": "x"}


async def test_a_watch_from_a_forgotten_version_ends_with_gone_inside_the_stream(server, http):
    await http.create(JOBS, a_job())
    server.store.compact()
    (event,) = [event async for event in http.watch(JOBS, resourceVersion="1")]
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_ends_after_its_timeout(http):
    async with asyncio.timeout(10):
        assert [event async for event in http.watch(JOBS, timeoutSeconds="1")] == []


async def test_bookmarks_tell_the_version(server):
    async with Server(ServerSettings(bookmark_interval=0.05)) as quick:
        client = Http(quick)
        path = "/api/v1/namespaces/default/pods"
        (event,) = await _take(client.watch(path, allowWatchBookmarks="true", resourceVersion=str(quick.store.version)), 1)
        await client.session.close()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "Pod"
    assert event["object"]["metadata"]["resourceVersion"] == str(quick.store.version)


async def test_initial_events_end_with_a_bookmark(http):
    await http.create(JOBS, a_job("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await _take(http.watch(JOBS, **query), 2)
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    reply = await http("GET", JOBS, watch="true", sendInitialEvents="true")
    assert reply.code == 422


async def test_a_version_of_the_future_is_answered_with_a_timeout(http):
    reply = await http("GET", JOBS, resourceVersion="999999")
    assert (reply.code, reply.body["reason"], reply.headers["Retry-After"]) == (504, "Timeout", "1")


async def test_stopping_the_server_ends_watches(server, http):
    events = http.watch(JOBS)
    pending = asyncio.ensure_future(anext(events, None))
    await http("GET", JOBS)
    async with asyncio.timeout(5):
        await server.stop()
        assert await pending is None
