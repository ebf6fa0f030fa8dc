"""Fixtures of the embedded platform's tests: a server on a free port and a bare HTTP client for it."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from airflow_mlxp.local.server import Server, tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMESPACE = "p-demo"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PYTORCH_JOBS = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class Reply:
    """One answer: status code, decoded body, headers."""

    def __init__(self, code: int, body: Any, headers: Any) -> None:
        self.code, self.body, self.headers = code, body, headers

    @property
    def message(self) -> str:
        return self.body["message"]

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Http:
    """A client that adds nothing: every test sees what the server sent."""

    def __init__(self, server: Server) -> None:
        self.server = server
        context = ssl.create_default_context(cadata=server.ca_pem)
        self.session = aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=context))
        self.headers = {"Authorization": f"Bearer {server.token}"}

    async def __call__(
        self, method: str, path: str, body: Any = None, *, media_type: str = "application/json", **query: Any
    ) -> Reply:
        headers = {**self.headers, "Content-Type": media_type}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, headers=headers, params=query) as answer:
            raw = await answer.read()
            decoded = json.loads(raw) if answer.content_type == "application/json" else raw.decode()
            return Reply(answer.status, decoded, answer.headers)

    async def create(self, path: str, body: Any, **query: Any) -> dict[str, Any]:
        reply = await self("POST", path, body, **query)
        assert reply.code == 201, reply.body
        return reply.body

    async def watch(self, path: str, **query: Any) -> AsyncIterator[dict[str, Any]]:
        params = {"watch": "true", **query}
        async with self.session.get(path, headers=self.headers, params=params) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                yield json.loads(line)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as running:
        running.add_namespace(NAMESPACE)
        yield running


@pytest.fixture
async def http(server: Server) -> AsyncIterator[Http]:
    client = Http(server)
    yield client
    await client.session.close()


class Kubelet:
    """A node's log endpoint that answers what a test tells it to."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.answer: tuple[int, str] = (200, "one\ntwo\n")
        self.go_on = asyncio.Event()
        self.sent_first = asyncio.Event()
        self.gone = asyncio.Event()
        self.port = 0

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.query)))
        if request.query.get("follow") != "true":
            return web.Response(status=self.answer[0], text=self.answer[1])
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        self.sent_first.set()
        try:
            await self.go_on.wait()
            await response.write(b"second\n")
        finally:
            self.gone.set()
        return response


@pytest.fixture
async def kubelet(http):
    kubelet = Kubelet()
    application = web.Application()
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.serve)
    runner = web.AppRunner(application, shutdown_timeout=1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls.Authority.new().server_context("127.0.0.1")).start()
    kubelet.port = runner.addresses[0][1]
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    await http.create("/api/v1/nodes", {"metadata": {"name": "node"}, "status": status})
    yield kubelet
    await runner.cleanup()


def a_pod_spec(**changes: Any) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/train:1"}], **changes}


def a_pod(name: str = "worker", *, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": a_pod_spec(**(spec or {}))}


def a_job(name: str = "train", *, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **metadata},
        "spec": {"template": {"spec": a_pod_spec()}, **(spec or {})},
    }


def a_pytorchjob(name: str = "train", *, workers: int = 2, **metadata: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "registry.example/train:1"}
    worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, **metadata},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }
