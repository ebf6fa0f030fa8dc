"""Follow the log of one container: every line once and in order, across cut streams and restarts; what is lost is told.

Trouble with logs never decides the result of a workload: nothing here raises because of a server's answer.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

from airflow_mlxp import errors
from airflow_mlxp.cluster.backoff import Backoff
from airflow_mlxp.cluster.log_cursor import LogCursor, LogPosition, StampedLine, parse
from airflow_mlxp.cluster.log_pump import LinePump
from airflow_mlxp.models import LogGap, LogLine, LogLines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from airflow_mlxp.cluster.rest import Client

__all__ = ["LogCursor", "LogFollower", "LogLimits", "tail"]

_LOST_LOG = (b"unable to retrieve container logs for", b"failed to try resolving symlinks")
"""How a kubelet begins the line that it sends, with status 200, in place of a log that is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLimits:
    """Waits of one follower, in seconds."""

    look_interval: float = 1.0
    """How often a silent stream looks whether its container has ended."""
    first_delay: float = 0.25
    """First pause before a stream is opened anew; doubles while nothing comes."""
    longest_delay: float = 5.0
    """Longest such pause: shorter than a kubelet's pause between restarts, so that no instance is missed."""
    failure_delay: float = 30.0
    """Longest pause after failures."""
    end_quiet: float = 3.0
    """How long an open stream may be silent after its container has ended, before the log is read without following."""
    end_grace: float = 60.0
    """How long the log may be read after its container has ended; the rest is a gap, which a worker can fill."""


DEFAULT_LIMITS = LogLimits()


class _End(Enum):
    """How a stream ended."""

    WELL = auto()
    BROKEN = auto()
    """Worth another try."""
    SILENT = auto()
    """The container has ended, but the stream has not."""
    WAITING = auto()
    """The container has not started."""
    GONE = auto()
    """The pod exists no longer."""
    REFUSED = auto()
    """Another try can't help."""
    LATE = auto()
    """The time for reading is over."""


