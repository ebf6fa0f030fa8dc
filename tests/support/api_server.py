"""A real HTTP server on the loopback interface whose answers a test scripts, faults of the connection included."""

import asyncio
import json
import socket
import ssl
import struct
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Seen:
    """One request as it arrived; ``at`` is monotonic, ``client`` the common name of the TLS client certificate."""

    method: str
    path: str
    query: dict[str, str]
    headers: Any
    body: bytes
    at: float
    client: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """A whole answer; ``body`` may be bytes, text or anything that JSON can hold."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] | list[tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """A chunked answer, piece by piece; then ``end``: ``close`` well, ``reset`` the connection, or ``hang``."""

    pieces: Iterable[bytes] = ()
    end: str = "close"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """Promises ``length`` bytes, sends ``body`` and closes."""

    body: bytes
    length: int


@dataclass(frozen=True)
class Reset:
    """Breaks the connection with RST instead of an answer."""


@dataclass(frozen=True)
class Hang:
    """Takes the request and never answers."""


Answer = Reply | Stream | Cut | Reset | Hang | Callable[[Seen], Awaitable["Answer"]]


def status(code: int, reason: str, message: str = "", **fields: Any) -> Reply:
    """A ``metav1.Status`` answer."""
    headers = fields.pop("headers", {})
    return Reply(
        code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, **fields}, headers
    )


class ScriptedServer:
    """Answers each verb and path from its script: in order, the last one for ever. Unscripted requests get a plain 404."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.url = ""
        self.port = 0
        self._scripts: dict[tuple[str, str], list[Answer]] = defaultdict(list)
        self._closing = asyncio.Event()
        self._arrival = asyncio.Condition()

    def on(self, method: str, path: str, *answers: Answer) -> None:
        self._scripts[method, path] = list(answers)

    def seen(self, method: str, path: str) -> list[Seen]:
        return [request for request in self.requests if (request.method, request.path) == (method, path)]

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come in all."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        seen = await _seen(request)
        self.requests.append(seen)
        async with self._arrival:
            self._arrival.notify_all()
        script = self._scripts.get((seen.method, seen.path)) or [Reply(404, "404 page not found\n")]
        answer = script.pop(0) if len(script) > 1 else script[0]
        while callable(answer):
            answer = await answer(seen)
        match answer:
            case Reply():
                return _whole(answer)
            case Stream():
                return await self._stream(request, answer)
            case Cut():
                return await _cut(request, answer)
            case Reset():
                _reset(request)
            case Hang():
                await self._closing.wait()
        return web.Response()

    async def _stream(self, request: web.Request, answer: Stream) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        for piece in answer.pieces:
            await response.write(piece)
        if answer.end == "reset":
            _reset(request)
        if answer.end == "hang":
            await self._closing.wait()
        return response

    def release(self) -> None:
        """Let hanging requests end."""
        self._closing.set()


@asynccontextmanager
async def scripted_server(*, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        server.url = f"{'https' if context else 'http'}://127.0.0.1:{server.port}"
        yield server
    finally:
        server.release()
        await runner.cleanup()


async def _seen(request: web.Request) -> Seen:
    body = await request.read()
    certificate = request.get_extra_info("peercert") or {}
    names = dict(pair for group in certificate.get("subject", ()) for pair in group)
    return Seen(
        request.method,
        request.path,
        dict(request.query),
        request.headers.copy(),
        body,
        time.monotonic(),
        names.get("commonName", ""),
    )


def _whole(answer: Reply) -> web.Response:
    body = answer.body
    if isinstance(body, str):
        body = body.encode()
    if isinstance(body, bytes):
        return web.Response(status=answer.status, body=body, headers=answer.headers)
    return web.json_response(body, status=answer.status, headers=answer.headers)


async def _cut(request: web.Request, answer: Cut) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(answer.length)})
    await response.prepare(request)
    await response.write(answer.body)
    request.transport.close()
    return response


def _reset(request: web.Request) -> None:
    connection = request.transport.get_extra_info("socket")
    # With a linger time of 0 the kernel sends RST at close.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()
