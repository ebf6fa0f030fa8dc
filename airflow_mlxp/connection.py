"""The connection: its form, its fields, and the way from an Airflow connection to an ``Access`` of the cluster layer."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_mlxp.cluster.access import Access

CONN_TYPE = "mlxp"
HOOK_NAME = "MLXP"
DEFAULT_CONN_ID = "mlxp_default"
ALLOW_EXEC_OPTION = "allow_exec_in_connection"


@dataclass(frozen=True, slots=True)
class Field:
    """One extra field of the form."""

    name: str
    label: str
    help: str
    type: str = "string"
    secret: bool = False


FIELDS = (
    Field("project", "Project", "Project of the platform; its namespace is p-<project>."),
    Field("namespace", "Namespace", "Namespace of the workloads; wins over the project."),
    Field("zone", "Zone", "Default GPU zone of the workloads (node label mlx.navercorp.com/zone)."),
    Field("in_cluster", "In cluster", "Use the service account of the pod that Airflow runs in.", type="boolean"),
    Field("kube_config_path", "Kubeconfig path", "Path of a kubeconfig on workers and triggerers."),
    Field("kube_config", "Kubeconfig", "Content of a kubeconfig, YAML or JSON.", secret=True),
    Field("cluster_context", "Context", "Context of the kubeconfig; its current context when empty."),
    Field("token_file", "Token file", "Path of a bearer token that is read again when it changes."),
    Field("ca_file", "CA file", "Path of the certificate authority of the API server (PEM)."),
    Field("ca", "CA certificate", "Certificate authority of the API server (PEM)."),
    Field("client_certificate_file", "Client certificate file", "Path of a client certificate (PEM)."),
    Field("client_key_file", "Client key file", "Path of the key of the client certificate (PEM)."),
    Field("client_certificate", "Client certificate", "Client certificate (PEM)."),
    Field("client_key", "Client key", "Key of the client certificate (PEM).", secret=True),
    Field("tls_server_name", "TLS server name", "Name in the API server's certificate, when it is not the host."),
    Field("disable_verify_ssl", "Don't verify TLS", "Accept any certificate of the API server.", type="boolean"),
    Field("proxy_url", "Proxy", "HTTP proxy on the way to the API server."),
    Field("impersonate_user", "Impersonate user", "Act as this user."),
    Field("impersonate_groups", "Impersonate groups", "Act as a member of these groups, separated by commas."),
)

# Fields of the provider's own connection type that concern only its operators and client.
_IGNORED = {
    "disable_tcp_keepalive",
    "xcom_sidecar_container_image",
    "xcom_sidecar_container_resources",
    "xcom_sidecar_container_security_context",
}
_HOST_FIELDS = (
    "token_file",
    "ca",
    "ca_file",
    "client_certificate",
    "client_certificate_file",
    "client_key",
    "client_key_file",
    "tls_server_name",
)
_SECRET_LINE = re.compile(r"""["']?(?:token|password|client-key-data)["']?\s*:\s*["']?([^\s"',}]+)""")
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off", ""}


def form_fields() -> dict[str, dict[str, Any]]:
    """The extra fields as ``conn-fields`` of the provider information (Airflow 3.2 and later)."""
    return {field.name: _form_field(field) for field in FIELDS}


def _form_field(field: Field) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": [field.type, "null"]}
    if field.secret:
        schema["format"] = "password"
    return {"label": field.label, "description": field.help, "schema": schema}


def field_behaviour() -> dict[str, Any]:
    """Which standard fields the form shows and what they mean, as ``ui-field-behaviour``."""
    return {
        "hidden-fields": ["schema", "login", "port", "extra"],
        "relabeling": {"host": "API server", "password": "Token"},
        "placeholders": {"host": "https://kubernetes.example.com:6443", "project": "my-project", "zone": "ai-infra"},
    }


class AirflowConnection(Protocol):
    """What is read of an Airflow connection."""

    conn_id: str
    conn_type: str | None
    host: str | None
    password: str | None
    port: int | None

    extra: str | None
    """JSON. Read as text: Airflow's ``extra_dejson`` tells the supervisor, which a triggerer's event loop must not wait for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedConnection:
    """What a connection says."""

    access: Access
    """Its namespace is the connection's namespace, else ``p-<project>``, else the kubeconfig's."""
    zone: str = ""
    """Default zone of the workloads; empty when none is set."""


def resolve(conn: AirflowConnection, *, allow_exec: bool) -> ResolvedConnection:
    """The access that a connection of type ``mlxp`` or ``kubernetes`` describes. Reads files: not for an event loop.

    ``allow_exec`` says whether a kubeconfig that is typed into the connection may run a program for its credentials; files of the
    deployment always may. Without any field that names a server, the pod's service account is used where there is one, else the
    default kubeconfig (``KUBECONFIG`` or ``~/.kube/config``), as the provider's hook does.

    Raises:
        AccessError: a field is unknown, two contradict each other, or the credential can't be read.
    """
    fields = _fields(conn)
    try:
        access = _access(conn, fields, allow_exec=allow_exec)
    except AccessError as error:
        raise AccessError(f"connection {conn.conn_id!r}: {error}") from error
    namespace = fields.text("namespace") or (f"p-{fields.text('project')}" if fields.text("project") else access.namespace)
    return ResolvedConnection(access=replace(access, namespace=namespace), zone=fields.text("zone"))


class _Fields:
    """The extra fields of one connection, checked."""

    def __init__(self, conn_id: str, values: Mapping[str, Any]) -> None:
        self._conn_id, self._values = conn_id, values

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if isinstance(value, dict):
            return json.dumps(value)
        return "" if value is None else str(value).strip()

    def flag(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in _TRUE | _FALSE:
            raise AccessError(f"connection {self._conn_id!r}: field {name} is {text!r}; write true or false")
        return text in _TRUE


def _fields(conn: AirflowConnection) -> _Fields:
    # Forms of Airflow 2 stored extra fields under a prefix that names the connection type.
    values = {key.removeprefix(f"extra__{conn.conn_type}__"): value for key, value in _extra(conn).items()}
    known = {field.name for field in FIELDS} | _IGNORED
    # Later versions of the provider may add fields to its own type: only ours is checked.
    if conn.conn_type == CONN_TYPE and (unknown := sorted(set(values) - known)):
        names = ", ".join(sorted(known - _IGNORED))
        raise AccessError(f"connection {conn.conn_id!r}: unknown field {unknown[0]!r} in the extras; known are {names}")
    return _Fields(conn.conn_id, values)


def _extra(conn: AirflowConnection) -> dict[str, Any]:
    try:
        values = json.loads(conn.extra or "{}")
    except ValueError as error:
        raise AccessError(f"connection {conn.conn_id!r}: the extras are no JSON: {error}") from None
    if not isinstance(values, dict):
        raise AccessError(f"connection {conn.conn_id!r}: the extras are no JSON object")
    return values


def secrets(conn: AirflowConnection) -> Iterator[str]:
    """What of a connection must not show in a log: its token, kubeconfig and key, and each secret value inside the kubeconfig."""
    if conn.password:
        yield conn.password
    try:
        fields = _fields(conn)
    except AccessError:
        return
    for field in FIELDS:
        if field.secret and (text := fields.text(field.name)):
            yield text
    yield from _kubeconfig_secrets(fields.text("kube_config"))


def _kubeconfig_secrets(content: str) -> Iterator[str]:
    # A pattern, not a parse: text that is no valid kubeconfig may hold a token all the same.
    for match in _SECRET_LINE.finditer(content):
        yield match.group(1)


def _access(conn: AirflowConnection, fields: _Fields, *, allow_exec: bool) -> Access:
    source = _source(conn, fields)
    access = _SOURCES[source](conn, fields, allow_exec)
    tls = access.tls
    if fields.flag("disable_verify_ssl"):
        tls = replace(tls, insecure=True)
    groups = tuple(group.strip() for group in fields.text("impersonate_groups").split(",") if group.strip())
    return replace(
        access,
        tls=tls,
        proxy_url=fields.text("proxy_url") or access.proxy_url,
        impersonate_user=fields.text("impersonate_user") or access.impersonate_user,
        impersonate_groups=groups or access.impersonate_groups,
    )


def _source(conn: AirflowConnection, fields: _Fields) -> str:
    """Which field names the server; the only one."""
    given = [name for name in ("kube_config_path", "kube_config") if fields.text(name)]
    if fields.flag("in_cluster"):
        given.append("in_cluster")
    if conn.host:
        given.append("host")
    if len(given) > 1:
        raise AccessError(f"{given[0]} and {given[1]} are both set, and each names an API server; keep one")
    source = given[0] if given else "default"
    if source != "host" and (stray := _stray(conn, fields)):
        raise AccessError(f"{stray} is set, but it belongs to host; set host to the API server's URL, or remove {stray}")
    if source in {"host", "in_cluster"} and fields.text("cluster_context"):
        raise AccessError(f"cluster_context is set, but {source} has no contexts; remove one")
    return source


def _stray(conn: AirflowConnection, fields: _Fields) -> str:
    """A field that means nothing without a host."""
    if conn.password:
        return "password (the token)"
    return next((name for name in _HOST_FIELDS if fields.text(name)), "")


def _from_host(conn: AirflowConnection, fields: _Fields, _allow_exec: bool) -> Access:
    from airflow_mlxp.cluster.access import from_fields

    server = str(conn.host)
    if "://" not in server:
        server = f"https://{server}"
    if conn.port:
        server = f"{server}:{conn.port}"
    texts: dict[str, Any] = {name: fields.text(name) for name in _HOST_FIELDS}
    return from_fields(server=server, token=conn.password or "", **texts)


def _from_content(_conn: AirflowConnection, fields: _Fields, allow_exec: bool) -> Access:
    from airflow_mlxp.cluster.access import from_kubeconfig

    content, context = fields.text("kube_config"), fields.text("cluster_context")
    return from_kubeconfig(content=content, context=context, allow_exec=allow_exec)


def _from_path(_conn: AirflowConnection, fields: _Fields, _allow_exec: bool) -> Access:
    from airflow_mlxp.cluster.access import from_kubeconfig

    return from_kubeconfig(path=fields.text("kube_config_path"), context=fields.text("cluster_context"))


def _from_pod(_conn: AirflowConnection, _fields: _Fields, _allow_exec: bool) -> Access:
    from airflow_mlxp.cluster.access import in_cluster

    return in_cluster()


def _from_environment(_conn: AirflowConnection, fields: _Fields, _allow_exec: bool) -> Access:
    from airflow_mlxp.cluster.access import discover

    return discover(context=fields.text("cluster_context"))


_SOURCES = {
    "host": _from_host,
    "kube_config": _from_content,
    "kube_config_path": _from_path,
    "in_cluster": _from_pod,
    "default": _from_environment,
}
