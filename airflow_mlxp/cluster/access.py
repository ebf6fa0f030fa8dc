"""How one API server is reached: address, TLS, credential, default namespace, proxy, impersonation.

``from_kubeconfig``, ``in_cluster`` and ``from_fields`` read small files: from async code call them in a thread.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mlxp.cluster import kubeconfig, server_url
from airflow_mlxp.cluster.credentials import (
    TLS,
    Anonymous,
    Basic,
    ClientCertificate,
    Credential,
    ExecPlugin,
    Token,
    TokenFile,
)
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a pod's own credential (Kubernetes documentation, "Accessing the API from a Pod")."""

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
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
            _check_header(value, "impersonate_user and impersonate_groups")

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
    ca = _decoded(cluster, "certificate-authority-data")
    tls = TLS(
        ca=ca,
        ca_file="" if ca else _existing(cluster, "certificate-authority"),
        insecure=bool(cluster.fields.get("insecure-skip-tls-verify")),
        server_name=str(cluster.fields.get("tls-server-name") or ""),
        client=_client_certificate(user),
    )
    groups = user.fields.get("as-groups") or ()
    return Access(
        server=str(cluster.fields.get("server") or ""),
        namespace=selected.namespace,
        credential=_credential(user, cluster),
        tls=tls,
        proxy_url=str(cluster.fields.get("proxy-url") or ""),
        impersonate_user=str(user.fields.get("as") or ""),
        impersonate_groups=tuple(str(group) for group in groups),
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
            certificate=_pem("client_certificate", client_certificate),
            certificate_file=_existing_file("client_certificate_file", client_certificate_file),
            key=_pem("client_key", client_key),
            key_file=_existing_file("client_key_file", client_key_file),
        )
        _check_pair(client, "client_certificate", "client_key")
    elif client_key or client_key_file:
        raise AccessError("client_key is given without client_certificate")
    return Access(
        server=server,
        namespace=namespace,
        credential=_from_secrets(token, token_file, username, password),
        tls=TLS(
            ca=_pem("ca", ca),
            ca_file=_existing_file("ca_file", ca_file),
            insecure=insecure,
            server_name=tls_server_name,
            client=client,
        ),
        proxy_url=proxy_url,
        impersonate_user=impersonate_user,
        impersonate_groups=tuple(impersonate_groups),
        source="connection fields",
    )


def _credential(user: kubeconfig.Entry, cluster: kubeconfig.Entry) -> Credential:
    fields = user.fields
    if provider := fields.get("auth-provider"):
        name = provider.get("name", "") if isinstance(provider, dict) else provider
        raise AccessError(
            f"kubeconfig: auth-provider {name!r} of user {user.name!r} left Kubernetes in 1.26; use its exec plugin"
        )
    simple = _from_secrets(
        str(fields.get("token") or ""),
        user.path("tokenFile"),
        str(fields.get("username") or ""),
        str(fields.get("password") or ""),
    )
    # As in client-go: a request that already has an Authorization header is left alone by the plugin.
    return _exec_plugin(user, cluster) if fields.get("exec") and isinstance(simple, Anonymous) else simple


def _from_secrets(token: str, token_file: str, username: str, password: str) -> Credential:
    if (username or password) and (token or token_file):
        raise AccessError("a token and a username or password are given; Kubernetes takes one of them, remove the other")
    if token_file:
        return TokenFile(path=_existing_file("token file", token_file))
    if token:
        _check_header(token.strip(), "token")
        return Token(token=token.strip())
    if username or password:
        return Basic(username=username, password=password)
    return Anonymous()


