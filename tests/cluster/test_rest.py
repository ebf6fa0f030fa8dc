import asyncio
import time

import pytest

from airflow_mlxp import errors
from airflow_mlxp.cluster import access, rest
from airflow_mlxp.cluster.settings import Settings
from airflow_mlxp.workloads.base import PODS
from tests.support.api_server import Cut, Hang, Reply, Reset, Stream, scripted_server, status

POD_LIST = "/api/v1/namespaces/ns/pods"
POD = f"{POD_LIST}/p"
LOG = f"{POD}/log"
FAST = Settings(backoff_initial=0.01, backoff_maximum=0.05, request_deadline=5)
BUSY = status(429, "TooManyRequests", headers={"Retry-After": "1"})


@pytest.fixture
async def server():
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def client(server):
    async with rest.Client(access.from_fields(server=server.url, token="t0"), settings=FAST) as client:
        yield client


async def test_create_is_strict_and_tells_warnings(server, client):
    warning = [("Warning", '299 - "unknown field \\"spec.x\\"", 299 - "v1beta1 is deprecated"'), ("Warning", '199 proxy "no"')]
    server.on("POST", POD_LIST, Reply(201, {"metadata": {"uid": "u"}}, warning))
    created = await client.create(PODS, "ns", {"kind": "Pod"}, dry_run=True)
    assert created == rest.Created(
        object={"metadata": {"uid": "u"}}, warnings=('unknown field "spec.x"', "v1beta1 is deprecated")
    )
    seen = server.requests[0]
    assert seen.query == {"fieldValidation": "Strict", "dryRun": "All"}
    assert seen.json == {"kind": "Pod"}
    assert seen.headers["Authorization"] == "Bearer t0"
    assert seen.headers["User-Agent"].startswith("airflow-mlxp/")


async def test_delete_names_the_uid_and_who_goes_with_it(server, client):
    server.on("DELETE", POD, status(200, ""))
    await client.delete(POD, uid="u1", propagation="Foreground", grace_seconds=0)
    assert server.requests[0].json == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }


async def test_patches_have_their_content_types(server, client):
    server.on("PATCH", POD, Reply(body={"a": 1}))
    assert await client.json_patch(POD, [{"op": "test", "path": "/a", "value": 1}]) == {"a": 1}
    assert await client.merge_patch(POD, {"a": None}) == {"a": 1}
    assert [r.headers["Content-Type"] for r in server.requests] == [
        "application/json-patch+json",
        "application/merge-patch+json",
    ]
    assert server.requests[1].json == {"a": None}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.ClusterError),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Unprocessable),
    ],
)
async def test_a_refusal_is_told_at_once_in_the_servers_words(server, client, code, error):
    server.on("GET", POD, status(code, "Reason", "what the server says", details={"name": "p"}))
    with pytest.raises(error) as caught:
        await client.get(POD)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.reason, caught.value.details) == (code, "Reason", {"name": "p"})
    assert str(caught.value) == f"GET {POD}: {code} Reason: what the server says"
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", ["<html>default backend - 404</html>", "", {"message": "no route"}])
async def test_a_404_of_a_load_balancer_does_not_mean_that_the_object_is_gone(server, client, body):
    server.on("GET", POD, Reply(404, body), Reply(body={"ok": 1}))
    assert await client.get(POD) == {"ok": 1}


async def test_an_api_that_is_not_served_is_not_found(server, client):
    with pytest.raises(errors.NotFound, match="404 Not Found: 404 page not found"):
        await client.get("/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/x")


async def test_a_page_of_a_proxy_is_told_as_a_short_excerpt(server, client):
    page = "<html><style>p {}</style><body><h1>Access\x00denied</h1>" + "<p>secret</p>" * 1000
    server.on("GET", POD, Reply(403, page, {"Content-Type": "text/html"}))
    with pytest.raises(errors.Forbidden, match=r"403 Forbidden: Access denied secret") as caught:
        await client.get(POD)
    assert len(caught.value.message) <= 256


@pytest.mark.parametrize(
    "fault", [Reset(), Cut(b'{"a": 1', 8000), Reply(500, "oops"), status(503, "x"), Reply(200, "{cut"), Reply(200, "<html>")]
)
async def test_a_passing_fault_is_repeated(server, client, fault):
    server.on("POST", POD_LIST, fault, fault, Reply(201, {"ok": True}))
    assert (await client.create(PODS, "ns", {})).object == {"ok": True}
    assert len(server.requests) == 3