class LogFollower:
    """The log of one container of one pod, from ``cursor`` (the beginning without one) to its end.

    Start it when the container has started: until then each look costs a request that is refused.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        pod: str,
        container: str,
        replica: str,
        cursor: LogCursor | None = None,
        limits: LogLimits = DEFAULT_LIMITS,
    ) -> None:
        self.gaps: list[LogGap] = []
        """What could not be carried, in order."""
        self._client, self._limits = client, limits
        self._namespace, self._pod, self._container, self._replica = namespace, pod, container, replica
        self._position = LogPosition(cursor)
        self._is_reopened = cursor is not None and bool(cursor.time)
        self._read_well: bool | None = None
        self._restarts: Callable[[], int] | None = None
        self._exists: Callable[[], bool] | None = None
        self._restarts_seen: int | None = None
        self._reason = ""
        self._end = _End.WELL

    @property
    def cursor(self) -> LogCursor:
        """Where a successor goes on: behind the last lines that ``batches`` has given."""
        return self._position.cursor

    async def batches(
        self,
        is_running: Callable[[], bool],
        *,
        restarts: Callable[[], int] | None = None,
        exists: Callable[[], bool] | None = None,
    ) -> AsyncGenerator[LogLines, None]:
        """The lines, joined as they arrive; ends when the container has ended and its log is read, or can't be.

        Args:
            is_running: whether more output may come: true until the container has ended for good. Called at least each
                second.
            restarts: ``restartCount`` of the container, if known: tells instances whose log nobody could read, and saves
                requests.
            exists: whether the pod is still there, if known: logs are asked for by name, and another pod may have it by now.
        """
        self._restarts, self._exists = restarts, exists
        quiet = Backoff(initial=self._limits.first_delay, maximum=self._limits.longest_delay)
        failing = Backoff(initial=self._limits.first_delay, maximum=self._limits.failure_delay)
        watch_end = _EndClock(is_running, self._limits)
        while True:
            was_running = watch_end.is_running()
            async with aclosing(self._attempt(watch_end, follow=was_running)) as batches:
                async for batch in batches:
                    quiet.reset()
                    failing.reset()
                    yield batch
            if self._is_done(watch_end, was_running=was_running):
                return
            self._is_reopened |= self._end is not _End.WAITING
            if self._end is _End.SILENT:
                continue
            pause = (failing if self._end is _End.BROKEN else quiet).next()
            await watch_end.sleep(pause)

    def _is_done(self, clock: _EndClock, *, was_running: bool) -> bool:
        """Whether nothing more can be read; notes what is missing then."""
        if self._end is _End.WELL:
            self._read_well = True
            return not was_running
        if self._end is _End.WAITING and was_running:
            return False
        if self._end in {_End.WAITING, _End.GONE, _End.REFUSED}:
            # A container that never started has no log, and a pod may go once its log has come to a good end.
            is_good = self._read_well is not False if self._end is _End.WAITING else bool(self._read_well)
            if self._end is _End.REFUSED or not is_good:
                self._note_gap(self._reason)
            return True
        if self._end is _End.BROKEN:
            self._read_well = False
        if clock.is_over():
            self._note_gap(self._reason, is_open=True)
            return True
        return False

    async def _attempt(self, clock: _EndClock, *, follow: bool) -> AsyncGenerator[LogLines, None]:
        """One stream of the present instance, and before its first new line what is left of the instance before."""
        replay, ask_previous = self._position.replay(), self._may_have_restarted()
        async with aclosing(self._stream(clock, follow=follow)) as batches:
            async for batch in batches:
                news = replay.news(batch)
                if news and ask_previous:
                    ask_previous, has_restarted = False, False
                    async with aclosing(self._previous(clock)) as earlier:
                        async for lines in earlier:
                            has_restarted = True
                            yield lines
                    if has_restarted:
                        # Once more between the two calls, perhaps: then both have brought the same lines.
                        replay = self._position.replay()
                        news = replay.news(news)
                self._see_restarts()
                if news:
                    yield self._carried(news)
        if ask_previous and not follow and self._end is _End.WELL and self._is_reopened:
            async with aclosing(self._previous(clock)) as earlier:
                async for lines in earlier:
                    yield lines

    async def _previous(self, clock: _EndClock) -> AsyncGenerator[LogLines, None]:
        """What has not been carried of the instance before; that there is none is no gap."""
        self._note_missed_instances()
        end = self._end
        replay = self._position.replay()
        async with aclosing(self._stream(clock, follow=False, previous=True)) as batches:
            async for batch in batches:
                if news := replay.news(batch):
                    yield self._carried(news)
        if self._end in {_End.BROKEN, _End.LATE}:
            self._note_gap(f"the log before the restart could not be read: {self._reason}")
        self._end = end

    async def _stream(self, clock: _EndClock, *, follow: bool, previous: bool = False) -> AsyncGenerator[list[StampedLine], None]:
        """One call; leaves in ``_end`` and ``_reason`` how it ended."""
        if self._exists is not None and not self._exists():
            self._end, self._reason = _End.GONE, "the pod was deleted before its log was read to the end"
            return
        call = self._client.logs(
            self._namespace,
            self._pod,
            self._container,
            follow=follow,
            since_time=self._position.since_time,
            previous=previous,
        )
        name = f"log of {self._pod}/{self._container}"
        self._end, self._reason = _End.WELL, ""
        try:
            async with LinePump(cast("AsyncGenerator[bytes, None]", call), name=name) as pump:
                silent_since: float | None = None
                while (raw := await pump.take(self._limits.look_interval)) is not None:
                    if clock.is_over():
                        self._end, self._reason = (
                            _End.LATE,
                            f"not read within {self._limits.end_grace:g} s of the container's end",
                        )
                        return
                    if raw:
                        silent_since = None
                        yield self._parsed(raw)
                    elif follow and not clock.is_running():
                        silent_since = clock.now() if silent_since is None else silent_since
                        if clock.now() - silent_since >= self._limits.end_quiet:
                            self._end, self._reason = _End.SILENT, "the stream did not end with the container"
                            return
        except errors.MLXPError as error:
            self._end, self._reason = _end_of(error), str(error)

    def _parsed(self, raw: list[bytes]) -> list[StampedLine]:
        lines = [parse(line) for line in raw]
        for lost in [line for line in lines if line.nanoseconds is None and line.text.startswith(_LOST_LOG)]:
            lines.remove(lost)
            self._note_gap(lost.text.decode(errors="replace"))
        return lines

    def _carried(self, lines: list[StampedLine]) -> LogLines:
        for line in lines:
            self._position.accept(line)
        texts = tuple(_log_line(line) for line in lines)
        return LogLines(replica=self._replica, pod=self._pod, container=self._container, lines=texts)

    def _may_have_restarted(self) -> bool:
        """Whether there may be a previous instance with unread lines. The count comes late, so a reopened stream always asks."""
        return self._is_reopened or self._restarts is None or self._restarts() > 0

    def _see_restarts(self) -> None:
        if self._restarts is not None:
            self._restarts_seen = max(self._restarts_seen or 0, self._restarts())

    def _note_missed_instances(self) -> None:
        if self._restarts is None:
            return
        now = self._restarts()
        known = self._restarts_seen if self._restarts_seen is not None else (now if self._is_reopened else 0)
        if now - known > 1:
            self._note_gap(f"the container was restarted {now - known} times meanwhile; only the last two instances have logs")
        self._restarts_seen = now

    def _note_gap(self, reason: str, *, is_open: bool = False) -> None:
        gap = LogGap(
            replica=self._replica,
            pod=self._pod,
            container=self._container,
            since=self.cursor.time,
            count=self.cursor.count,
            reason=reason,
            is_open=is_open,
        )
        if gap not in self.gaps:
            self.gaps.append(gap)


class _EndClock:
    """When the container's end was noticed, and how long ago."""

    def __init__(self, is_running: Callable[[], bool], limits: LogLimits) -> None:
        self._is_running, self._limits = is_running, limits
        self._ended_at: float | None = None
        self.now = asyncio.get_running_loop().time

    def is_running(self) -> bool:
        if self._ended_at is None and not self._is_running():
            self._ended_at = self.now()
        return self._ended_at is None

    def is_over(self) -> bool:
        return not self.is_running() and self._ended_at is not None and self.now() - self._ended_at >= self._limits.end_grace

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not past the end of the container, nor past the grace after it."""
        until = self.now() + seconds
        was_running = self.is_running()
        while (left := until - self.now()) > 0 and self.is_running() == was_running and not self.is_over():  # noqa: ASYNC110  # no event tells the end
            await asyncio.sleep(min(left, self._limits.look_interval))


def _end_of(error: errors.MLXPError) -> _End:
    # A credential is renewed sooner or later; the watch ends what it can't help.
    if isinstance(error, (errors.ClusterUnreachable, errors.ServerFailure, errors.TooManyRequests, errors.Unauthorized)):
        return _End.BROKEN
    if isinstance(error, errors.NotFound):
        return _End.GONE
    return _End.WAITING if isinstance(error, errors.BadRequest) else _End.REFUSED


def _log_line(line: StampedLine) -> LogLine:
    return LogLine(time=line.time, text=line.text.decode("utf-8", errors="replace"))


async def tail(
    client: Client, namespace: str, pod: str, container: str, *, lines: int, previous: bool = False
) -> tuple[LogLine, ...]:
    """The last lines of a container's log, of the instance before the last restart with ``previous``.

    Evidence, as good as it gets: what came before the server refused or the stream broke, so possibly nothing.
    """
    found: list[LogLine] = []
    call = client.logs(namespace, pod, container, follow=False, previous=previous, tail_lines=lines)
    try:
        async with aclosing(cast("AsyncGenerator[bytes, None]", call)) as stream:
            async for line in stream:
                found.append(_log_line(parse(line)))  # noqa: PERF401  # a comprehension would lose what came before an error
    except errors.MLXPError:
        pass
    return tuple(found)
