"""Lines of a stream, taken in batches: what arrives together stays together, and a slow consumer slows the stream down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

MAX_LINES = 200
MAX_BYTES = 64 * 1024
"""A batch is full with this many lines or bytes; no more than one full batch waits."""
LINGER = 0.05
"""Seconds that a batch waits for more: lines printed together arrive within milliseconds, people don't notice 50."""


class LinePump:
    """Reads a stream in a task of its own until the batch is full, and goes on when it is taken.

    Use it as an async context manager: on exit the stream is closed.
    """

    def __init__(self, lines: AsyncGenerator[bytes, None], *, name: str) -> None:
        self._source, self._name = lines, name
        self._lines: list[bytes] = []
        self._size = 0
        self._ready, self._full, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._source.aclose()

    async def take(self, wait: float) -> list[bytes] | None:
        """The next batch; empty when nothing came within ``wait`` seconds, None at the end of the stream.

        Raises:
            errors.MLXPError: the stream broke; what came before has been given.
        """
        try:
            async with asyncio.timeout(wait):
                await self._ready.wait()
        except TimeoutError:
            return []
        if not self._full.is_set():
            try:
                async with asyncio.timeout(LINGER):
                    await self._full.wait()
            except TimeoutError:
                pass
        batch, self._lines, self._size = self._lines, [], 0
        if not batch and self._task is not None and self._task.done():
            self._task.result()
            return None
        if self._task is not None and not self._task.done():
            self._ready.clear()
            self._full.clear()
        self._room.set()
        return batch

    async def _run(self) -> None:
        async for line in self._source:
            self._lines.append(line)
            self._size += len(line)
            self._ready.set()
            if len(self._lines) >= MAX_LINES or self._size >= MAX_BYTES:
                self._room.clear()
                self._full.set()
                await self._room.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # it is raised by take(); a follower that stops early must not leave a warning
        self._ready.set()
        self._full.set()
