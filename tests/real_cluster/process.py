"""One component as a process of this machine: its log in a file, its end noticed, stopped for certain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

_STOP_SECONDS = 10.0
"""Between SIGTERM and SIGKILL. The slowest, kube-apiserver, needs about two seconds."""
_POLL_SECONDS = 0.1
_TAIL_BYTES = 4000


class ComponentFailed(Exception):
    """A component has ended, or isn't ready in time; the text holds the end of its log."""


class Component:
    """A process that is to run until it is stopped."""

    def __init__(self, name: str, command: Sequence[str], *, logs: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self._command, self._env = command, env or {}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it. It dies with us whatever happens to us, and hears no ctrl-C, so that all stop in their order."""
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *_DIES_WITH_PARENT,
                *self._command,
                env={**os.environ, **self._env},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Process id of a component that was started."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    async def until(self, is_ready: Callable[[], Awaitable[bool]], *, seconds: float = 60.0) -> None:
        """Wait for a condition that this component brings about; ComponentFailed when it ends before or takes longer."""
        try:
            async with asyncio.timeout(seconds):
                while not await is_ready():
                    if not self.is_running:
                        raise ComponentFailed(self._text("has ended"))
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise ComponentFailed(self._text(f"is not ready after {seconds:.0f} s")) from None

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def _text(self, what: str) -> str:
        end = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        return f"{self.name} {what}; the end of {self.log}:\n{end}"


_DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
