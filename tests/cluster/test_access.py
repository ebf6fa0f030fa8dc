import base64
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mlxp.cluster import access, kubeconfig, server_url
from airflow_mlxp.cluster.credentials import Anonymous, Basic, ExecPlugin, Token, TokenFile
from airflow_mlxp.errors import AccessError
from tests.support.certificates import Authority

SECRET = "s3cr3t-value"
PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def config(cluster=None, user=None, **context):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example.com:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", **context}}],
    }


def load(document, **options):
    return access.from_kubeconfig(content=kubeconfig.yaml.safe_dump(document), **options)


def test_a_context_gives_server_namespace_and_credential():
    way = load(config(user={"token": SECRET, "as": "jane", "as-groups": ["g"]}, namespace="p-x"))
    assert (way.server, way.namespace, way.credential) == ("https://api.example.com:6443", "p-x", Token(token=SECRET))
    assert (way.impersonate_user, way.impersonate_groups) == ("jane", ("g",))
    assert load(config()).namespace == ""


def test_secrets_show_nowhere():
    certificate, key = Authority().client_pair("me")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x", "args": [SECRET]}
    ways = [
        access.from_fields(server="https://a", token=SECRET),
        access.from_fields(server="https://a", username="u", password=SECRET),
        access.from_fields(server="https://a", client_certificate=certificate, client_key=key),
        load(config(user={"exec": plugin}), allow_exec=True),
    ]
    for way in ways:
        assert SECRET not in repr(way) + way.key
        assert "PRIVATE" not in repr(way)


def test_key_is_equal_for_equal_ways_and_differs_with_whatever_the_server_would_see():
    base = {"server": "https://a", "token": "t"}
    way = access.from_fields(**base)
    assert access.from_fields(**base, namespace="other").key == replace(way, source="elsewhere").key == way.key
    changes = [
        {"server": "https://b"},
        {"token": "u"},
        {"impersonate_user": "x"},
        {"impersonate_user": "x", "impersonate_groups": ["g"]},
        {"insecure": True},
        {"ca": PEM},
        {"tls_server_name": "n"},
        {"proxy_url": "http://p"},
    ]
    keys = {access.from_fields(**{**base, **change}).key for change in changes}
    assert len(keys | {way.key}) == len(changes) + 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server": ""}, "server is empty"),
        ({"server": "ftp://x"}, "server='ftp://x': expected a URL"),
        ({"server": "https://user:pw@x"}, "without user, password"),
        ({"server": "https://x:99999"}, "expected a URL"),
        ({"token": "two\nlines"}, "token: holds a character"),
        ({"token": "t", "password": "p"}, "token and a username or password"),
        ({"token_file": "/nonexistent/token"}, "token file: file /nonexistent/token does not exist"),
        ({"ca": "nonsense"}, "ca: expected PEM text or base64"),
        ({"client_key": PEM}, "client_key is given without client_certificate"),
        ({"client_certificate": PEM}, "client_certificate is given without client_key"),
        ({"proxy_url": "socks5://user:pw@p"}, "proxy_url: expected http:// or https://, got socks5"),
        ({"impersonate_groups": ["g"]}, "impersonate_groups needs impersonate_user"),
        ({"impersonate_user": "a\nb"}, "impersonate_user and impersonate_groups"),
        ({"server": "http://api.example.com", "token": "t"}, "would travel unencrypted"),
    ],
)
def test_a_wrong_field_is_named(fields, message):
    with pytest.raises(AccessError, match=message) as caught:
        access.from_fields(**{"server": "https://a", **fields})
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "no current-context; name one of: none"),
        (config() | {"current-context": "typo"}, "has no context 'typo'; it has: main"),
        (config() | {"clusters": []}, "has no cluster 'c'"),
        (config() | {"users": [{"name": "v"}]}, "has no user 'u'; it has: v"),
        (config() | {"users": [{"name": "u"}, {"name": "u"}]}, "names 'u' twice"),
        (config() | {"clusters": {"c": 1}}, "clusters of kubeconfig text must be a list"),
        (config() | {"contexts": ["x"]}, "holds an entry without name and context"),
        (config({"certificate-authority-data": "%%"}), "certificate-authority-data of 'c': expected PEM"),
        (config({"certificate-authority": "ca.crt"}), "certificate-authority 'ca.crt' of 'c' is relative"),
        (config({"proxy-url": "socks5://p"}), "proxy_url"),
        (config(user={"tokenFile": "/nonexistent"}), "/nonexistent does not exist"),
        (config(user={"auth-provider": {"name": "gcp"}}), "auth-provider 'gcp' of user 'u' left Kubernetes in 1.26"),
        (config({"insecure-skip-tls-verify": "false"}), "insecure-skip-tls-verify of 'c' is 'false'; expected true or false"),
        (config(user={"as": "j", "as-groups": "g"}), "as-groups of 'u': expected a list"),
        (config(user={"as": "j", "as-uid": "1"}), "as-uid of user 'u' is not supported"),
        (config(user={"exec": {"command": "x"}}), r"may not; set \[mlxp\] allow_exec_in_connection"),
    ],
)
def test_a_wrong_kubeconfig_is_explained(document, message):
    with pytest.raises(AccessError, match=message):
        load(document)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1"}, "has no command"),
        (
            {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"},
            "exec.apiVersion='client.authentication.k8s.io/v1alpha1'",
        ),
        (
            {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"},
            "interactiveMode=Always",
        ),
    ],
)
def test_a_wrong_plugin_is_explained(spec, message):
    with pytest.raises(AccessError, match=message):
        load(config(user={"exec": spec}), allow_exec=True)


