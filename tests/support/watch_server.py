"""A small API server with list, watch and get: objects in memory, a history to watch, faults as the test orders them."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_mlxp.cluster.access import Access
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.cluster.settings import Settings
from airflow_mlxp.identity import TASK_LABEL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMESPACE = "p-demo"
ROOTS = {"jobs": "/apis/batch/v1", "pytorchjobs": "/apis/kubeflow.org/v1", "pods": "/api/v1", "events": "/api/v1"}


@dataclass
class Cluster:
    """One namespace. ``faults`` are answers given once each, in order, before the real ones, by verb and plural."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    faults: defaultdict[tuple[str, str], list[Any]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    """Status that a verb on a plural always gets."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    version: int = 1
    oldest: int = 0
    """Watches from before this version get 410."""
    open: Counter[str] = field(default_factory=Counter)
    """Watches that are open now, by plural."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    epoch: int = 0
    """A watch ends when it is not the one that it began in."""

    def put(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        """Create or replace."""
        obj = copy.deepcopy(obj)
        name = obj["metadata"]["name"]
        verb = "MODIFIED" if (plural, name) in self.objects else "ADDED"
        self._record(plural, verb, obj)
        self.objects[plural, name] = obj
        return obj

    def delete(self, plural: str, name: str) -> None:
        self._record(plural, "DELETED", copy.deepcopy(self.objects.pop((plural, name))))

    def compact(self) -> None:
        """Forget the history: whoever watches from before has to list anew."""
        self.oldest = self.version
        self.history.clear()

    def drop_streams(self) -> None:
        """End every watch well."""
        self.epoch += 1
        self.tell()

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def count(self, verb: str, plural: str = "") -> int:
        return sum(verb == seen and plural in {"", what} for seen, what, _ in self.requests)

    @property
    def streams(self) -> int:
        return self.open.total()

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((verb, plural) for verb, plural, _ in self.requests)

    def _record(self, plural: str, verb: str, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.history.append((self.version, plural, verb, obj))
        self.tell()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        _, plural, name = _split(request.path)
        query = dict(request.query)
        verb = "get" if name else "watch" if query.get("watch") else "list"
        self.requests.append((verb, plural, query))
        if self.faults[verb, plural]:
            return await _fault(request, self.faults[verb, plural].pop(0))
        if (verb, plural) in self.refused:
            return _status(self.refused[verb, plural])
        if verb == "get":
            found = self.objects.get((plural, name))
            return web.json_response(found) if found else _status(404)
        if verb == "list":
            items = [obj for (what, _), obj in self.objects.items() if what == plural and _matches(query, obj)]
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        return await self._watch(request, plural, query)

    async def _watch(self, request: web.Request, plural: str, query: dict[str, str]) -> web.StreamResponse:
        version, epoch = int(query["resourceVersion"]), self.epoch
        if version < self.oldest:
            return _status(410)
        response = web.StreamResponse()
        await response.prepare(request)
        self.open[plural] += 1
        try:
            while self.epoch == epoch:
                changed = self.changed
                for at, what, verb, obj in list(self.history):
                    if at > version and what == plural and _matches(query, obj):
                        await response.write(json.dumps({"type": verb, "object": obj}).encode() + b"\n")
                version = max(version, self.version)
                await changed.wait()
        finally:
            self.open[plural] -= 1
        return response


def _split(path: str) -> tuple[str, ...]:
    rest = path.split(f"/namespaces/{NAMESPACE}/")[1].split("/")
    return ("", rest[0], rest[1] if len(rest) > 1 else "")


def _matches(query: dict[str, str], obj: dict[str, Any]) -> bool:
    labels = obj["metadata"].get("labels") or {}
    key, _, value = query.get("labelSelector", "").partition("=")
    if key and (key not in labels or (value and labels[key] != value)):
        return False
    path, _, value = query.get("fieldSelector", "").partition("=")
    return not path or {"metadata.name": obj["metadata"]["name"], "type": obj.get("type")}[path] == value


async def _fault(request: web.Request, fault: Any) -> web.StreamResponse:
    """A status; ``b"..."``: a watch that says this and ends; ``"reset"``: an aborted connection."""
    if isinstance(fault, int):
        return _status(fault)
    response = web.StreamResponse()
    await response.prepare(request)
    if fault == "reset":
        request.transport.abort()
    else:
        await response.write(fault)
    return response


def _status(code: int, **headers: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": "Scripted", "message": f"scripted {code}"}
    return web.json_response(body, status=code, headers=headers)


def error_event(code: int) -> bytes:
    """An ERROR event inside a watch."""
    return (
        json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": f"in-stream {code}"}}).encode() + b"\n"
    )


def a_job(number: int = 0, *, labelled: bool = True, **status: Any) -> dict[str, Any]:
    labels = {TASK_LABEL: f"task-{number}"} if labelled else {}
    metadata = {"name": f"job-{number}", "namespace": NAMESPACE, "uid": f"uid-{number}", "labels": labels, "managedFields": [{}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, "status": status}


def a_pod(number: int = 0, index: int = 0, phase: str = "Running", *, labelled: bool = True) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": f"job-{number}", **({TASK_LABEL: f"task-{number}"} if labelled else {})}
    name = f"job-{number}-{index}"
    owners = [{"kind": "Job", "uid": f"uid-{number}", "controller": True}]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"pod-{number}-{index}", "labels": labels, "ownerReferences": owners}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": phase}}


def an_event(name: str, subject: dict[str, Any], message: str, *, kind: str = "Warning", count: int = 1) -> dict[str, Any]:
    involved = {"kind": subject["kind"], "name": subject["metadata"]["name"], "uid": subject["metadata"]["uid"]}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"event-{name}"}
    return {
        "metadata": metadata,
        "type": kind,
        "reason": "Scripted",
        "message": message,
        "count": count,
        "involvedObject": involved,
    }


DONE = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}
RUNNING = {"active": 1, "ready": 1}


@asynccontextmanager
async def watch_server(cluster: Cluster) -> AsyncIterator[Client]:
    """A client of a server that serves this cluster."""
    app = web.Application()
    app.router.add_get("/{path:.*}", cluster.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        settings = Settings(backoff_initial=0.01, backoff_maximum=0.02, request_deadline=0.2)
        async with Client(Access(server=f"http://127.0.0.1:{runner.addresses[0][1]}"), settings=settings) as client:
            yield client
    finally:
        cluster.drop_streams()
        await runner.cleanup()
