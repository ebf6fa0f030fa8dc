"""A cluster in a thread with an event loop of its own, so that tests keep theirs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tests.real_cluster.cluster import ClusterSettings, RealCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def running_cluster(settings: ClusterSettings) -> Iterator[RealCluster]:
    """A cluster for synchronous code; its ``client`` belongs to the thread and is not for use outside."""
    ready: Future[tuple[RealCluster, Callable[[], object]]] = Future()
    ended: Future[None] = Future()

    async def serve() -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with RealCluster(settings) as cluster:
            ready.set_result((cluster, lambda: loop.call_soon_threadsafe(stopped.set)))
            await stopped.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            (ended if ready.done() else ready).set_exception(error)
        else:
            ended.set_result(None)

    thread = threading.Thread(target=run, name="real cluster")
    thread.start()
    cluster, stop = ready.result()
    try:
        yield cluster
    finally:
        stop()
        thread.join()
        ended.result()