def test_yaml_that_is_broken_is_located_and_not_quoted():
    with pytest.raises(AccessError, match="not valid YAML in line 3") as caught:
        access.from_kubeconfig(content=f"a: 1\ntoken: [{SECRET}\n: {SECRET}")
    assert SECRET not in str(caught.value)
    with pytest.raises(AccessError, match="holds no mapping"):
        access.from_kubeconfig(content=SECRET)


def test_a_plugin_of_a_file_runs_without_asking_and_relative_commands_belong_to_the_file(tmp_path):
    spec = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./bin/login",
        "args": ["a", 1],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "get it",
        "provideClusterInfo": True,
        "interactiveMode": "Never",
    }
    file = tmp_path / "config"
    file.write_text(kubeconfig.yaml.safe_dump(config({"tls-server-name": "n"}, {"exec": spec})))
    assert access.from_kubeconfig(path=str(file)).credential == ExecPlugin(
        api_version="client.authentication.k8s.io/v1beta1",
        command=str(tmp_path / "bin/login"),
        args=("a", "1"),
        env=(("A", "b"),),
        install_hint="get it",
        cluster={"server": "https://api.example.com:6443/", "tls-server-name": "n"},
    )


def test_a_token_beats_a_plugin_as_in_client_go_and_a_token_file_beats_a_token(tmp_path):
    token = tmp_path / "token"
    token.write_text("t")
    spec = {"exec": {"apiVersion": "x", "command": "x"}}
    assert load(config(user={"token": "a", **spec}), allow_exec=True).credential == Token(token="a")
    assert load(config(user={"token": "a", "tokenFile": str(token)})).credential == TokenFile(path=str(token))
    assert load(config(user={"username": "a", "password": "b"})).credential == Basic(username="a", password="b")
    assert load(config()).credential == Anonymous()


def write(folder, name, document):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(kubeconfig.yaml.safe_dump(document))
    return folder / name


def test_a_list_of_files_is_merged_and_each_keeps_its_folder(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "token").write_text("of a")
    first = write(tmp_path / "a", "one", {"users": [{"name": "u", "user": {"tokenFile": "token"}}], "current-context": "main"})
    second = write(tmp_path / "b", "two", config(user={"token": "of b"}, namespace="ns") | {"current-context": "never"})
    monkeypatch.setenv("KUBECONFIG", f"{first}::{tmp_path}/missing:{second}")
    for way in (access.from_kubeconfig(), access.discover(), access.from_kubeconfig(path=f"{first}:{second}")):
        assert way.credential == TokenFile(path=str(tmp_path / "a" / "token"))
        assert (way.namespace, way.server) == ("ns", "https://api.example.com:6443")


def test_no_kubeconfig_at_all(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(AccessError, match=r"\.kube/config does not exist"):
        access.discover()
    write(tmp_path / ".kube", "config", config())
    assert access.discover().server == "https://api.example.com:6443"


@pytest.mark.parametrize(("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
def test_in_cluster(tmp_path, host, server):
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(AccessError, match="token does not exist"):
        access.in_cluster(folder=str(tmp_path), environ=environ)
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text(f"{name}\n")
    way = access.in_cluster(folder=str(tmp_path), environ=environ)
    assert (way.server, way.namespace, way.credential) == (server, "namespace", TokenFile(path=str(tmp_path / "token")))
    assert way.tls.ca_file == str(tmp_path / "ca.crt")


def test_outside_a_cluster_in_cluster_says_so():
    with pytest.raises(AccessError, match="KUBERNETES_SERVICE_HOST is not set"):
        access.in_cluster(environ={})


def test_pem_fields_take_base64_too():
    encoded = base64.b64encode(PEM.encode()).decode()
    assert access.from_fields(server="api", ca=encoded).tls.ca == access.from_fields(server="api", ca=PEM).tls.ca == PEM
    assert access.from_fields(server="api").server == "https://api"


@given(st.text(max_size=40))
def test_any_server_is_a_url_or_refused(text):
    with suppress(AccessError):
        assert server_url.checked(text).startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("server", "no_proxy", "proxied"),
    [
        ("https://api.example.com", "", True),
        ("https://api.example.com", "example.com", False),
        ("https://api.example.com", ".example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://badexample.com", "example.com", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8, 11.1.2.3", False),
        ("https://api.example.com", "*", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost", "", False),
        ("http://api.example.com", "", False),
    ],
)
def test_proxies_of_the_environment(monkeypatch, server, no_proxy, proxied):
    for name in ("https_proxy", "http_proxy", "HTTP_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert server_url.proxy_for(server) == ("http://proxy:3128" if proxied else "")
    assert server_url.proxy_for(server, "http://own") == "http://own"


def test_reading_an_access_loads_no_client_library():
    script = "import sys, airflow_mlxp.cluster.access; print({'aiohttp', 'ssl', 'asyncio'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "set()\n"
