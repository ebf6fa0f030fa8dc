"""What an access shows to the API server: frozen descriptions, no I/O. Secrets never appear in a ``repr``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Anonymous:
    """No Authorization header; a client certificate may still identify the caller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A bearer token that never changes."""

    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenFile:
    """A bearer token in a file that somebody renews (service accounts, sidecars)."""

    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Basic:
    """User name and password; Kubernetes itself dropped them in 1.19, proxies before it still ask for them."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecPlugin:
    """A program that prints an ``ExecCredential`` (kubeconfig ``users[].user.exec``)."""

    api_version: str
    command: str
    """Absolute path, or a bare name to look up in PATH."""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    cluster: dict[str, Any] | None = field(default=None, repr=False)
    """``spec.cluster`` of KUBERNETES_EXEC_INFO when the kubeconfig asks for it by ``provideClusterInfo``."""


Credential = Anonymous | Token | TokenFile | Basic | ExecPlugin


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCertificate:
    """Certificate and key for TLS, each as PEM text or as a file that may be renewed."""

    certificate: str = field(default="", repr=False)
    certificate_file: str = ""
    key: str = field(default="", repr=False)
    key_file: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TLS:
    """How the server proves itself, and our certificate. Without ``ca`` and ``ca_file`` the system's authorities count."""

    ca: str = field(default="", repr=False)
    """PEM text of one or more authorities."""
    ca_file: str = ""
    insecure: bool = False
    """Accept any certificate (kubeconfig ``insecure-skip-tls-verify``); then ``ca`` is ignored."""
    server_name: str = ""
    """Name to ask for and to check instead of the server's host (kubeconfig ``tls-server-name``)."""
    client: ClientCertificate | None = None
