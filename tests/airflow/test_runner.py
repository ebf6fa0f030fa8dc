"""A coroutine on a thread of its own, stopped by signals as Airflow sends them."""

import asyncio
import contextvars
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from airflow_mlxp.operators.runner import Runner, Stopped


class Work:
    """A coroutine that waits for ever and takes note of its clean-up."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.cleaned: list[str] = []

    async def main(self) -> None:
        try:
            self.running.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cleaned.append("cleaned")


@contextmanager
def signal_once(number: signal.Signals, handler: object, when: threading.Event) -> Iterator[None]:
    """Deliver a signal to the main thread once ``when`` is set."""
    before = signal.signal(number, handler)  # type: ignore[arg-type]

    def deliver() -> None:
        when.wait(10)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=deliver)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(number, before)


def test_result_exception_and_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")

    async def good() -> str:
        return variable.get()

    async def bad() -> None:
        raise ValueError("its own")

    assert Runner(good).run() == "seen"
    with pytest.raises(ValueError, match="its own"):
        Runner(bad).run()


def test_stopped_inside_a_signal_handler_on_the_waiting_thread() -> None:
    work = Work()
    runner = Runner(work.main)
    stopped: list[bool] = []
    with (
        signal_once(signal.SIGTERM, lambda *_: stopped.append(runner.stop(timeout=4)), work.running),
        pytest.raises(Stopped),
    ):
        runner.run()
    assert (stopped, work.cleaned) == ([True], ["cleaned"])


def test_an_exception_of_a_signal_handler_ends_the_coroutine_first() -> None:
    class Timeout(BaseException):
        pass

    def raise_timeout(*_: object) -> None:
        raise Timeout

    work = Work()
    with signal_once(signal.SIGALRM, raise_timeout, work.running), pytest.raises(Timeout):
        Runner(work.main).run()
    assert work.cleaned == ["cleaned"]


def test_stopped_before_it_began() -> None:
    work = Work()
    runner = Runner(work.main)
    runner.stop(timeout=0)
    with pytest.raises(Stopped):
        runner.run()


def test_a_second_stop_does_not_interrupt_the_cleaning_up() -> None:
    cleaning, go_on, done = threading.Event(), threading.Event(), []

    async def main() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.to_thread(go_on.wait, 10)
            done.append(True)

    running = threading.Event()
    runner = Runner(main)
    runner.start()
    assert running.wait(10)
    assert not runner.stop(timeout=0)
    assert cleaning.wait(10)
    assert not runner.stop(timeout=0)
    go_on.set()
    assert runner.wait(10)
    assert done == [True]
