"""HTTP to one API server: connections, credentials, repetition, and every failure as one of our errors.

The only module of the cluster layer that imports aiohttp at run time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp  # noqa: TID253  imported at run time only, by the client
import msgspec

from airflow_mlxp import __version__
from airflow_mlxp.cluster import answers, server_url, streams
from airflow_mlxp.cluster.auth import Authenticator, Proof
from airflow_mlxp.cluster.backoff import Backoff
from airflow_mlxp.errors import AccessError, ClusterError, ClusterUnreachable, Conflict, ServerFailure, TooManyRequests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from airflow_mlxp.cluster.access import Access
    from airflow_mlxp.cluster.settings import Settings

_T = TypeVar("_T")
_LEAST_TRY = 1.0
"""Seconds that even the last try before the deadline gets; less would only hide the failure of the one before."""
_IDLE_CONNECTION = 60.0
"""Seconds that an unused connection is kept; API servers and load balancers keep theirs for longer."""
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer that vanished without a word is noticed after a minute, though a log stream may be silent for hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request; its text is ``VERB path``."""

    method: str
    path: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The JSON object that answered a plain request, and its warnings."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()


def _abort(response: aiohttp.ClientResponse) -> None:
    """Drop the connection of a stream; the farewell of TLS would wait for the server, and could outlive the event loop."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


class Transport:
    """Sends requests to one API server. Belongs to the event loop of its first request."""

    def __init__(self, access: Access, *, settings: Settings) -> None:
        self._access, self._settings = access, settings
        self._auth = Authenticator(access, settings=settings)
        self._proxy = server_url.proxy_for(access.server, access.proxy_url) or None
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def aclose(self) -> None:
        """Close every connection, also when cancelled meanwhile."""
        self._closed = True
        if self._session is not None:
            await asyncio.shield(asyncio.create_task(self._session.close(), name=f"close {self._access.server}"))

    async def call(self, request: Request) -> Answer:
        """Send a plain request, repeated as ``Client`` promises."""
        return await self._repeated(lambda remaining: self._exchange(request, remaining), _is_passing)

    @asynccontextmanager
    async def stream(
        self, request: Request, *, head_timeout: float, silent_head: bool = False, repeat_busy: bool = False
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open a stream: wait ``head_timeout`` seconds for the answer's header, then give its body.

        Only 401 is repeated, and 429 with ``repeat_busy``. A header that does not come in time raises ClusterUnreachable,
        with ``silent_head`` streams.Inactive: then it means no more than silence.
        """
        is_passing = _is_busy if repeat_busy else _never
        with _as_our_errors(request, self._access):
            try:
                response = await self._repeated(lambda _: self._open(request, head_timeout, "identity"), is_passing)
            except streams.Inactive:
                if silent_head:
                    raise
                raise self._no_answer(request, head_timeout) from None
            try:
                yield response.content
            finally:
                _abort(response)

    def _no_answer(self, request: Request, seconds: float) -> ClusterUnreachable:
        return ClusterUnreachable(f"{request}: {self._access.server} did not answer within {seconds:.0f} s")

    async def _repeated(self, attempt: Callable[[float], Awaitable[_T]], is_passing: Callable[[Exception], bool]) -> _T:
        """Attempt until it succeeds, fails for good or the deadline is over; ``attempt`` is told the seconds that remain."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ends = began + self._settings.request_deadline
        backoff = Backoff(initial=self._settings.backoff_initial, maximum=self._settings.backoff_maximum)
        while True:
            try:
                return await attempt(ends - loop.time())
            except (ClusterError, ClusterUnreachable) as error:
                pause = backoff.next(getattr(error, "retry_after", None))
                if self._closed or not is_passing(error):
                    raise
                if loop.time() + pause >= ends:
                    error.add_note(f"tried {backoff.failures} times in {loop.time() - began:.0f} s")
                    raise
                await asyncio.sleep(pause)

    async def _exchange(self, request: Request, remaining: float) -> Answer:
        """One try of a plain request."""
        bound = min(max(remaining, _LEAST_TRY), self._settings.request_timeout)
        with _as_our_errors(request, self._access):
            try:
                async with asyncio.timeout(bound):
                    response = await self._open(request, bound, "gzip")
                    try:
                        body = await streams.read_all(response.content, limit=self._settings.max_body_bytes)
                    finally:
                        response.release()
            except aiohttp.ClientError:
                raise  # some are TimeoutErrors too, of the connection
            except (TimeoutError, streams.Inactive) as error:
                raise self._no_answer(request, bound) from error
        return Answer(
            body=self._decoded(request, response, body), warnings=answers.warnings(response.headers.getall("Warning", ()))
        )

    def _decoded(self, request: Request, response: aiohttp.ClientResponse, body: bytes | None) -> dict[str, Any]:
        if body is None:
            limit = self._settings.max_body_bytes
            raise ClusterError(
                response.status, reason="TooLarge", message=f"the answer is longer than {limit} bytes", request=str(request)
            )
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ClusterUnreachable(
                f"{request}: {self._access.server} answered {response.status} with something else than a JSON object "
                f"(is a proxy in between?): {answers.excerpt(body)}"
            ) from error

    async def _open(self, request: Request, head_timeout: float, encoding: str) -> aiohttp.ClientResponse:
        """A successful response whose body is still to be read; after a 401 with a renewed credential."""
        proof = await self._auth.proof()
        response = await self._send(request, proof, head_timeout, encoding)
        if response.status == 401:
            refusal = await self._refusal(request, response)
            if not await self._auth.renew(proof):
                raise refusal
            response = await self._send(request, await self._auth.proof(), head_timeout, encoding)
        if not 200 <= response.status < 300:
            raise await self._refusal(request, response)
        return response

    async def _send(self, request: Request, proof: Proof, head_timeout: float, encoding: str) -> aiohttp.ClientResponse:
        headers = [("Accept-Encoding", encoding), *self._identity(proof)]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        try:
            async with asyncio.timeout(head_timeout):
                return await self._open_session().request(
                    request.method,
                    self._access.server + request.path,
                    params=request.params,
                    data=request.body,
                    headers=headers,
                    ssl=proof.context or True,
                    server_hostname=self._access.tls.server_name or None,
                    proxy=self._proxy,
                    # A redirect would carry the credential to wherever it points; the API itself has none.
                    allow_redirects=False,
                )
        except aiohttp.ClientError:
            raise
        except TimeoutError:
            raise streams.Inactive from None

    def _identity(self, proof: Proof) -> Iterator[tuple[str, str]]:
        if proof.authorization:
            yield "Authorization", proof.authorization
        if self._access.impersonate_user:
            yield "Impersonate-User", self._access.impersonate_user
        for group in self._access.impersonate_groups:
            yield "Impersonate-Group", group

    async def _refusal(self, request: Request, response: aiohttp.ClientResponse) -> ClusterError:
        try:
            body = await streams.read_all(response.content, limit=self._settings.max_error_bytes) or b""
        finally:
            response.release()
        if 300 <= response.status < 400:
            where = response.headers.get("Location", "nowhere")
            return ClusterError(
                response.status, reason="Redirect", message=f"redirects are not followed: {where}", request=str(request)
            )
        if answers.is_foreign(response.status, body):
            raise ClusterUnreachable(
                f"{request}: {response.status} from no API server (a proxy in between?): {answers.excerpt(body)}"
            )
        wait = answers.retry_after(response.headers.get("Retry-After"), now=datetime.now(tz=UTC))
        return answers.error_of(response.status, body, request=str(request), retry_after=wait)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ClusterUnreachable(f"{self._access.server}: the client is closed")
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION, socket_factory=_socket),
                headers={"User-Agent": f"airflow-mlxp/{__version__}"},
                timeout=aiohttp.ClientTimeout(total=None, connect=self._settings.connect_timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if self._loop is not loop:
            raise RuntimeError("a Client belongs to the event loop of its first call; make one for each loop")
        return self._session


def _socket(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def _is_passing(error: Exception) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, Conflict):
        # Two creates met at the quota's counter; a name that is taken has the reason AlreadyExists.
        return error.reason == "Conflict" and error.details.get("kind") == "resourcequotas"
    return isinstance(error, ServerFailure | TooManyRequests | ClusterUnreachable)


def _is_busy(error: Exception) -> bool:
    return isinstance(error, TooManyRequests)


def _never(_: Exception) -> bool:
    return False


@contextmanager
def _as_our_errors(request: Request, access: Access) -> Iterator[None]:
    try:
        yield
    except (ssl.SSLCertVerificationError, aiohttp.ClientConnectorCertificateError) as error:
        cause = getattr(error, "certificate_error", error)
        raise AccessError(
            f"{access.server}: its certificate is not trusted: {getattr(cause, 'verify_message', '') or cause}; "
            "check the certificate authority (ca) and the name (tls_server_name)"
        ) from error
    except aiohttp.ClientResponseError as error:
        # The text of this one holds the proxy's URL, and so perhaps its password: neither shown nor chained.
        raise ClusterUnreachable(f"{request}: the proxy of {access.server} answered {error.status} {error.message}") from None
    except (aiohttp.ClientError, OSError) as error:
        raise ClusterUnreachable(f"{request}: {access.server} can't be reached or broke off: {_cause_of(error)}") from error


def _cause_of(error: Exception) -> str:
    """What the system said: aiohttp's own text adds addresses of Python objects."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    # The number of an SSLError is OpenSSL's, that of a failed look-up of a name is negative.
    if isinstance(inner, OSError) and not isinstance(inner, ssl.SSLError) and (inner.errno or 0) > 0:
        return os.strerror(inner.errno or 0)
    return str(inner) or type(error).__name__
