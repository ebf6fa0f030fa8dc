"""Settings of the API server."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """How one server runs. Everything has a default that suits tests and ``airflow-mlxp local``."""

    host: str = "127.0.0.1"
    """Loopback address to listen on."""
    port: int = 0
    """0: a free port."""
    token: str = ""
    """Bearer token of the administrator; empty: a random one."""
    tokens: dict[str, str] = field(default_factory=dict)
    """More bearer tokens, each with its user's name."""
    namespaces: tuple[str, ...] = ("default", "kube-system", "kube-public", "kube-node-lease")
    """Namespaces that exist from the start, as in every cluster."""
    context: str = "airflow-mlxp-local"
    """Name of cluster, user and context in a written kubeconfig."""
    history: int = 20_000
    """Past changes that watches can go back to; older versions answer 410 (a real cluster keeps 5 minutes)."""
    bookmark_interval: float = 60.0
    """Seconds between bookmarks of a watch; the real server sends one about each minute."""
    watch_timeout: float = 1800.0
    """Seconds after which a watch ends whose client set no timeout (``--min-request-timeout``)."""
    event_ttl: float = 3600.0
    """Seconds that an Event is kept (``--event-ttl``)."""
    audit_limit: int = 10_000
    """Requests that ``Server.audit`` remembers."""
    git_version: str = "v1.34.2"
    """What ``/version`` tells: the version of Kubernetes whose behaviour the server follows."""
