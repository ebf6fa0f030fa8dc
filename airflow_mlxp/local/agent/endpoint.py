"""The kubelet's HTTPS endpoint, as far as pods/log needs it: ``GET /containerLogs/{namespace}/{pod}/{container}``."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import ssl
import tempfile
import time
from typing import TYPE_CHECKING

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from airflow_mlxp.local.agent.logs import ReadOptions, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_mlxp.local.agent.container import Container
    from airflow_mlxp.local.agent.logs import LogFile

_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogEndpoint:
    """Serves the logs of the agent's pods on a loopback port, to clients with a certificate of ``client_ca`` (PEM)."""

    def __init__(self, find: Callable[[str, str, str], Container | None], client_ca: str) -> None:
        self._find, self._client_ca = find, client_ca
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=_tls(self._client_ca))
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening and end the open streams."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, name = (request.match_info[key] for key in ("namespace", "pod", "container"))
        container = self._find(namespace, pod, name)
        if container is None:
            return web.Response(status=404, text=f'container "{name}" of pod "{pod}" is not on this node')
        found = _choose(container, pod, previous=request.query.get("previous") == "true")
        if isinstance(found, str):
            return web.Response(status=400, text=found)
        try:
            options = _options(request.query)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        with contextlib.suppress(ConnectionResetError):  # the reader has gone
            await response.prepare(request)
            async for block in found.read(options):
                await response.write(block)
            await response.write_eof()
        return response


def _choose(container: Container, pod: str, *, previous: bool) -> LogFile | str:
    """The log to read, or why there is none, in the kubelet's words."""
    instance = container.last_state.get("terminated") if previous else _present(container)
    if instance is not None:
        found = container.logs.get(instance.get("containerID", ""))
        if found is not None:
            return found
    if previous:
        return f'previous terminated container "{container.name}" in pod "{pod}" not found'
    reason = container.state.get("waiting", {}).get("reason", "ContainerCreating")
    return f'container "{container.name}" in pod "{pod}" is waiting to start: {_WAITING.get(reason, reason)}'


def _present(container: Container) -> dict[str, str] | None:
    """The instance that runs or ended last."""
    if "running" in container.state:
        return {"containerID": container.status()["containerID"]}
    return container.state.get("terminated") or container.last_state.get("terminated")


def _options(query: Mapping[str, str]) -> ReadOptions:
    since = ""
    if query.get("sinceTime"):
        moment = dt.datetime.fromisoformat(query["sinceTime"])
        since = stamp(int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000)
    elif query.get("sinceSeconds"):
        since = stamp(time.time_ns() - int(query["sinceSeconds"]) * 1_000_000_000)
    return ReadOptions(
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
        since=since,
        tail_lines=int(query["tailLines"]) if query.get("tailLines") else None,
        limit_bytes=int(query["limitBytes"]) if query.get("limitBytes") else None,
    )


def _tls(client_ca: str) -> ssl.SSLContext:
    """A certificate of its own, as a kubelet has one that the API server doesn't verify; whoever calls must show one."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "system:node:local")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Python reads keys from files only: this one is private and goes at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(private + certificate.public_bytes(serialization.Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client_ca)
    return context
