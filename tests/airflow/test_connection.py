"""From an Airflow connection to an access."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_mlxp import connection
from airflow_mlxp.cluster.credentials import Token, TokenFile
from airflow_mlxp.errors import AccessError


@dataclass
class Connection:
    """As Airflow's."""

    conn_id: str = "c"
    conn_type: str | None = "mlxp"
    host: str | None = None
    password: str | None = None
    port: int | None = None
    extra: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.extra, dict):
            self.extra = json.dumps(self.extra)


def kubeconfig(*, namespace: str = "", user: dict[str, Any] | None = None) -> str:
    context: dict[str, str] = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "clusters": [{"name": "c", "cluster": {"server": "https://api.test:6443"}}],
            "users": [{"name": "u", "user": user or {"token": "t-from-file"}}],
            "contexts": [{"name": "one", "context": context}, {"name": "two", "context": context | {"namespace": "second"}}],
        }
    )


def resolve(**fields: Any) -> connection.ResolvedConnection:
    return connection.resolve(Connection(**fields), allow_exec=False)


def test_host_and_token() -> None:
    access = resolve(host="api.test", port=6443, password="secret", extra={"project": "demo", "zone": "ai-infra"})
    assert access.access.server == "https://api.test:6443"
    assert access.access.credential == Token(token="secret")
    assert access.access.namespace == "p-demo"
    assert access.zone == "ai-infra"


@pytest.mark.parametrize("conn_type", ["mlxp", "kubernetes"])
def test_both_types_read_the_same_fields(conn_type: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(kubeconfig())
    extra = {"kube_config_path": str(path), "cluster_context": "two", "disable_verify_ssl": "true"}
    access = resolve(conn_type=conn_type, extra=extra).access
    assert (access.server, access.namespace, access.tls.insecure) == ("https://api.test:6443", "second", True)


@pytest.mark.parametrize(
    ("extra", "namespace"),
    [
        ({}, "of-kubeconfig"),
        ({"project": "demo"}, "p-demo"),
        ({"project": "demo", "namespace": "mine"}, "mine"),
    ],
)
def test_whose_namespace_counts(extra: dict[str, str], namespace: str) -> None:
    assert resolve(extra={"kube_config": kubeconfig(namespace="of-kubeconfig"), **extra}).access.namespace == namespace


def test_kubeconfig_as_json_object_and_old_prefix() -> None:
    extra = {"extra__kubernetes__kube_config": json.loads(kubeconfig())}
    assert resolve(conn_type="kubernetes", extra=extra).access.credential == Token(token="t-from-file")


def test_token_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    access = resolve(host="https://api.test", extra={"token_file": str(tmp_path / "token")}).access
    assert access.credential == TokenFile(path=str(tmp_path / "token"))


def test_impersonation_and_proxy_win_over_the_kubeconfig() -> None:
    extra = {"impersonate_user": "u", "impersonate_groups": "a, b", "proxy_url": "http://proxy.test:3128"}
    access = resolve(extra={"kube_config": kubeconfig(), **extra}).access
    assert (access.impersonate_user, access.impersonate_groups, access.proxy_url) == ("u", ("a", "b"), "http://proxy.test:3128")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"extra": "{half"}, ["'c'", "no JSON"]),
        ({"extra": "[1]"}, ["'c'", "no JSON object"]),
        ({"extra": {"kubeconfig": "x"}}, ["'c'", "kubeconfig", "kube_config_path"]),
        ({"host": "h", "extra": {"kube_config": "{}"}}, ["kube_config and host", "keep one"]),
        ({"extra": {"kube_config": "{}", "in_cluster": True}}, ["kube_config and in_cluster"]),
        ({"password": "t", "extra": {"kube_config": "{}"}}, ["password (the token)", "host"]),
        ({"extra": {"in_cluster": "perhaps"}}, ["in_cluster", "'perhaps'", "true or false"]),
        ({"host": "h", "extra": {"cluster_context": "x"}}, ["cluster_context", "no contexts"]),
        ({"extra": {"in_cluster": True}}, ["'c'", "pod"]),
        ({"host": "http://api.test", "password": "t"}, ["unencrypted"]),
        ({"extra": {"kube_config": kubeconfig(user={"exec": {"command": "login"}})}}, ["allow_exec_in_connection"]),
    ],
)
def test_mistakes_are_one_sentence(fields: dict[str, Any], words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AccessError) as raised:
        resolve(**fields)
    assert all(word in str(raised.value) for word in words), raised.value
    assert "\n" not in str(raised.value)


def test_a_later_field_of_the_providers_type_is_no_mistake() -> None:
    resolve(conn_type="kubernetes", extra={"kube_config": kubeconfig(), "disable_tcp_keepalive": True, "of_tomorrow": 1})


def test_secrets_to_mask() -> None:
    content = "users:\n- name: u\n  user:\n    token: abc-123\n    client-key-data: S0VZ\n"
    found = set(connection.secrets(Connection(password="pw", extra={"kube_config": content, "namespace": "n"})))
    assert {"pw", "abc-123", "S0VZ"} <= found
    assert "n" not in found
