"""A kubelet's log endpoint behind an API server, scripted by the test: instances of one container, cuts and refusals."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from airflow_mlxp.cluster.access import Access
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.cluster.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BASE = int(datetime(2026, 12, 1, 10, 0, tzinfo=UTC).timestamp())
SECOND = 1_000_000_000
PATH = "/api/v1/namespaces/p-demo/pods/train-worker-0/log"


def stamp(nanoseconds: int) -> str:
    """A time after BASE as a kubelet writes it."""
    seconds, rest = divmod(nanoseconds, SECOND)
    return f"{datetime.fromtimestamp(BASE + seconds, tz=UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


@dataclass
class Container:
    """What has been written so far; a cut ends a stream after so many lines, ``refusals`` are answered before streams."""

    instances: list[list[tuple[int, bytes]]] = field(default_factory=lambda: [[]])
    running: bool = True
    cut_after: int = 0
    cut: str = "close"
    refusals: list[tuple[int, str]] = field(default_factory=list)
    ends_streams: bool = True
    requests: list[dict[str, str]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, moment: int, text: bytes) -> None:
        self.instances[-1].append((moment, text))
        self.tell()

    def restart(self) -> None:
        self.instances.append([])
        self.tell()

    def end(self) -> None:
        self.running = False
        self.tell()

    def tell(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append(query)
        previous = query.get("previous") == "true"
        if self.refusals and not previous:
            code, message = self.refusals.pop(0)
            return _status(code, message)
        if previous and len(self.instances) < 2:
            return _status(400, "previous terminated container not found")
        lines = self.instances[-2 if previous else -1]
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        position = 0
        while True:
            news = self.news
            while position < len(lines):
                moment, text = lines[position]
                position += 1
                if moment // SECOND + BASE < _since(query):
                    continue
                await response.write(f"{stamp(moment)} ".encode() + text + b"\n")
                sent += 1
                if sent == self.cut_after and not previous:
                    return await self._cut(request, response)
            has_ended = not self.running or lines is not self.instances[-1]
            if query.get("follow") != "true" or (has_ended and self.ends_streams):
                return response
            await news.wait()

    async def _cut(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        if self.cut == "reset":
            await response.write(b"2026-12-01T10:59:59.000000000Z half a li")
            request.transport.abort()
        return response


def _since(query: dict[str, str]) -> int:
    text = query.get("sinceTime", "")
    return int(datetime.fromisoformat(text).timestamp()) if text else 0


def _status(code: int, message: str) -> web.Response:
    body: dict[str, Any] = {"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "Scripted"}
    return web.json_response(body, status=code)


@asynccontextmanager
async def log_server(container: Container, *, settings: Settings | None = None) -> AsyncIterator[Client]:
    """A client of a server that serves this container."""
    app = web.Application()
    app.router.add_get(PATH, container.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Client(Access(server=url), settings=settings or Settings(backoff_initial=0.01)) as client:
            yield client
    finally:
        await runner.cleanup()