async def test_too_many_requests_waits_as_long_as_asked_on_every_verb(server, client):
    for method, path in [("POST", POD_LIST), ("GET", POD_LIST), ("GET", POD), ("DELETE", POD), ("PATCH", POD), ("GET", LOG)]:
        server.on(method, path, BUSY, Reply(body={"items": []}))

    async def read_log():
        return [line async for line in client.logs("ns", "p", "c", follow=False)]

    await asyncio.gather(
        client.create(PODS, "ns", {}),
        client.list(PODS, "ns"),
        client.get(POD),
        client.delete(POD, uid="u"),
        client.json_patch(POD, []),
        read_log(),
    )
    for method, path in {(seen.method, seen.path) for seen in server.requests}:
        first, second = server.seen(method, path)
        assert 1 <= second.at - first.at < 4


async def test_a_server_that_asks_for_more_than_the_deadline_is_not_waited_for(server, client):
    server.on("GET", POD, status(429, "TooManyRequests", details={"retryAfterSeconds": 3600}))
    began = time.monotonic()
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(POD)
    assert caught.value.retry_after == 3600
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(("fault", "error"), [(Reset(), errors.ClusterUnreachable), (Reply(500, "x"), errors.ServerFailure)])
async def test_a_lasting_fault_ends_within_the_deadline(server, fault, error):
    server.on("GET", POD, fault)
    settings = Settings(backoff_initial=0.05, backoff_maximum=0.1, request_deadline=0.6)
    began = time.monotonic()
    async with rest.Client(access.from_fields(server=server.url), settings=settings) as client:
        with pytest.raises(error) as caught:
            await client.get(POD)
    assert time.monotonic() - began < 3
    assert len(server.requests) > 3
    assert caught.value.__notes__[0].startswith("tried ")


async def test_a_server_that_never_answers_is_given_up(server):
    server.on("GET", POD, Hang())
    settings = Settings(request_timeout=0.1, request_deadline=0.3, backoff_initial=0.01)
    async with rest.Client(access.from_fields(server=server.url), settings=settings) as client:
        with pytest.raises(errors.ClusterUnreachable, match=rf"GET {POD}: {server.url} did not answer within 0"):
            await client.get(POD)
    assert len(server.requests) > 1


async def test_nobody_listens():
    settings = Settings(request_deadline=0.1, backoff_initial=0.01)
    async with rest.Client(access.from_fields(server="http://127.0.0.1:1"), settings=settings) as client:
        with pytest.raises(errors.ClusterUnreachable, match="broke off: Connection refused"):
            await client.get("/version")


async def test_lists_are_read_in_pages(server, client):
    async def page(seen):
        start = int(seen.query.get("continue", "0"))
        metadata = {"resourceVersion": "7", **({"continue": str(start + 2)} if start < 4 else {})}
        return Reply(body={"metadata": metadata, "items": [{"n": start}, {"n": start + 1}]})

    server.on("GET", POD_LIST, page)
    got = await client.list(PODS, "ns", label_selector="a in (b,c),d!=e", field_selector="metadata.name=x", limit=2)
    assert got == rest.ListPage(items=[{"n": n} for n in range(6)], resource_version="7")
    assert all(seen.query["limit"] == "2" for seen in server.requests)
    assert all(seen.query["labelSelector"] == "a in (b,c),d!=e" for seen in server.requests)
    assert all(seen.query["fieldSelector"] == "metadata.name=x" for seen in server.requests)


@pytest.mark.parametrize("expirations", [1, 2, 3])
async def test_a_continue_token_that_expired_starts_the_list_anew(server, client, expirations):
    gone = 0

    async def page(seen):
        nonlocal gone
        if "limit" not in seen.query:
            return Reply(body={"metadata": {"resourceVersion": "9"}, "items": [1, 2]})
        if "continue" not in seen.query:
            return Reply(body={"metadata": {"continue": "t"}, "items": [1]})
        gone += 1
        if gone <= expirations:
            return status(410, "Expired")
        return Reply(body={"metadata": {"resourceVersion": "9"}, "items": [2]})

    server.on("GET", POD_LIST, page)
    assert await client.list(PODS, "ns") == rest.ListPage(items=[1, 2], resource_version="9")


async def test_a_quota_that_two_creates_wanted_at_once_is_asked_again_but_a_taken_name_is_not(server, client):
    clash = status(409, "Conflict", "the object has been modified", details={"kind": "resourcequotas", "name": "q"})
    server.on("POST", POD_LIST, clash, status(409, "AlreadyExists", details={"kind": "pods", "name": "p"}))
    with pytest.raises(errors.Conflict) as caught:
        await client.create(PODS, "ns", {})
    assert caught.value.reason == "AlreadyExists"
    assert len(server.requests) == 2


