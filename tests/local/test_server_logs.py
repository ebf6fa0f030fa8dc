"""``pods/log``: what the API server checks and what it passes on to the kubelet."""

from __future__ import annotations

import asyncio

from tests.local.conftest import PODS, a_pod


async def _bound_pod(http, **spec):
    await http.create(PODS, a_pod(spec=spec))
    await http("POST", f"{PODS}/worker/binding", {"metadata": {"name": "worker"}, "target": {"name": "node"}})


async def test_a_log_comes_from_the_kubelet_with_all_options(http, kubelet):
    await _bound_pod(http)
    options = {"timestamps": "true", "tailLines": "5", "previous": "true", "sinceTime": "2026-12-01T00:00:00Z"}
    reply = await http("GET", f"{PODS}/worker/log", **options)
    assert (reply.code, reply.body, reply.headers["Content-Type"]) == (200, "one\ntwo\n", "text/plain")
    assert kubelet.requests == [("/containerLogs/p-demo/worker/main", options)]


async def test_followed_lines_arrive_while_the_container_runs(http, kubelet):
    await _bound_pod(http)
    async with asyncio.timeout(10):
        async with http.session.get(f"{PODS}/worker/log", params={"follow": "true"}, headers=http.headers) as answer:
            assert await answer.content.readline() == b"first\n"
            kubelet.go_on.set()
            assert await answer.content.read() == b"second\n"


async def test_a_client_that_leaves_ends_the_kubelets_stream(http, kubelet):
    await _bound_pod(http)
    async with asyncio.timeout(10):
        async with http.session.get(f"{PODS}/worker/log", params={"follow": "true"}, headers=http.headers) as answer:
            await answer.content.readline()
            answer.close()
        await kubelet.gone.wait()


async def test_a_container_that_has_not_started(http, kubelet):
    await _bound_pod(http)
    kubelet.answer = 400, 'container "main" in pod "worker" is waiting to start: ContainerCreating'
    reply = await http("GET", f"{PODS}/worker/log")
    assert (reply.code, reply.body["reason"], reply.message) == (400, "BadRequest", kubelet.answer[1])


async def test_the_container_must_be_clear(http, kubelet):
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]
    await _bound_pod(http, containers=containers)
    reply = await http("GET", f"{PODS}/worker/log")
    text = "a container name must be specified for pod worker, choose one of: [a b]"
    assert (reply.code, reply.message) == (400, text)
    reply = await http("GET", f"{PODS}/worker/log", container="c")
    assert (reply.code, reply.message) == (400, "container c is not valid for pod worker")
    assert (await http("GET", f"{PODS}/worker/log", container="b")).code == 200


async def test_pods_that_do_not_exist_or_have_no_node(http):
    assert (await http("GET", f"{PODS}/worker/log")).code == 404
    await http.create(PODS, a_pod())
    reply = await http("GET", f"{PODS}/worker/log")
    assert (reply.code, reply.body) == (204, "")
    await http("POST", f"{PODS}/worker/binding", {"metadata": {"name": "worker"}, "target": {"name": "gone"}})
    reply = await http("GET", f"{PODS}/worker/log")
    assert (reply.code, reply.message) == (404, 'pods "gone" not found')


async def test_bad_options(http, kubelet):
    await _bound_pod(http)
    assert (await http("GET", f"{PODS}/worker/log", tailLines="x")).code == 400
    assert (await http("GET", f"{PODS}/worker/log", tailLines="-1")).code == 422
    assert (await http("GET", f"{PODS}/worker/log", sinceTime="yesterday")).code == 400
    assert (await http("GET", f"{PODS}/worker/log", stream="Stdout")).code == 422
    assert kubelet.requests == []


async def test_a_kubelet_that_is_down(http, kubelet):
    await _bound_pod(http)
    patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}
    await http("PATCH", "/api/v1/nodes/node/status", patch, media_type="application/merge-patch+json")
    reply = await http("GET", f"{PODS}/worker/log")
    url = "https://127.0.0.1:1/containerLogs/p-demo/worker/main"
    text = f'Get "{url}": dial tcp 127.0.0.1:1: connect: connection refused'
    assert (reply.code, reply.body.get("reason"), reply.message) == (500, None, text)
