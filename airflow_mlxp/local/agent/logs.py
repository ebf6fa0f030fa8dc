"""Container logs on disk, line by line as container runtimes write them, and the reads of the kubelet on them.

One line of a file is ``<RFC 3339 time, 9 digits> <stdout|stderr> <F|P> <content>``: F ends a line, P is a part of one.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PART_LIMIT = 16 * 1024
"""Bytes of a line after which a part of it is written, as containerd does."""

_CHUNK = 256 * 1024
_STAMP = len("2026-01-01T00:00:00.000000000Z")


def stamp(nanoseconds: int) -> str:
    """RFC 3339 with nine digits of a Unix time in nanoseconds: text order is time order."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09d}Z"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadOptions:
    """The query of a log request (``v1.PodLogOptions``)."""

    follow: bool = False
    timestamps: bool = False
    since: str = ""
    """Only lines of this time (as ``stamp`` writes it) or later."""

    tail_lines: int | None = None
    limit_bytes: int | None = None


class LogFile:
    """The log of one instance of a container."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.closed = False
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._changed = asyncio.Event()

    def stream(self, name: str) -> LogStream:
        """The writing end for ``stdout`` or ``stderr``."""
        return LogStream(self, name)

    def append(self, records: bytes) -> None:
        """Write finished records and wake the followers."""
        os.write(self._file, records)
        self._wake()

    def close(self) -> None:
        """The container has ended: followers read to the end and stop."""
        if not self.closed:
            self.closed = True
            os.close(self._file)
            self._wake()

    def tail(self, *, limit_bytes: int, limit_lines: int) -> str:
        """The last output, for terminationMessagePolicy FallbackToLogsOnError."""
        with self.path.open("rb") as file:
            file.seek(max(0, self.path.stat().st_size - 2 * limit_bytes - 100 * limit_lines))
            lines = file.read().split(b"\n")
        text = b"".join(_content(line) for line in lines if line[_STAMP : _STAMP + 4] == b" std")
        kept = b"\n".join(text.rstrip(b"\n").split(b"\n")[-limit_lines:])
        return kept[-limit_bytes:].decode("utf-8", "replace")

    async def read(self, options: ReadOptions) -> AsyncIterator[bytes]:
        """Blocks of output as the options ask for."""
        left = options.limit_bytes if options.limit_bytes is not None else float("inf")
        position = 0 if options.tail_lines is None else _tail_position(self.path, options.tail_lines)
        line_start = True
        while left > 0:
            changed, closed = self._changed, self.closed
            records = _read_records(self.path, position)
            position += len(records)
            block, line_start = _render(records, options, line_start=line_start)
            if block:
                block = block if len(block) <= left else block[: int(left)]
                left -= len(block)
                yield block
            if len(records) >= _CHUNK:
                continue
            if not options.follow or closed:
                return
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LogStream:
    """Cuts what a process writes into records."""

    def __init__(self, log: LogFile, name: str) -> None:
        self._log, self._name, self._rest = log, name, b""

    def feed(self, data: bytes) -> None:
        """Take output as it comes; a line is written when it is complete or longer than a part."""
        *lines, rest = (self._rest + data).split(b"\n")
        records = [self._records(line, final=True) for line in lines]
        if len(rest) >= PART_LIMIT:
            whole = len(rest) - len(rest) % PART_LIMIT
            records.append(self._records(rest[:whole], final=False))
            rest = rest[whole:]
        self._rest = rest
        if records:
            self._log.append(b"".join(records))

    def end(self) -> None:
        """Write the last line though it has no end."""
        if self._rest:
            self._log.append(self._records(self._rest, final=False))
            self._rest = b""

    def _records(self, line: bytes, *, final: bool) -> bytes:
        prefix = f"{stamp(time.time_ns())} {self._name} ".encode()
        parts = [line[start : start + PART_LIMIT] for start in range(0, len(line), PART_LIMIT)] or [b""]
        last = len(parts) - 1
        return b"".join(prefix + (b"F " if final and index == last else b"P ") + part + b"\n" for index, part in enumerate(parts))


def _content(record: bytes) -> bytes:
    _, _, tag_and_content = record[_STAMP + 1 :].partition(b" ")
    return tag_and_content[2:] + (b"\n" if tag_and_content[:1] == b"F" else b"")


def _read_records(path: Path, position: int) -> bytes:
    """Whole records from a position on, about a chunk of them."""
    with path.open("rb") as file:
        file.seek(position)
        records = b"".join(file.readlines(_CHUNK))
    return records[: records.rfind(b"\n") + 1]


def _render(records: bytes, options: ReadOptions, *, line_start: bool) -> tuple[bytes, bool]:
    """The output of records, and whether the next one begins a line: only the first part of a line gets a time."""
    out: list[bytes] = []
    since = options.since.encode()
    for record in records.split(b"\n")[:-1]:
        if record[:_STAMP] < since:
            continue
        content = _content(record)
        out.append(record[: _STAMP + 1] + content if options.timestamps and line_start else content)
        line_start = content.endswith(b"\n")
    return b"".join(out), line_start


def _tail_position(path: Path, lines: int) -> int:
    """Where the last ``lines`` records begin."""
    size = position = path.stat().st_size
    if lines <= 0:
        return size
    found = 0
    with path.open("rb") as file:
        while position > 0:
            start = max(0, position - _CHUNK)
            file.seek(start)
            block = file.read(position - start)
            cut = len(block)
            while (cut := block.rfind(b"\n", 0, cut)) >= 0:
                # The newline that ends the file ends the last record: it begins nothing.
                found += start + cut + 1 < size
                if found == lines:
                    return start + cut + 1
            position = start
    return 0