async def test_an_answer_beyond_the_limit_is_an_error(server):
    server.on("GET", POD, Reply(body={"a": "x" * 5000}))
    async with rest.Client(access.from_fields(server=server.url), settings=Settings(max_body_bytes=1000)) as client:
        with pytest.raises(errors.ClusterError, match="longer than 1000 bytes"):
            await client.get(POD)
    assert len(server.requests) == 1


async def test_redirects_are_not_followed(server, client):
    server.on("GET", POD, Reply(302, "", {"Location": "https://evil.example.com/"}))
    with pytest.raises(errors.ClusterError, match=r"302 Redirect: redirects are not followed: https://evil\.example\.com/"):
        await client.get(POD)


async def test_impersonation(server):
    server.on("GET", POD, Reply())
    way = access.from_fields(server=server.url, token="t", impersonate_user="jane", impersonate_groups=["a", "b"])
    async with rest.Client(way) as client:
        await client.get(POD)
    headers = server.requests[0].headers
    assert headers["Impersonate-User"] == "jane"
    assert headers.getall("Impersonate-Group") == ["a", "b"]


async def collect(stream):
    return [item async for item in stream]


async def test_watch_gives_events_still_encoded(server, client):
    server.on(
        "GET",
        POD_LIST,
        Stream([b'{"type":"ADDED","object":{"a":"\xc2\x85\xe2\x80\xa8"}}\n{"type":"BOOK', b'MARK","object":{}}\n']),
    )
    events = await collect(client.watch(PODS, "ns", resource_version="5", label_selector="x=y", field_selector="f=g"))
    assert [(event.type, bytes(event.object)) for event in events] == [
        ("ADDED", b'{"a":"\xc2\x85\xe2\x80\xa8"}'),
        ("BOOKMARK", b"{}"),
    ]
    query = server.requests[0].query
    assert 300 <= int(query.pop("timeoutSeconds")) <= 600
    assert query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "labelSelector": "x=y",
        "fieldSelector": "f=g",
    }


@pytest.mark.parametrize(("code", "error"), [(410, errors.Gone), (504, errors.ServerFailure), (403, errors.Forbidden)])
async def test_an_error_inside_a_watch_is_raised_as_what_it_is(server, client, code, error):
    event = b'{"type":"ADDED","object":{}}\n{"type":"ERROR","object":{"kind":"Status","code":%d,"message":"why"}}\n' % code
    server.on("GET", POD_LIST, Stream([event]))
    events = client.watch(PODS, "ns", resource_version="5")
    assert (await anext(events)).type == "ADDED"
    with pytest.raises(error, match="why"):
        await anext(events)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(410, "Expired"), errors.Gone),
        (status(429, "TooManyRequests", headers={"Retry-After": "7"}), errors.TooManyRequests),
        (Reply(500, "x"), errors.ServerFailure),
        (Reset(), errors.ClusterUnreachable),
        (Stream([b'{"type":"ADDED","ob'], end="reset"), errors.ClusterUnreachable),
        (Stream([b'{"type":"ADDED","ob']), errors.ClusterUnreachable),
    ],
)
async def test_a_watch_is_one_call_and_its_failure_is_told(server, client, answer, error):
    server.on("GET", POD_LIST, answer)
    with pytest.raises(error) as caught:
        await collect(client.watch(PODS, "ns", resource_version="5"))
    # aiohttp itself repeats a GET once whose connection broke before any answer.
    assert len(server.requests) == (2 if answer == Reset() else 1)
    if error is errors.TooManyRequests:
        assert caught.value.retry_after == 7


async def test_a_watch_without_any_event_counts_as_dead(server):
    server.on("GET", POD_LIST, Stream([b'{"type":"ADDED","object":{}}\n'], end="hang"))
    async with rest.Client(access.from_fields(server=server.url), settings=Settings(watch_inactivity=0.2)) as client:
        assert len(await collect(client.watch(PODS, "ns", resource_version="5"))) == 1


async def test_log_parameters(server, client):
    server.on("GET", LOG, Reply(body=b"one\ntwo"))
    lines = client.logs(
        "ns", "p", "c", follow=True, since_time="2026-01-01T00:00:00Z", previous=True, tail_lines=0, limit_bytes=9
    )
    assert await collect(lines) == [b"one", b"two"]
    assert server.requests[0].query == {
        "container": "c",
        "timestamps": "true",
        "follow": "true",
        "previous": "true",
        "sinceTime": "2026-01-01T00:00:00Z",
        "tailLines": "0",
        "limitBytes": "9",
    }


