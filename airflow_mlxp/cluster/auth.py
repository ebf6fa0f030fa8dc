"""The credential in use: read, renewed before it expires and after a 401, by one caller for all."""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.cluster import exec_auth, tls
from airflow_mlxp.cluster.backoff import Backoff
from airflow_mlxp.cluster.credentials import Basic, ExecPlugin, Token, TokenFile
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    import ssl

    from airflow_mlxp.cluster.access import Access
    from airflow_mlxp.cluster.credentials import ClientCertificate, Credential
    from airflow_mlxp.cluster.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What one request shows: its Authorization header and its SSL context (None for plain http)."""

    authorization: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Material:
    """What a credential comes to at present."""

    authorization: str = field(default="", repr=False)
    certificate: ClientCertificate | None = None
    renew_at: float = float("inf")
    """Monotonic time from which it is looked at again."""
    expires_at: float = float("inf")
    """Monotonic time from which it is certainly useless."""


class Authenticator:
    """Gives each request its proof. Belongs to one event loop."""

    def __init__(self, access: Access, *, settings: Settings) -> None:
        self._access, self._settings = access, settings
        self._lock = asyncio.Lock()
        self._material: _Material | None = None
        self._proof: Proof | None = None
        self._files_seen: tuple[int, ...] = ()

    @property
    def client_certificate(self) -> ClientCertificate | None:
        """The client certificate in use: the plugin's, else the access's own."""
        issued = self._material.certificate if self._material else None
        return issued or self._access.tls.client

    async def proof(self) -> Proof:
        """The proof to show now.

        Raises:
            AccessError: a token file, certificate or plugin can't be used.
        """
        if self._proof is None or self._is_due():
            async with self._lock:
                if self._proof is None or self._is_due():
                    await self._refresh()
        if self._proof is None:  # pragma: no cover  _refresh sets it or raises
            raise AccessError("no credential")
        return self._proof

    async def renew(self, rejected: Proof) -> bool:
        """Get a new proof after a 401. False: there is none other than the rejected one.

        Callers that were rejected together wait for one renewal. A proof may be renewed any number of times.
        """
        async with self._lock:
            if self._proof is rejected:
                await self._refresh(rejected=True)
            return self._proof is not rejected

    def _is_due(self) -> bool:
        return self._material is not None and time.monotonic() >= self._material.renew_at

    async def _refresh(self, *, rejected: bool = False) -> None:
        old = self._material
        try:
            material = await self._obtain(self._access.credential)
            await self._adopt(material, issued_anew=rejected and isinstance(self._access.credential, ExecPlugin))
        except (AccessError, OSError, UnicodeDecodeError) as error:
            if old is None or rejected or time.monotonic() >= old.expires_at:
                raise error if isinstance(error, AccessError) else AccessError(f"credential can't be read: {error}") from error
            # Still good: files that are just being replaced, or a plugin that has a bad moment.
            self._material = replace(old, renew_at=time.monotonic() + self._settings.backoff_maximum)

    async def _adopt(self, material: _Material, *, issued_anew: bool) -> None:
        access, old, proof = self._access, self._material, self._proof
        client = material.certificate or access.tls.client
        secure = access.server.startswith("https:")
        seen = await asyncio.to_thread(tls.modified_at, access.tls, client) if secure else ()
        context = proof.context if proof else None
        if secure and (context is None or seen != self._files_seen or (old and old.certificate != material.certificate)):
            context = await asyncio.to_thread(tls.build_context, access.tls, client)
        self._material, self._files_seen = material, seen
        unchanged = proof and proof.authorization == material.authorization and proof.context is context
        if not unchanged or issued_anew:
            self._proof = Proof(authorization=material.authorization, context=context)

    async def _obtain(self, credential: Credential) -> _Material:
        now = time.monotonic()
        look_again = now + self._settings.file_check_interval
        match credential:
            case Token(token=token):
                return _Material(authorization=f"Bearer {token}", renew_at=look_again)
            case TokenFile(path=path):
                token = (await asyncio.to_thread(Path(path).read_text, encoding="utf-8")).strip()
                if not token.isascii() or not token.isprintable() or not token:
                    raise AccessError(f"token file: {path} is empty or holds no token")
                return _Material(authorization=f"Bearer {token}", renew_at=look_again)
            case Basic(username=username, password=password):
                encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
                return _Material(authorization=f"Basic {encoded}", renew_at=look_again)
            case ExecPlugin():
                return await self._issue(credential)
            case _:
                return _Material(renew_at=look_again)

    async def _issue(self, plugin: ExecPlugin) -> _Material:
        backoff = Backoff(initial=self._settings.backoff_initial, maximum=self._settings.backoff_maximum)
        while True:
            try:
                issued = await exec_auth.run_plugin(plugin, timeout=self._settings.exec_timeout)
                break
            except exec_auth.PluginError:
                # One that has never worked is misconfigured, and its user wants to know at once.
                pause = backoff.next()
                if self._material is None or backoff.failures >= self._settings.exec_attempts:
                    raise
                await asyncio.sleep(pause)
        now, life = time.monotonic(), float("inf")
        if issued.expires_at is not None:
            life = max(0.0, issued.expires_at.timestamp() - time.time())
        lead = min(self._settings.expiry_lead, life / 5) if life != float("inf") else 0.0
        return _Material(
            authorization=f"Bearer {issued.token}" if issued.token else "",
            certificate=issued.certificate,
            renew_at=now + life - lead,
            expires_at=now + life,
        )