def _exec_plugin(user: kubeconfig.Entry, cluster: kubeconfig.Entry) -> ExecPlugin:
    spec = user.fields["exec"]
    if not isinstance(spec, dict) or not spec.get("command"):
        raise AccessError(f"kubeconfig: exec of user {user.name!r} has no command")
    version = str(spec.get("apiVersion") or "")
    if version not in _EXEC_VERSIONS:
        raise AccessError(
            f"kubeconfig: exec.apiVersion={version!r} of user {user.name!r}: expected {' or '.join(_EXEC_VERSIONS)}"
        )
    if spec.get("interactiveMode") == "Always":
        raise AccessError(
            f"kubeconfig: exec.interactiveMode=Always of user {user.name!r}: nobody is there to answer; use IfAvailable"
        )
    command = str(spec["command"])
    if os.sep in command and not Path(command).is_absolute():
        command = kubeconfig.Entry(name=user.name, fields=spec, folder=user.folder).path("command")
    return ExecPlugin(
        api_version=version,
        command=command,
        args=tuple(str(arg) for arg in spec.get("args") or ()),
        env=tuple((str(item["name"]), str(item.get("value", ""))) for item in spec.get("env") or ()),
        install_hint=str(spec.get("installHint") or ""),
        cluster=_exec_cluster(cluster) if spec.get("provideClusterInfo") else None,
    )


def _exec_cluster(cluster: kubeconfig.Entry) -> dict[str, Any]:
    """The cluster as a plugin is told about it (``client.authentication.k8s.io`` Cluster)."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {key: cluster.fields[key] for key in keys if cluster.fields.get(key)}
    if "certificate-authority-data" not in info and (ca_file := cluster.path("certificate-authority")):
        info["certificate-authority-data"] = base64.b64encode(Path(ca_file).read_bytes()).decode()
    extensions = {item.get("name"): item.get("extension") for item in cluster.fields.get("extensions") or ()}
    if "client.authentication.k8s.io/exec" in extensions:
        info["config"] = extensions["client.authentication.k8s.io/exec"]
    return info


def _client_certificate(user: kubeconfig.Entry) -> ClientCertificate | None:
    certificate, key = _decoded(user, "client-certificate-data"), _decoded(user, "client-key-data")
    client = ClientCertificate(
        certificate=certificate,
        certificate_file="" if certificate else _existing(user, "client-certificate"),
        key=key,
        key_file="" if key else _existing(user, "client-key"),
    )
    if client == ClientCertificate():
        return None
    _check_pair(client, "client-certificate", "client-key")
    return client


def _check_pair(client: ClientCertificate, certificate: str, key: str) -> None:
    if not (client.certificate or client.certificate_file):
        raise AccessError(f"{key} is given without {certificate}")
    if not (client.key or client.key_file) and "PRIVATE KEY" not in client.certificate and not client.certificate_file:
        raise AccessError(f"{certificate} is given without {key}")


def _existing(entry: kubeconfig.Entry, key: str) -> str:
    return _existing_file(f"kubeconfig: {key} of {entry.name!r}", entry.path(key))


def _existing_file(what: str, path: str) -> str:
    if path and not Path(path).is_file():
        raise AccessError(f"{what}: file {path} does not exist")
    return path


def _decoded(entry: kubeconfig.Entry, key: str) -> str:
    value = entry.fields.get(key)
    return _pem(f"kubeconfig: {key} of {entry.name!r}", str(value)) if value else ""


def _pem(what: str, text: str) -> str:
    if not text or "-----BEGIN" in text:
        return text
    try:
        decoded = base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        decoded = ""
    if "-----BEGIN" not in decoded:
        raise AccessError(f"{what}: expected PEM text or base64 of it")
    return decoded


def _check_header(value: str, what: str) -> None:
    if any(not 32 <= ord(character) < 127 for character in value):
        raise AccessError(f"{what}: holds a character that no HTTP header may hold; was it cut or copied with a line break?")


def _identity(part: object) -> object:
    """All fields of a part, those hidden from ``repr`` too."""
    names = getattr(part, "__dataclass_fields__", None)
    return part if names is None else (type(part).__name__, [(name, _identity(getattr(part, name))) for name in names])
