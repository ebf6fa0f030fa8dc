"""The embedded API server: start, stop, credentials."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web

from airflow_mlxp.local.server import app, authorization, garbage, quota, tls
from airflow_mlxp.local.server.registry import Registry, WriteOptions
from airflow_mlxp.local.server.resources import NAMESPACES
from airflow_mlxp.local.server.settings import ServerSettings
from airflow_mlxp.local.server.storage import Store

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_SHUTDOWN_SECONDS = 2.0
"""Running requests get this long; watches and log streams end at once."""


class Server:
    """A Kubernetes API server on loopback with its objects in memory. For development and tests.

    ``async with Server() as server`` starts and stops it. ``audit`` holds one record for each request, oldest first;
    ``tokens`` maps bearer tokens to user names, ``denied`` holds what a user may not do; both can be changed while it runs.
    """

    def __init__(self, settings: ServerSettings | None = None) -> None:
        self.settings = settings or ServerSettings()
        self.token = self.settings.token or secrets.token_urlsafe(32)
        self.tokens: dict[str, str] = {self.token: "kubernetes-admin", **self.settings.tokens}
        self.denied: set[authorization.Denied] = set()
        self.audit: deque[app.AuditRecord] = deque(maxlen=self.settings.audit_limit)
        self.store = Store(history=self.settings.history)
        self.registry = Registry(self.store)
        self._authority = tls.Authority.new()
        self._collector = garbage.Collector(self.registry, event_ttl=self.settings.event_ttl)
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self.store.listen(None, quota.QuotaController(self.store).on_change)
        for name in self.settings.namespaces:
            self.add_namespace(name)

    @property
    def url(self) -> str:
        """``https://127.0.0.1:<port>``; valid once the server has started."""
        return f"https://{self.settings.host}:{self._port}"

    @property
    def ca_pem(self) -> str:
        """Certificate of the authority that signed the server's certificate."""
        return self._authority.pem

    def add_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        if self.store.get(NAMESPACES, ("", name)) is None:
            body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
            self.registry.create(NAMESPACES, "", body, WriteOptions())

    async def start(self) -> None:
        """Listen, and begin to collect garbage. A server that was stopped gets its old port again."""
        self._stopping.clear()
        application = app.build(
            self.registry,
            self.settings,
            tokens=self.tokens,
            denied=self.denied,
            audit=self.audit,
            kubelet_tls=self._authority.kubelet_client_context(),
            stopping=self._stopping,
        )
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True)
        await runner.setup()
        self._runner = runner
        try:
            context = self._authority.server_context(self.settings.host)
            site = web.TCPSite(runner, self.settings.host, self._port or self.settings.port, ssl_context=context)
            await site.start()
        except BaseException:
            await self.stop()
            raise
        self._port = runner.addresses[0][1]
        self._collector.start()

    async def stop(self) -> None:
        """End watches and log streams, then the server. The objects stay: ``start`` serves them again."""
        self._stopping.set()
        await self._collector.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def kubeconfig(self, namespace: str = "default", *, token: str = "") -> dict[str, Any]:
        """A kubeconfig with server, CA and token inline; ``token`` defaults to the administrator's."""
        name = self.settings.context
        authority = base64.b64encode(self.ca_pem.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority-data": authority}}],
            "users": [{"name": name, "user": {"token": token or self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
            "current-context": name,
        }

    def write_kubeconfig(self, path: Path | str, namespace: str = "default", *, token: str = "") -> Path:
        """Write the kubeconfig, readable by its owner only, and give its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(self.kubeconfig(namespace, token=token), sort_keys=False)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        return path
