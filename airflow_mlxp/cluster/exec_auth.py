"""Credential plugins: run the program of a kubeconfig's ``exec`` and read the ``ExecCredential`` that it prints.

Source: Kubernetes documentation, "client-go credential plugins" (client.authentication.k8s.io v1 and v1beta1).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass, field
from datetime import datetime  # noqa: TC003  msgspec reads the annotation
from typing import TYPE_CHECKING

import msgspec

from airflow_mlxp.cluster.credentials import ClientCertificate
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from airflow_mlxp.cluster.credentials import ExecPlugin

_SHOWN_STDERR = 500
"""Characters of a plugin's own error text that are passed on."""
_REAP_TIMEOUT = 5.0
"""Seconds to wait for a killed plugin to be gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Issued:
    """What a plugin issued."""

    token: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None
    expires_at: datetime | None = None


class PluginError(AccessError):
    """The plugin ran and failed; it may work a moment later."""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status


async def run_plugin(plugin: ExecPlugin, *, timeout: float) -> Issued:  # noqa: ASYNC109  a bound of the program, not of the caller
    """Run a plugin once, at most ``timeout`` seconds; cancellation ends it.

    Raises:
        PluginError: it ended badly, took too long or printed something else.
        AccessError: it can't be started.
    """
    process = await _start(plugin)
    try:
        async with asyncio.timeout(timeout):
            output, errors = await process.communicate()
    except TimeoutError:
        raise PluginError(f"exec: {plugin.command} took longer than {timeout:g} s to log in") from None
    finally:
        await _end(process)
    if process.returncode != 0:
        said = errors.decode(errors="replace").strip()[-_SHOWN_STDERR:] or "nothing on stderr"
        raise PluginError(f"exec: {plugin.command} ended with exit code {process.returncode}: {said}")
    return _read(plugin, output)


async def _start(plugin: ExecPlugin) -> asyncio.subprocess.Process:
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    creating = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # so that its children can be ended with it
        )
    )
    try:
        # Cancelled before its pipes are connected, Python 3.11 waits for ever: so it is let finish, and then ended.
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        await asyncio.wait([creating])
        if creating.exception() is None:
            await _end(creating.result())
        raise
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise AccessError(f"exec: {plugin.command} can't be started: {error.strerror or error}{hint}") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Bounded: a child that left the session may still hold the pipes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP_TIMEOUT):
                await process.communicate()


def _read(plugin: ExecPlugin, output: bytes) -> Issued:
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as error:
        raise PluginError(f"exec: {plugin.command} printed no ExecCredential: {error}") from None
    if credential.api_version != plugin.api_version:
        raise PluginError(
            f"exec: {plugin.command} answered in {credential.api_version}, the kubeconfig says {plugin.api_version}"
        )
    status = credential.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise PluginError(f"exec: {plugin.command} gave only one of clientCertificateData and clientKeyData")
    if not status.token and not status.client_certificate_data:
        raise PluginError(f"exec: {plugin.command} gave neither a token nor a client certificate")
    certificate = None
    if status.client_certificate_data:
        certificate = ClientCertificate(certificate=status.client_certificate_data, key=status.client_key_data)
    return Issued(token=status.token, certificate=certificate, expires_at=status.expiration_timestamp)
