"""From a cluster and a user of a kubeconfig to TLS and credential (``clusters[].cluster`` and ``users[].user``)."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mlxp.cluster import access_fields
from airflow_mlxp.cluster.credentials import TLS, Anonymous, ClientCertificate, ExecPlugin
from airflow_mlxp.cluster.kubeconfig import Entry
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from airflow_mlxp.cluster.credentials import Credential

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def tls_of(cluster: Entry, user: Entry) -> TLS:
    """How the server proves itself, and the client certificate."""
    ca = _decoded(cluster, "certificate-authority-data")
    return TLS(
        ca=ca,
        ca_file="" if ca else _existing(cluster, "certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        server_name=str(cluster.fields.get("tls-server-name") or ""),
        client=_client_certificate(user),
    )


def credential_of(user: Entry, cluster: Entry) -> Credential:
    """The credential of a user; a plugin may be told about the cluster."""
    fields = user.fields
    if provider := fields.get("auth-provider"):
        name = provider.get("name", "") if isinstance(provider, dict) else provider
        raise AccessError(
            f"kubeconfig: auth-provider {name!r} of user {user.name!r} left Kubernetes in 1.26; use its exec plugin"
        )
    simple = access_fields.credential(
        str(fields.get("token") or ""),
        user.path("tokenFile"),
        str(fields.get("username") or ""),
        str(fields.get("password") or ""),
    )
    # As in client-go: a request that already has an Authorization header is left alone by the plugin.
    return _exec_plugin(user, cluster) if fields.get("exec") and isinstance(simple, Anonymous) else simple


def _exec_plugin(user: Entry, cluster: Entry) -> ExecPlugin:
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
    plugin = Entry(name=user.name, fields=spec, folder=user.folder)
    command = str(spec["command"])
    if os.sep in command and not Path(command).is_absolute():
        command = plugin.path("command")
    return ExecPlugin(
        api_version=version,
        command=command,
        args=plugin.texts("args"),
        env=tuple((str(item.get("name")), str(item.get("value") or "")) for item in plugin.mappings("env")),
        install_hint=str(spec.get("installHint") or ""),
        cluster=_exec_cluster(cluster) if plugin.flag("provideClusterInfo") else None,
    )


def _exec_cluster(cluster: Entry) -> dict[str, Any]:
    """The cluster as a plugin is told about it (``client.authentication.k8s.io`` Cluster)."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {key: cluster.fields[key] for key in keys if cluster.fields.get(key)}
    if "certificate-authority-data" not in info and (ca_file := _existing(cluster, "certificate-authority")):
        info["certificate-authority-data"] = base64.b64encode(Path(ca_file).read_bytes()).decode()
    extensions = {item.get("name"): item.get("extension") for item in cluster.mappings("extensions")}
    if "client.authentication.k8s.io/exec" in extensions:
        info["config"] = extensions["client.authentication.k8s.io/exec"]
    return info


def _client_certificate(user: Entry) -> ClientCertificate | None:
    certificate, key = _decoded(user, "client-certificate-data"), _decoded(user, "client-key-data")
    client = ClientCertificate(
        certificate=certificate,
        certificate_file="" if certificate else _existing(user, "client-certificate"),
        key=key,
        key_file="" if key else _existing(user, "client-key"),
    )
    if client == ClientCertificate():
        return None
    access_fields.check_pair(client, "client-certificate", "client-key")
    return client


def _existing(entry: Entry, key: str) -> str:
    return access_fields.existing_file(f"kubeconfig: {key} of {entry.name!r}", entry.path(key))


def _decoded(entry: Entry, key: str) -> str:
    value = entry.fields.get(key)
    return access_fields.pem(f"kubeconfig: {key} of {entry.name!r}", str(value)) if value else ""
