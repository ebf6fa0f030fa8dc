"""How one API server is reached: address, TLS, credential, default namespace, proxy, impersonation.

``from_kubeconfig``, ``in_cluster`` and ``from_fields`` read small files: from async code call them in a thread.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mlxp.cluster import access_fields, kubeconfig, kubeconfig_entries, server_url
from airflow_mlxp.cluster.credentials import TLS, Anonymous, ClientCertificate, Credential, TokenFile
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a pod's own credential (Kubernetes documentation, "Accessing the API from a Pod")."""

_HASH_KEY = secrets.token_bytes(32)
# A key of this process: nobody who sees Access.key in a log can try passwords against it.


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """One way into one API server. Immutable; its ``repr`` shows no secret."""

    server: str
    """``https://host:port``, possibly with a path (Rancher). Plain http carries credentials to the loopback interface only."""
    namespace: str = ""
    """Namespace of the kubeconfig's context or of the service account; empty when neither says."""
    credential: Credential = field(default_factory=Anonymous)
    tls: TLS = field(default_factory=TLS)
    proxy_url: str = field(default="", repr=False)
    """HTTP proxy, possibly with user and password; empty: HTTPS_PROXY, HTTP_PROXY and NO_PROXY of the environment decide."""
    impersonate_user: str = ""
    """User to act as (``Impersonate-User``); the credential needs the verb ``impersonate``."""
    impersonate_groups: tuple[str, ...] = ()
    source: str = ""
    """Where it was read, for messages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "server", server_url.checked(self.server))
        server_url.check_proxy(self.proxy_url)
        has_credential = not isinstance(self.credential, Anonymous)
        if has_credential and not server_url.may_carry_credentials(self.server):
            raise AccessError(f"server={self.server!r}: a credential would travel unencrypted; use https")
        if self.impersonate_groups and not self.impersonate_user:
            raise AccessError("impersonate_groups needs impersonate_user: Kubernetes refuses groups without a user")
        for value in (self.impersonate_user, *self.impersonate_groups):
            access_fields.check_header(value, "impersonate_user and impersonate_groups")

    @property
    def key(self) -> str:
        """Equal for accesses that may share connections and watches in this process; tells nothing about secrets."""
        parts = (self.server, self.credential, self.tls, self.proxy_url, self.impersonate_user, self.impersonate_groups)
        return hashlib.blake2b(repr([_identity(part) for part in parts]).encode(), key=_HASH_KEY, digest_size=16).hexdigest()


def from_kubeconfig(
    *, path: str | None = None, content: str | None = None, context: str | None = None, allow_exec: bool = False
) -> Access:
    """Access of one context of a kubeconfig.

    Args:
        path: file, or several joined by the path separator; default is KUBECONFIG, then ``~/.kube/config``.
        content: the kubeconfig itself as YAML or JSON text; wins over ``path``.
        context: default is ``current-context``.
        allow_exec: whether ``content`` may name a credential plugin; files of the deployment always may.

    Raises:
        AccessError: one sentence that names the field.
    """
    selected = kubeconfig.load(path=path, content=content, context=context)
    cluster, user = selected.cluster, selected.user
    if user.fields.get("exec") and content and not allow_exec:
        raise AccessError(
            f"kubeconfig: user {user.name!r} runs a program to log in, and a kubeconfig typed into a connection may not; "
            "set [mlxp] allow_exec_in_connection = True, or use a kubeconfig file"
        )
    for key in ("as-uid", "as-user-extra"):
        if user.fields.get(key):
            raise AccessError(f"kubeconfig: {key} of user {user.name!r} is not supported; impersonate by as and as-groups")
    return Access(
        server=str(cluster.fields.get("server") or ""),
        namespace=selected.namespace,
        credential=kubeconfig_entries.credential_of(user, cluster),
        tls=kubeconfig_entries.tls_of(cluster, user),
        proxy_url=str(cluster.fields.get("proxy-url") or ""),
        impersonate_user=str(user.fields.get("as") or ""),
        impersonate_groups=user.texts("as-groups"),
        source=selected.source,
    )


def in_cluster(*, folder: str = SERVICE_ACCOUNT_FOLDER, environ: Mapping[str, str] | None = None) -> Access:
    """Access of the pod that this process runs in, by its service account. The token file is read anew as it is renewed.

    Raises:
        AccessError: not in a pod, or the pod has no service account token (``automountServiceAccountToken: false``).
    """
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise AccessError("in_cluster=True: KUBERNETES_SERVICE_HOST is not set; this process does not run in a Kubernetes pod")
    token, ca, namespace = (Path(folder) / name for name in ("token", "ca.crt", "namespace"))
    for file in (token, ca):
        if not file.is_file():
            raise AccessError(f"in_cluster=True: {file} does not exist; does the pod mount a service account token?")
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.is_file() else "",
        credential=TokenFile(path=str(token)),
        tls=TLS(ca_file=str(ca)),
        source="service account of the pod",
    )


def discover(*, context: str | None = None) -> Access:
    """What kubectl would use: the kubeconfig of the environment when there is one, else the pod's service account."""
    if any(file.is_file() for file in kubeconfig.default_paths()) or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        return from_kubeconfig(context=context)
    return in_cluster()


def from_fields(
    *,
    server: str,
    token: str = "",
    token_file: str = "",
    username: str = "",
    password: str = "",
    ca: str = "",
    ca_file: str = "",
    client_certificate: str = "",
    client_key: str = "",
    client_certificate_file: str = "",
    client_key_file: str = "",
    insecure: bool = False,
    tls_server_name: str = "",
    proxy_url: str = "",
    namespace: str = "",
    impersonate_user: str = "",
    impersonate_groups: Sequence[str] = (),
) -> Access:
    """Access from single values, as the fields of a connection give them.

    ``ca``, ``client_certificate`` and ``client_key`` are PEM text, or base64 of it as in a kubeconfig.

    Raises:
        AccessError: one sentence that names the field.
    """
    client = None
    if client_certificate or client_certificate_file:
        client = ClientCertificate(
            certificate=access_fields.pem("client_certificate", client_certificate),
            certificate_file=access_fields.existing_file("client_certificate_file", client_certificate_file),
            key=access_fields.pem("client_key", client_key),
            key_file=access_fields.existing_file("client_key_file", client_key_file),
        )
        access_fields.check_pair(client, "client_certificate", "client_key")
    elif client_key or client_key_file:
        raise AccessError("client_key is given without client_certificate")
    return Access(
        server=server,
        namespace=namespace,
        credential=access_fields.credential(token, token_file, username, password),
        tls=TLS(
            ca=access_fields.pem("ca", ca),
            ca_file=access_fields.existing_file("ca_file", ca_file),
            insecure=insecure,
            server_name=tls_server_name,
            client=client,
        ),
        proxy_url=proxy_url,
        impersonate_user=impersonate_user,
        impersonate_groups=tuple(impersonate_groups),
        source="connection fields",
    )


def _identity(part: object) -> object:
    """All fields of a part, those hidden from ``repr`` too."""
    names = getattr(part, "__dataclass_fields__", None)
    return part if names is None else (type(part).__name__, [(name, _identity(getattr(part, name))) for name in names])
