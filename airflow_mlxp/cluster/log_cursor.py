"""Which lines of a container's log have been seen, so that each is carried once however often the stream is cut. Pure.

The server's ``sinceTime`` counts whole seconds, many lines may share one time, and the writers of stdout and stderr may put
neighbours out of order. So a new stream starts a little early, and what it repeats is recognised by time and number.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)")
_SECOND = 1_000_000_000

DISORDER = 10_000_000
"""Nanoseconds by which neighbours may be out of order: stdout and stderr get their times before they take turns at the file."""
REMEMBERED_TIMES = 1000
"""Distinct times that are remembered exactly: neighbours that are out of order lie microseconds, so few lines, apart."""


@dataclass(frozen=True, slots=True)
class LogCursor:
    """Where a successor goes on."""

    time: str = ""
    """Time of the newest line that was carried, RFC 3339 with nanoseconds; empty: none was."""
    count: int = 0
    """Lines carried that have exactly this time."""


@dataclass(frozen=True, slots=True)
class StampedLine:
    """One line as the log endpoint sends it with ``timestamps=true``."""

    nanoseconds: int | None
    """Since the epoch; None: the line has no time."""
    time: str
    text: bytes


def parse(line: bytes) -> StampedLine:
    """Split the time from the text. A line without a time is all text: some messages of the kubelet itself."""
    stamp, _, text = line.partition(b" ")
    moment = nanoseconds_of(stamp)
    return StampedLine(None, "", line) if moment is None else StampedLine(moment, stamp.decode("ascii"), text)


def nanoseconds_of(stamp: bytes) -> int | None:
    """Nanoseconds since the epoch of an RFC 3339 time; None if it is none."""
    match = _STAMP.fullmatch(stamp)
    if match is None:
        return None
    seconds = _seconds_of(match[1] + match[3])
    return None if seconds is None else seconds * _SECOND + int((match[2] or b"").ljust(9, b"0"))


@lru_cache(maxsize=64)
def _seconds_of(stamp: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat(stamp.decode("ascii")).timestamp())
    except ValueError:
        return None


class LogPosition:
    """What has been carried of one container's log, across streams, restarts and the cursor of a predecessor."""

    def __init__(self, cursor: LogCursor | None = None) -> None:
        self._recent: OrderedDict[int, int] = OrderedDict()
        self._floor = -1
        self._newest, self._last = -1, -1
        self._newest_text = ""
        start = nanoseconds_of(cursor.time.encode()) if cursor is not None else None
        if cursor is not None and start is not None:
            self._recent[start] = cursor.count
            self._floor = self._newest = self._last = start
            self._newest_text = cursor.time

    @property
    def cursor(self) -> LogCursor:
        """Where a successor goes on."""
        return LogCursor(self._newest_text, self._recent.get(self._newest, 0)) if self._newest_text else LogCursor()

    @property
    def since_time(self) -> str:
        """``sinceTime`` of the next stream: the second that holds the last line and what may still come from just before it."""
        if self._last < 0:
            return ""
        seconds = max(0, self._last - DISORDER) // _SECOND
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def replay(self) -> Replay:
        """The judge of one new stream."""
        return Replay(self, dict(self._recent), is_over=self._newest < 0)

    def is_forgotten(self, moment: int) -> bool:
        """Whether a line of this time is older than what is remembered exactly."""
        return moment < self._floor

    def accept(self, line: StampedLine) -> None:
        """A line that ``Replay.news`` gave is carried."""
        moment = -1 if line.nanoseconds is None else line.nanoseconds
        self._recent[moment] = self._recent.get(moment, 0) + 1
        self._last = moment
        if moment >= self._newest and line.time:
            self._newest, self._newest_text = moment, line.time
        if len(self._recent) > REMEMBERED_TIMES:
            forgotten, _ = self._recent.popitem(last=False)
            self._floor = max(self._floor, forgotten + 1)


class Replay:
    """Tells, line by line, what of a stream is repetition. Streams keep the order of the log: once new, always new."""

    def __init__(self, position: LogPosition, unmatched: dict[int, int], *, is_over: bool) -> None:
        self._position, self._unmatched, self._is_over = position, unmatched, is_over
        self._moment = -1

    def news(self, lines: list[StampedLine]) -> list[StampedLine]:
        """Those of the next lines that have not been carried. A line without a time takes that of the line before."""
        return [self._timed(line) for line in lines if self._is_new(line)]

    def _timed(self, line: StampedLine) -> StampedLine:
        return line if line.nanoseconds is not None else StampedLine(self._moment, "", line.text)

    def _is_new(self, line: StampedLine) -> bool:
        if line.nanoseconds is not None:
            self._moment = line.nanoseconds
        if self._is_over:
            return True
        if self._position.is_forgotten(self._moment):
            return False
        left = self._unmatched.get(self._moment, 0)
        if left:
            self._unmatched[self._moment] = left - 1
            return False
        self._is_over = True
        return True
