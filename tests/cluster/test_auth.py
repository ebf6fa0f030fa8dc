import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_mlxp import errors
from airflow_mlxp.cluster import access, rest
from airflow_mlxp.cluster.credentials import ExecPlugin
from airflow_mlxp.cluster.settings import Settings
from tests.support.api_server import Reply, scripted_server, status
from tests.support.certificates import Authority

V1 = "client.authentication.k8s.io/v1"
FAST = Settings(backoff_initial=0.01, backoff_maximum=0.02, request_deadline=2, exec_timeout=20)
UNAUTHORIZED = status(401, "Unauthorized", "Unauthorized")


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
async def server():
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def tls_server(authority):
    async with scripted_server(context=authority.server_context(client_certificates=True)) as server:
        server.on("GET", "/version", Reply(body={"ok": 1}))
        yield server


def only(*tokens):
    """Accepts these tokens alone."""

    async def answer(seen):
        return (
            Reply(body={"ok": 1})
            if seen.headers.get("Authorization") in [f"Bearer {token}" for token in tokens]
            else UNAUTHORIZED
        )

    return answer


class Plugin:
    """A credential plugin that counts its runs and prints what stands in a file."""

    def __init__(self, folder, script=""):
        self.answer, self._runs, self._info = folder / "answer", folder / "runs", folder / "info"
        body = f"""
import os, sys, pathlib
open({str(self._runs)!r}, "a").write("x")
pathlib.Path({str(self._info)!r}).write_text(os.environ["KUBERNETES_EXEC_INFO"])
{script}
print(pathlib.Path({str(self.answer)!r}).read_text())
"""
        self.credential = ExecPlugin(api_version=V1, command=sys.executable, args=("-c", body), install_hint="install it so")

    def gives(self, *, api_version=V1, **answer):
        self.answer.write_text(json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": answer}))
        return self

    @property
    def runs(self):
        return len(self._runs.read_text()) if self._runs.exists() else 0

    @property
    def info(self):
        return json.loads(self._info.read_text())


def in_seconds(seconds):
    return (datetime.now(tz=UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def client_of(server, credential, settings=FAST, **fields):
    return rest.Client(access.Access(server=server.url, credential=credential, **fields), settings=settings)


async def test_a_wrong_static_token_is_told_at_once(server):
    server.on("GET", "/version", UNAUTHORIZED)
    async with rest.Client(access.from_fields(server=server.url, token="t"), settings=FAST) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get("/version")
    assert len(server.requests) == 1


async def test_a_token_file_is_read_again_after_a_refusal_and_after_a_while(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    server.on("GET", "/version", only("one"))
    way = access.from_fields(server=server.url, token_file=str(file))
    async with rest.Client(way, settings=Settings(file_check_interval=0)) as eager, rest.Client(way, settings=FAST) as lazy:
        await asyncio.gather(eager.get("/version"), lazy.get("/version"))
        file.write_text("two")
        server.on("GET", "/version", only("two"))
        await asyncio.gather(eager.get("/version"), lazy.get("/version"))
        refused = [seen for seen in server.requests if seen.headers["Authorization"] == "Bearer one"]
        assert len(refused) == 3
        server.on("GET", "/version", UNAUTHORIZED)
        with pytest.raises(errors.Unauthorized):
            await lazy.get("/version")


async def test_a_token_file_that_is_just_being_replaced_does_no_harm(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    server.on("GET", "/version", only("one"))
    async with rest.Client(
        access.from_fields(server=server.url, token_file=str(file)), settings=Settings(file_check_interval=0)
    ) as client:
        await client.get("/version")
        file.write_text("")
        await client.get("/version")
        file.unlink()
        await client.get("/version")


async def test_an_empty_token_file_is_named(server, tmp_path):
    file = tmp_path / "token"
    file.write_text("")
    async with rest.Client(access.from_fields(server=server.url, token_file=str(file))) as client:
        with pytest.raises(errors.AccessError, match=f"token file: {file} is empty"):
            await client.get("/version")


async def test_many_refused_calls_share_one_renewal(server, tmp_path):
    plugin = Plugin(tmp_path).gives(token="one")
    server.on("GET", "/version", only("one"))
    async with client_of(server, plugin.credential) as client:
        await client.get("/version")
        plugin.gives(token="two")
        server.on("GET", "/version", only("two"))
        await asyncio.gather(*[client.get("/version") for _ in range(50)])
    assert plugin.runs == 2


async def test_a_credential_is_renewed_any_number_of_times(server, tmp_path):
    plugin = Plugin(tmp_path)
    async with client_of(server, plugin.credential) as client:
        for n in range(6):
            plugin.gives(token=f"t{n}")
            server.on("GET", "/version", only(f"t{n}"))
            assert await client.get("/version") == {"ok": 1}
    assert plugin.runs == 6


async def test_a_new_token_that_is_refused_too_ends_it(server, tmp_path):
    plugin = Plugin(tmp_path).gives(token="one")
    server.on("GET", "/version", UNAUTHORIZED)
    async with client_of(server, plugin.credential) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get("/version")
    assert plugin.runs == 2


async def test_a_token_is_renewed_before_it_expires(server, tmp_path):
    plugin = Plugin(tmp_path).gives(token="one", expirationTimestamp=in_seconds(3600))
    server.on("GET", "/version", only("one", "two"))
    async with client_of(server, plugin.credential) as long, client_of(server, plugin.credential) as short:
        await long.get("/version")
        await long.get("/version")
        assert plugin.runs == 1
        plugin.gives(token="two", expirationTimestamp=in_seconds(-1))
        await short.get("/version")
        await short.get("/version")
        assert plugin.runs == 3
    assert len(server.requests) == 4


async def test_a_plugin_that_worked_may_fail_now_and_then(server, tmp_path):
    fails_once = f"p = pathlib.Path({str(tmp_path / 'bad')!r})\nif p.exists(): p.unlink(); sys.exit('a bad moment')"
    plugin = Plugin(tmp_path, fails_once).gives(token="one")
    server.on("GET", "/version", only("one"))
    async with client_of(server, plugin.credential) as client:
        await client.get("/version")
        plugin.gives(token="two")
        (tmp_path / "bad").touch()
        server.on("GET", "/version", only("two"))
        await client.get("/version")
    assert plugin.runs == 3


async def test_a_plugin_is_told_what_is_asked_of_it(server, tmp_path):
    plugin = Plugin(tmp_path).gives(token="one")
    server.on("GET", "/version", only("one"))
    async with client_of(server, plugin.credential) as client:
        await client.get("/version")
    assert plugin.info == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}


@pytest.mark.parametrize(
    ("script", "answer", "message"),
    [
        ("sys.exit('no session, log in first')", "", "ended with exit code 1: no session, log in first"),
        ("", "nonsense", "printed no ExecCredential"),
        ("", json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "printed no ExecCredential.*status"),
        (
            "",
            json.dumps({"apiVersion": f"{V1}beta1", "kind": "ExecCredential", "status": {"token": "t"}}),
            "answered in .*v1beta1",
        ),
        ("", json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {}}), "neither a token nor a client certificate"),
        ("", json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": {"clientKeyData": "k"}}), "only one of"),
    ],
)
async def test_a_plugin_that_fails_is_explained(server, tmp_path, script, answer, message):
    plugin = Plugin(tmp_path, script)
    plugin.answer.write_text(answer)
    async with client_of(server, plugin.credential) as client:
        with pytest.raises(errors.AccessError, match=message):
            await client.get("/version")
    assert plugin.runs == 1
    assert not server.requests


async def test_a_plugin_that_is_not_installed_is_explained(server):
    credential = ExecPlugin(api_version=V1, command="no-such-login-program", install_hint="get it from example.com")
    async with client_of(server, credential) as client:
        with pytest.raises(errors.AccessError, match=r"no-such-login-program can't be started: .*; get it from example\.com"):
            await client.get("/version")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_a_plugin_that_hangs_is_ended_with_its_children(server, tmp_path, how):
    script = f"""
import subprocess, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid)); time.sleep(600)
"""
    timeout = 3 if how == "timeout" else 60
    plugin = Plugin(tmp_path, script)
    async with client_of(server, plugin.credential, Settings(exec_timeout=timeout)) as client:
        call = asyncio.create_task(client.get("/version"))
        if how == "cancel":
            await until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
            call.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancel" else errors.AccessError):
            await call
    child = int((tmp_path / "child").read_text())
    await until(lambda: not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text())


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  another process makes it true
            await asyncio.sleep(0.02)


async def test_the_server_has_to_prove_itself(tls_server, authority):
    async with rest.Client(access.from_fields(server=tls_server.url, ca=authority.pem, token="t"), settings=FAST) as client:
        assert await client.get("/version") == {"ok": 1}
    for way in (access.from_fields(server=tls_server.url), access.from_fields(server=tls_server.url, ca=Authority().pem)):
        began = time.monotonic()
        async with rest.Client(way) as client:
            with pytest.raises(errors.AccessError, match=r"certificate is not trusted: .*check the certificate authority"):
                await client.get("/version")
        assert time.monotonic() - began < 5
    async with rest.Client(access.from_fields(server=tls_server.url, insecure=True)) as client:
        assert await client.get("/version") == {"ok": 1}


async def test_another_name_than_the_hosts(tls_server, authority):
    way = access.from_fields(server=tls_server.url, ca=authority.pem, tls_server_name="localhost")
    async with rest.Client(way) as client:
        assert await client.get("/version") == {"ok": 1}
    way = access.from_fields(server=tls_server.url, ca=authority.pem, tls_server_name="api.example.com")
    async with rest.Client(way) as client:
        with pytest.raises(errors.AccessError, match=r"Hostname mismatch.*api\.example\.com"):
            await client.get("/version")


async def test_a_server_certificate_that_is_its_own_authority_is_trusted(tmp_path):
    """As the API server's self-signed ``apiserver.crt``; Go accepts it as an authority."""
    authority = Authority()
    issued = authority.ca.issue_cert("127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.configure_cert(context)
    async with scripted_server(context=context) as server:
        server.on("GET", "/version", Reply(body={"ok": 1}))
        leaf = issued.cert_chain_pems[0].bytes().decode()
        async with rest.Client(access.from_fields(server=server.url, ca=leaf)) as client:
            assert await client.get("/version") == {"ok": 1}


async def test_client_certificates_are_shown_and_leave_no_file(tls_server, authority, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    certificate, key = authority.client_pair("jane")
    (tmp_path / "crt").write_text(certificate)
    (tmp_path / "key").write_text(key)
    files = {"client_certificate_file": str(tmp_path / "crt"), "client_key_file": str(tmp_path / "key")}
    for fields in ({"client_certificate": certificate, "client_key": key}, files):
        async with rest.Client(access.from_fields(server=tls_server.url, ca=authority.pem, **fields)) as client:
            await client.get("/version")
        assert tls_server.requests[-1].client == "jane"
        assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_client_certificate_file_that_was_renewed_is_used(tls_server, authority, tmp_path):
    file = tmp_path / "both"

    def renew(name):
        file.write_text("".join(authority.client_pair(name)))
        os.utime(file, (len(name), len(name)))

    renew("one")
    way = access.from_fields(server=tls_server.url, ca=authority.pem, client_certificate_file=str(file))
    async with rest.Client(way, settings=Settings(file_check_interval=0)) as client:
        await client.get("/version")
        renew("another")
        await client.get("/version")
    assert [seen.client for seen in tls_server.requests] == ["one", "another"]


async def test_a_plugin_may_issue_certificates(tls_server, authority, tmp_path):
    plugin = Plugin(tmp_path)
    settings = Settings(expiry_lead=0)
    async with rest.Client(
        access.Access(server=tls_server.url, credential=plugin.credential, tls=access.TLS(ca=authority.pem)), settings=settings
    ) as client:
        for name in ("one", "two"):
            certificate, key = authority.client_pair(name)
            plugin.gives(clientCertificateData=certificate, clientKeyData=key, expirationTimestamp=in_seconds(-1))
            await client.get("/version")
            assert tls_server.requests[-1].client == name


@pytest.mark.parametrize(
    "fields", [{"client_certificate": "-----BEGIN CERTIFICATE-----\nx", "client_key": "-----BEGIN"}, {"ca": "-----BEGIN x"}]
)
async def test_certificates_that_are_none_are_named(tls_server, fields):
    async with rest.Client(access.from_fields(server=tls_server.url, **fields)) as client:
        with pytest.raises(errors.AccessError, match=r"client certificate: the given text|ca: the given text"):
            await client.get("/version")
