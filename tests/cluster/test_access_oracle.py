"""The official loader reads the same kubeconfigs: host, authorities, verification, certificates and headers must agree."""

import base64
import json
import sys
from pathlib import Path

import pytest
import yaml
from kubernetes_asyncio import client as official_client
from kubernetes_asyncio import config as official

from airflow_mlxp.cluster import access, auth, server_url
from airflow_mlxp.cluster.settings import DEFAULTS
from tests.support.certificates import Authority

AUTHORITY = Authority()
CERTIFICATE, KEY = AUTHORITY.client_pair("me")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def plugin(version, **status):
    answer = json.dumps({"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "status": status})
    return {
        "exec": {
            "apiVersion": f"client.authentication.k8s.io/{version}",
            "command": sys.executable,
            "args": ["-c", "import os; print(os.environ['ANSWER'])"],
            "env": [{"name": "ANSWER", "value": answer}],
            "interactiveMode": "Never",
        }
    }


CLUSTERS = {
    "plain": {"server": "https://api.example.com:6443"},
    "slash and path": {"server": "https://rancher.example.com/k8s/clusters/c-1/"},
    "no tls": {"server": "http://127.0.0.1:8001"},
    "ca data": {"server": "https://api", "certificate-authority-data": encoded(AUTHORITY.pem)},
    "ca file": {"server": "https://api", "certificate-authority": "pki/ca.crt"},
    "insecure": {"server": "https://api", "insecure-skip-tls-verify": True},
    "proxy": {"server": "https://api", "proxy-url": "http://user:pw@proxy:3128"},
    "server name": {"server": "https://10.0.0.1", "tls-server-name": "api.example.com"},
    "all": {
        "server": "https://[fd00::1]:6443",
        "certificate-authority-data": encoded(AUTHORITY.pem),
        "tls-server-name": "api.example.com",
        "proxy-url": "https://proxy",
    },
}
USERS = {
    "nobody": {},
    "token": {"token": "abc"},
    "token file": {"tokenFile": "token"},
    "password": {"username": "jane", "password": "pässword:1"},
    "certificate data": {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)},
    "certificate files": {"client-certificate": "pki/me.crt", "client-key": "./pki/../pki/me.key"},
    "certificate and token": {"client-certificate": "pki/me.crt", "client-key": "pki/me.key", "token": "abc"},
    "data before file": {
        "client-certificate": "none",
        "client-certificate-data": encoded(CERTIFICATE),
        "client-key-data": encoded(KEY),
    },
    "plugin v1": plugin("v1", token="from-plugin"),
    "plugin v1beta1": plugin("v1beta1", token="from-plugin", expirationTimestamp="2099-01-01T00:00:00Z"),
    "plugin certificate": plugin("v1", clientCertificateData=CERTIFICATE, clientKeyData=KEY),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    files = {"token": "from-file", "pki/ca.crt": AUTHORITY.pem, "pki/me.crt": CERTIFICATE, "pki/me.key": KEY}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def kubeconfig(cluster, user, **context):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", **context}},
            {"name": "other", "context": {"cluster": "c", "user": "missing" if not user else "u", "namespace": "elsewhere"}},
        ],
    }


def read(path):
    return Path(path).read_text() if path else ""


async def official_view(path, context=None):
    configuration = official_client.Configuration()
    await official.load_kube_config(config_file=path, context=context, client_configuration=configuration, persist_config=False)
    tls = configuration.host.startswith("https")
    return {
        "host": configuration.host,
        "verify": configuration.verify_ssl,
        "ca": read(configuration.ssl_ca_cert) if tls else "",
        "certificate": read(configuration.cert_file) if tls else "",
        "key": read(configuration.key_file) if tls else "",
        "authorization": configuration.api_key.get("BearerToken", ""),
        "server name": configuration.tls_server_name or "",
        "proxy": configuration.proxy or "",
    }


async def our_view(way):
    authenticator = auth.Authenticator(way, settings=DEFAULTS)
    proof = await authenticator.proof()
    secure = way.server.startswith("https")
    client = authenticator.client_certificate if secure else None
    assert (proof.context is not None) == secure
    return {
        "host": way.server,
        "verify": not way.tls.insecure,
        "ca": (way.tls.ca or read(way.tls.ca_file)) if secure else "",
        "certificate": (client.certificate or read(client.certificate_file)) if client else "",
        "key": (client.key or read(client.key_file)) if client else "",
        "authorization": proof.authorization,
        "server name": way.tls.server_name,
        "proxy": server_url.proxy_for(way.server, way.proxy_url),
    }


@pytest.mark.parametrize("user", USERS.values(), ids=USERS)
@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
async def test_each_cluster_with_each_user(folder, cluster, user):
    file = folder / "config"
    file.write_text(yaml.safe_dump(kubeconfig(cluster, user)))
    assert await our_view(access.from_kubeconfig(path=str(file))) == await official_view(str(file))


async def test_contexts(folder):
    file = folder / "config"
    file.write_text(yaml.safe_dump(kubeconfig(CLUSTERS["plain"], USERS["token"])))
    way = access.from_kubeconfig(path=str(file), context="other")
    assert way.namespace == "elsewhere"
    assert await our_view(way) == await official_view(str(file), "other")


async def test_a_list_of_files(folder):
    first, second = folder / "one", folder / "pki" / "two"
    whole = kubeconfig(CLUSTERS["ca file"], USERS["token file"])
    first.write_text(yaml.safe_dump({"clusters": whole["clusters"], "users": [], "contexts": []}))
    rest = {**whole, "clusters": [{"name": "c", "cluster": {"server": "https://never"}}]}
    rest["users"] = [{"name": "u", "user": {"tokenFile": "../token"}}]
    second.write_text(yaml.safe_dump(rest))
    path = f"{first}:{folder / 'missing'}:{second}"
    ours = await our_view(access.from_kubeconfig(path=path))
    assert ours == await official_view(path)
    assert (ours["host"], ours["authorization"], ours["ca"]) == ("https://api", "Bearer from-file", AUTHORITY.pem)
