"""The web application: credentials, audit, and the way from a path and method to a verb."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from airflow_mlxp.local.server import authorization, discovery, logs, openapi, problem, reviews, wire
from airflow_mlxp.local.server.verbs import Verbs

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections import deque
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.settings import ServerSettings

_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
"""Paths that need no credential (role ``system:public-info-viewer``)."""
_BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a request's body, as in kube-apiserver."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One request as the server answered it."""

    method: str
    path: str
    query: str
    user: str
    """Empty for a request without a valid credential."""
    code: int


def build(
    registry: Registry,
    settings: ServerSettings,
    *,
    tokens: Mapping[str, str],
    denied: Collection[authorization.Denied],
    audit: deque[AuditRecord],
    kubelet_tls: ssl.SSLContext,
    stopping: asyncio.Event,
) -> web.Application:
    """The application. ``tokens`` and ``denied`` are read at each request, ``audit`` gets a record when the answer begins."""
    verbs = Verbs(registry, settings, logs.LogProxy(registry, kubelet_tls, stopping), stopping)

    @web.middleware
    async def guard(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        try:
            user = _user(request, tokens)
            if request.path not in _OPEN_PATHS and not user:
                raise problem.unauthorized()
            authorization.check(request, user, denied)
            return await handler(request)
        except problem.ApiError as error:
            return wire.reply_problem(error)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {_BODY_LIMIT}"
            return wire.reply_problem(problem.ApiError(413, "RequestEntityTooLarge", text))

    async def record(request: web.Request, response: web.StreamResponse) -> None:
        user = _user(request, tokens)
        audit.append(AuditRecord(request.method, request.path, request.query_string, user, response.status))

    application = web.Application(middlewares=[guard], client_max_size=_BODY_LIMIT)
    application.on_response_prepare.append(record)
    for path in ("/healthz", "/livez", "/readyz"):
        application.router.add_get(path, _healthy)
    discovery.add_routes(application, settings)
    reviews.add_routes(application, lambda request: _user(request, tokens), denied)
    openapi.add_routes(application)
    application.router.add_route("*", "/{path:apis?/.+}", verbs.handle)
    application.router.add_route("*", "/{path:.*}", _unknown)
    return application


def _user(request: web.Request, tokens: Mapping[str, str]) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    for token, name in tuple(tokens.items()):
        if secrets.compare_digest(token.encode(), given.strip().encode()):
            return name
    return ""


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _unknown(_: web.Request) -> web.Response:
    return web.Response(status=404, text="404 page not found\n")