@pytest.mark.parametrize(("code", "error"), [(400, errors.BadRequest), (404, errors.NotFound), (500, errors.ServerFailure)])
async def test_a_log_that_can_not_be_read_is_told_at_once(server, client, code, error):
    server.on("GET", LOG, status(code, "x", "container is waiting to start"))
    with pytest.raises(error, match="waiting to start"):
        await collect(client.logs("ns", "p", "c", follow=True))
    assert len(server.requests) == 1


async def test_a_container_that_has_said_nothing_yet_has_no_header_and_that_is_no_failure(server):
    server.on("GET", LOG, Hang())
    async with rest.Client(
        access.from_fields(server=server.url), settings=Settings(log_inactivity=0.2, request_timeout=0.05)
    ) as client:
        assert await collect(client.logs("ns", "p", "c", follow=True)) == []


@pytest.mark.parametrize("answer", [Hang(), Stream([b"one\n"], end="hang")])
async def test_a_log_that_is_read_to_its_end_may_not_fall_silent(server, answer):
    server.on("GET", LOG, answer)
    async with rest.Client(access.from_fields(server=server.url), settings=Settings(request_timeout=0.2)) as client:
        with pytest.raises(errors.ClusterUnreachable, match=r"silent|did not answer"):
            await collect(client.logs("ns", "p", "c", follow=False))


async def test_a_watch_that_is_never_answered_is_a_failure(server):
    server.on("GET", POD_LIST, Hang())
    async with rest.Client(access.from_fields(server=server.url), settings=Settings(request_timeout=0.2)) as client:
        with pytest.raises(errors.ClusterUnreachable, match="did not answer"):
            await collect(client.watch(PODS, "ns", resource_version="1"))


async def test_a_log_that_breaks_off_gives_its_whole_lines_first(server, client):
    server.on("GET", LOG, Stream([b"one\ntwo\nthr"], end="reset"))
    lines = client.logs("ns", "p", "c", follow=True)
    assert [await anext(lines), await anext(lines)] == [b"one", b"two"]
    with pytest.raises(errors.ClusterUnreachable):
        await anext(lines)


async def test_hundreds_of_streams_do_not_wait_for_each_other(server, client):
    server.on("GET", LOG, Stream([b"line\n"], end="hang"))
    server.on("GET", POD, Reply(body={"ok": 1}))
    streams = [client.logs("ns", "p", "c", follow=True) for _ in range(300)]
    async with asyncio.timeout(30):
        assert set(await asyncio.gather(*map(anext, streams))) == {b"line"}
        assert await client.get(POD) == {"ok": 1}
    for stream in streams:
        await stream.aclose()


async def test_closing_ends_what_is_open_and_refuses_what_comes_later(server):
    server.on("GET", LOG, Stream([b"line\n"], end="hang"))
    server.on("GET", POD, Hang())
    client = rest.Client(access.from_fields(server=server.url))
    lines = client.logs("ns", "p", "c", follow=True)
    assert await anext(lines) == b"line"
    waiting = asyncio.create_task(client.get(POD))
    await server.arrived(2)
    await client.aclose()
    await client.aclose()
    async with asyncio.timeout(10):
        with pytest.raises(errors.ClusterUnreachable):
            await anext(lines)
        with pytest.raises(errors.ClusterUnreachable):
            await waiting
        with pytest.raises(errors.ClusterUnreachable, match="closed"):
            await client.get(POD)


async def test_closing_finishes_though_it_is_cancelled(server):
    server.on("GET", LOG, Stream([b"line\n"], end="hang"))
    client = rest.Client(access.from_fields(server=server.url))
    lines = client.logs("ns", "p", "c", follow=True)
    await anext(lines)
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(10):
        with pytest.raises(errors.ClusterUnreachable):
            await anext(lines)


async def test_a_cancelled_call_leaves_the_client_usable(server, client):
    server.on("GET", POD, Hang())
    call = asyncio.create_task(client.get(POD))
    await server.arrived(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.on("GET", POD, Reply(body={"a": 1}))
    assert await client.get(POD) == {"a": 1}


def test_a_client_stays_with_its_loop():
    async def use(client):
        with pytest.raises(errors.ClusterUnreachable):
            await client.get("/version")

    client = rest.Client(access.from_fields(server="http://127.0.0.1:1"), settings=Settings(request_deadline=0.01))
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(use(client))
        with pytest.raises(RuntimeError, match="event loop"):
            second.run(use(client))
        first.run(client.aclose())
