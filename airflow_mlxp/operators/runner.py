"""Run a coroutine for a synchronous ``execute()``, so that signals can still stop it.

Airflow calls ``on_kill()`` inside the SIGTERM handler, and raises ``AirflowTaskTimeout`` from the alarm handler, both on the main
thread. Were the event loop on that thread too, the handler could start no other loop, and the time-out would be raised inside
whichever coroutine happens to run and vanish there. So the loop gets a thread of its own, and the main thread only waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

STOP_SECONDS = 30.0
"""How long a cancelled coroutine may clean up before ``run()`` goes on without it; its thread is a daemon."""


class Stopped(Exception):
    """``stop()`` ended the coroutine."""


class Runner(Generic[T]):
    """One run of one coroutine on an event loop in a thread of its own."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._main = main
        self._result: Future[T] = Future()
        self._ended = threading.Event()
        self._cancel: Callable[[], object] | None = None
        self._cancel_asked = False
        self._cancelled = False

    def start(self) -> None:
        """Begin without waiting."""
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._in_thread,), name="airflow-mlxp", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Whether it has ended, after at most ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def run(self) -> T:
        """The coroutine's result. When the wait is interrupted (time-out, ctrl-C), the coroutine is cancelled and waited for.

        Raises:
            Stopped: ``stop()`` was called.
            BaseException: what the coroutine, or the handler that interrupted the wait, raised.
        """
        self.start()
        try:
            return self._result.result()
        except asyncio.CancelledError:
            raise Stopped from None
        finally:
            self.stop(timeout=STOP_SECONDS)

    def stop(self, *, timeout: float) -> bool:
        """Cancel the coroutine, from any thread and from a signal handler; whether it ended within ``timeout`` seconds."""
        self._cancel_asked = True
        self._cancel_once()
        return self.wait(timeout)

    def _in_thread(self) -> None:
        try:
            result = asyncio.run(self._start())
        except BaseException as error:  # noqa: BLE001 - run() raises it on the caller's thread
            self._ended.set()
            self._result.set_exception(error)
        else:
            self._ended.set()
            self._result.set_result(result)

    async def _start(self) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._cancel_asked:  # before there was anything to cancel
            self._cancel_once()
        return await self._main()

    def _cancel_once(self) -> None:
        # A second cancellation would interrupt the clean-up that the first one began.
        if self._cancel is None or self._cancelled or self._ended.is_set():
            return
        self._cancelled = True
        try:
            self._cancel()
        except RuntimeError:  # the loop was closed in between: it has ended
            return
