"""A hook for users' own tasks: the ``kubernetes`` client of the cluster that a connection names.

Nothing of this package imports it: the client library costs seconds and a hundred megabytes.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from airflow_mlxp import compat, connection
from airflow_mlxp.cluster.credentials import Basic, Token, TokenFile
from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_mlxp.cluster.access import Access


class MLXPHook(KubernetesHook):
    """The provider's Kubernetes hook on a connection of type ``mlxp`` (or ``kubernetes``).

    Args:
        mlxp_conn_id: the connection.
        kwargs: as of ``KubernetesHook``; they win over the connection.
    """

    conn_name_attr = "mlxp_conn_id"
    default_conn_name = connection.DEFAULT_CONN_ID
    conn_type = connection.CONN_TYPE
    hook_name = connection.HOOK_NAME

    def __init__(self, mlxp_conn_id: str = connection.DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(conn_id=mlxp_conn_id, **kwargs)
        self.mlxp_conn_id = mlxp_conn_id

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:  # type: ignore[override] # the provider names the class of Airflow 2
        """The connection; unlike the provider's default one it has to exist."""
        return compat.get_connection(conn_id)

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Extra fields of the form for Airflow 3.1; later versions read them from the provider information."""
        forms, widgets = import_module("wtforms"), import_module("flask_appbuilder.fieldwidgets")

        def widget(field: connection.Field) -> Any:
            if field.type == "boolean":
                return forms.BooleanField(field.label, description=field.help)
            if field.secret:
                return forms.PasswordField(field.label, description=field.help, widget=widgets.BS3PasswordFieldWidget())
            return forms.StringField(field.label, description=field.help, widget=widgets.BS3TextFieldWidget())

        return {field.name: widget(field) for field in connection.FIELDS}

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Standard fields of the form for Airflow 3.1."""
        return {key.replace("-", "_"): value for key, value in connection.field_behaviour().items()}

    def get_conn(self) -> client.ApiClient:
        """The API client; of the connection's host when it has one, else as the provider's hook finds it."""
        conn = self.get_connection(self.mlxp_conn_id)
        access = connection.resolve(conn, allow_exec=compat.flag_option(connection.ALLOW_EXEC_OPTION)).access
        api_client = _client_of(access) if conn.host else super().get_conn()
        if access.impersonate_user:
            api_client.set_default_header("Impersonate-User", access.impersonate_user)
        if len(access.impersonate_groups) > 1:
            raise AccessError("the kubernetes client can impersonate one group; name one in impersonate_groups")
        for group in access.impersonate_groups:
            api_client.set_default_header("Impersonate-Group", group)
        return api_client

    def get_namespace(self) -> str | None:
        """The connection's namespace, else ``p-<project>``, else that of its kubeconfig."""
        conn = self.get_connection(self.mlxp_conn_id)
        resolved = connection.resolve(conn, allow_exec=compat.flag_option(connection.ALLOW_EXEC_OPTION))
        return resolved.access.namespace or None

    def test_connection(self) -> tuple[bool, str]:
        """Whether the API server answers and lets us list Jobs in the connection's namespace."""
        namespace = "default"
        try:
            namespace = self.get_namespace() or namespace
            self.batch_v1_client.list_namespaced_job(namespace, limit=1)
        except ApiException as error:
            return False, f"{error.status} {error.reason} for Jobs in namespace {namespace}"
        except (AccessError, HTTPError, OSError) as error:
            return False, str(error)
        return True, f"Jobs can be listed in namespace {namespace} of {self.api_client.configuration.host}"


def _client_of(access: Access) -> client.ApiClient:
    """An API client for single values; PEM text goes into files that live as long as the client."""
    configuration = client.Configuration(host=access.server)
    folder = tempfile.mkdtemp(prefix="airflow-mlxp-")  # 0700

    def as_file(text: str, path: str, name: str) -> str | None:
        if not text:
            return path or None
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        return str(file)

    tls = access.tls
    configuration.verify_ssl = not tls.insecure
    configuration.ssl_ca_cert = as_file(tls.ca, tls.ca_file, "ca.pem")
    configuration.tls_server_name = tls.server_name or None
    if tls.client:
        configuration.cert_file = as_file(tls.client.certificate, tls.client.certificate_file, "client.pem")
        configuration.key_file = as_file(tls.client.key, tls.client.key_file, "client.key")
    if access.proxy_url:
        configuration.proxy = access.proxy_url
    _authorize(configuration, access)
    api_client = client.ApiClient(configuration)
    weakref.finalize(api_client, shutil.rmtree, folder, ignore_errors=True)
    return api_client


def _authorize(configuration: client.Configuration, access: Access) -> None:
    match access.credential:
        case Token(token=token):
            configuration.api_key = {"authorization": f"Bearer {token}"}
        case TokenFile(path=path):

            def refresh(current: client.Configuration) -> None:
                current.api_key = {"authorization": f"Bearer {Path(path).read_text(encoding='utf-8').strip()}"}

            configuration.refresh_api_key_hook = refresh
        case Basic(username=username, password=password):
            configuration.username, configuration.password = username, password
