r"""Bytes of a response to lines, in bounded memory and with a bound on silence.

Lines end at ``\n`` only: log lines hold ``\r`` of progress bars, JSON may hold U+0085 and U+2028.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aiohttp


class Inactive(Exception):
    """Nothing came for too long."""


async def next_chunk(body: aiohttp.StreamReader, *, inactivity: float) -> bytes:
    """What arrived next; empty at the end.

    Raises:
        Inactive: nothing came for ``inactivity`` seconds.
    """
    try:
        async with asyncio.timeout(inactivity):
            return await body.readany()
    except TimeoutError:
        raise Inactive from None
    except RuntimeError as error:
        # aiohttp's word for a connection that was closed on our side while the body was still coming.
        raise ConnectionResetError(str(error)) from error


async def read_all(content: aiohttp.StreamReader, *, limit: int) -> bytes | None:
    """The whole body, or None when it is longer than ``limit`` bytes."""
    parts: list[bytes] = []
    size = 0
    while chunk := await content.readany():
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            return None
    return b"".join(parts)


class LineSplitter:
    r"""Lines without their ``\n``, none longer than ``limit`` bytes: the rest of a longer one is dropped and a mark says so."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._kept = self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that this chunk completes."""
        head, *tail = chunk.split(b"\n")
        self._add(head)
        for piece in tail:
            yield self._take()
            self._add(piece)

    def end(self) -> Iterator[bytes]:
        r"""The last line when it had no ``\n``. Not to be asked for after a failure: it would be half a line."""
        if self._size:
            yield self._take()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if piece and self._kept < self._limit:
            kept = piece[: self._limit - self._kept]
            self._pieces.append(kept)
            self._kept += len(kept)

    def _take(self) -> bytes:
        line = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        if self._size > self._limit:
            mark = b" [line cut: %d bytes]" % self._size
            line = line[: max(0, self._limit - len(mark))] + mark
        self._pieces, self._kept, self._size = [], 0, 0
        return line
