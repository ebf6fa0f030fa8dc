"""One client for each connection in a triggerer, shared by all triggers of an event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from airflow_mlxp import compat, connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_mlxp.cluster.rest import Client

MAX_AGE = 300.0
"""Seconds after which a new trigger looks its connection up again: an edited connection takes effect without a restart."""


@dataclass
class _Shared:
    client: Client
    since: float
    users: int = 0


@dataclass
class _Loop:
    """What one event loop shares."""

    clients: dict[str, _Shared] = field(default_factory=dict)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The first look-up of a process takes seconds: a hundred triggers that start together wait for one."""


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client(conn_id: str) -> AsyncIterator[Client]:
    """The client of a connection; closed when its last user leaves.

    Raises:
        AccessError: the connection can't be used.
    """
    loop = _loops.setdefault(asyncio.get_running_loop(), _Loop())
    shared = await _acquire(loop, conn_id)
    try:
        yield shared.client
    finally:
        await _release(loop, conn_id, shared)


def forget(conn_id: str) -> None:
    """Look the connection up anew for the next user: its credential failed."""
    loop = _loops.get(asyncio.get_running_loop())
    if loop:
        loop.clients.pop(conn_id, None)


async def _acquire(loop: _Loop, conn_id: str) -> _Shared:
    async with loop.opening:
        shared = loop.clients.get(conn_id)
        if shared is None or time.monotonic() - shared.since > MAX_AGE:
            forget(conn_id)
            shared = loop.clients[conn_id] = _Shared(await _open(conn_id), time.monotonic())
        shared.users += 1
        return shared


async def _release(loop: _Loop, conn_id: str, shared: _Shared) -> None:
    shared.users -= 1
    if shared.users:
        return
    if loop.clients.get(conn_id) is shared:
        del loop.clients[conn_id]
    await shared.client.aclose()


async def _open(conn_id: str) -> Client:
    # The first import of the client library takes a quarter of a second: not on the event loop.
    rest = await asyncio.to_thread(import_module, "airflow_mlxp.cluster.rest")
    conn = await compat.aget_connection(conn_id)
    for secret in connection.secrets(conn):
        await compat.amask(secret)
    allow_exec = compat.flag_option(connection.ALLOW_EXEC_OPTION)
    resolved = await asyncio.to_thread(connection.resolve, conn, allow_exec=allow_exec)
    client: Client = rest.Client(resolved.access)
    return client
