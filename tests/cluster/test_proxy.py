"""Through a real forward proxy: CONNECT for TLS, absolute URLs for plain http."""

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest

from airflow_mlxp import errors
from airflow_mlxp.cluster import access, rest
from airflow_mlxp.cluster.settings import Settings
from tests.support.api_server import Reply, scripted_server
from tests.support.certificates import Authority

LOGIN = "Basic " + base64.b64encode(b"user:pass word").decode()


@asynccontextmanager
async def connect_proxy(heads):
    """A proxy that knows CONNECT only and wants to be logged in to."""

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        if f"Proxy-Authorization: {LOGIN}" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        else:
            host, port = head.split()[1].rsplit(":", 1)
            upstream = await asyncio.open_connection("127.0.0.1", int(port))
            assert host == "api.example.com"
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(copy(reader, upstream[1]), copy(upstream[0], writer))
        writer.close()

    async def copy(source, target):
        try:
            while chunk := await source.read(65536):
                target.write(chunk)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        yield proxy.sockets[0].getsockname()[1]


@pytest.mark.parametrize("way_in", ["field", "environment"])
async def test_a_server_behind_a_proxy(monkeypatch, way_in):
    monkeypatch.delenv("https_proxy", raising=False)
    authority, heads = Authority(names=("api.example.com",)), []
    async with scripted_server(context=authority.server_context()) as server, connect_proxy(heads) as port:
        server.on("GET", "/version", Reply(body={"ok": 1}))
        proxy = f"http://user:pass%20word@127.0.0.1:{port}"
        if way_in == "environment":
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            proxy = ""
        way = access.from_fields(server=f"https://api.example.com:{server.port}", ca=authority.pem, token="t", proxy_url=proxy)
        async with rest.Client(way) as client:
            assert await client.get("/version") == {"ok": 1}
    assert heads[0].startswith(f"CONNECT api.example.com:{server.port} ")
    assert "Bearer" not in "".join(heads)
    assert server.requests[0].headers["Authorization"] == "Bearer t"
    assert "Proxy-Authorization" not in server.requests[0].headers


async def test_a_proxy_that_refuses_is_told_without_its_password():
    heads = []
    settings = Settings(request_deadline=0.1, backoff_initial=0.01)
    async with connect_proxy(heads) as port:
        way = access.from_fields(server="https://api.example.com", proxy_url=f"http://user:wrong@127.0.0.1:{port}")
        assert "wrong" not in repr(way)
        async with rest.Client(way, settings=settings) as client:
            with pytest.raises(errors.ClusterUnreachable, match="407") as caught:
                await client.get("/version")
    assert "wrong" not in str(caught.value)
