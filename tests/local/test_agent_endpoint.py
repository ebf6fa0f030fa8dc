"""The node agent's log endpoint without a platform."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import aiohttp

from airflow_mlxp.local.agent.endpoint import LogEndpoint
from airflow_mlxp.local.agent.logs import LogFile
from airflow_mlxp.local.server.tls import Authority
from tests.support.standalone import until


class _WatchedLog(LogFile):
    """Tells when a read of it has come to its end."""

    def __init__(self, path):
        super().__init__(path)
        self.was_read = asyncio.Event()

    async def read(self, options):
        async for block in super().read(options):
            yield block
        self.was_read.set()


async def test_a_reader_that_leaves_is_no_error(tmp_path, caplog):
    log = _WatchedLog(tmp_path / "0.log")
    log.stream("stdout").feed(b"first\n")
    container = SimpleNamespace(state={"terminated": {"containerID": "a"}}, last_state={}, logs={"a": log}, name="main")
    authority = Authority.new()
    endpoint = LogEndpoint(lambda *_: container, authority.pem)
    await endpoint.start()

    async def connection_is_lost():
        return all(connection.transport is None for connection in endpoint._runner.server.connections)

    tls = authority.kubelet_client_context()
    async with asyncio.timeout(10), aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{endpoint.port}/containerLogs/p-demo/worker/main"
        async with session.get(url, params={"follow": "true"}, ssl=tls) as answer:
            assert await answer.content.readline() == b"first\n"
            answer.close()
        await until(connection_is_lost, seconds=5, what="the end of the connection")
        log.close()
        await log.was_read.wait()
    await endpoint.stop()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
