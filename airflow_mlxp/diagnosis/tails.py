"""Finding, in the last lines of a log, the exception that ended the program: Python's tracebacks and torchrun's report."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PREFIX = re.compile(r"^\[(?P<role>[A-Za-z_]+)(?P<rank>\d+)\]: ?")
"""``[rank3]: `` is PyTorch's own (global rank), ``[default0]:`` torchrun's with ``--tee`` (local rank)."""
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File ".*", line \d+')
_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?::\s|:?$)")
_BARE_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?::\s.*|:?)$")
_WRAPPERS = ("ChildFailedError", "SignalException", "CalledProcessError")
"""What launchers raise because a process of theirs failed: never the reason."""
_VICTIM = re.compile(
    r"connection (?:reset|closed|refused)|broken pipe|remote process|DistNetworkError|DistStoreError|ncclRemoteError"
    r"|socket timeout|timed out waiting|rendezvous",
    re.IGNORECASE,
)
"""What the others say when one process of a group has died."""
_ROOT_CAUSE = "Root Cause (first observed failure):"
_REPORT_START = "Failures:"
_REPORT_FIELD = re.compile(r"^\s*(?P<key>time|host|rank|exitcode)\s*:\s*(?P<value>\S+)")
_NOISE = re.compile(
    r"^\s*$|^[=-]{4,}$|^[WEI]\d{4} .*(?:torch|elastic)|^(?:WARNING|ERROR|INFO):torch\.distributed"
    r"|^\s*(?:time|host|rank|exitcode|error_file|traceback|msg)\s*:|^\[\d+\]:$|^Failures:|FAILED$|^\s+<NO_OTHER_FAILURES>"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Raised:
    """One traceback of a log."""

    exception: str
    """Its last line: type and message."""
    frame: str = ""
    """The innermost ``File "...", line ...``."""
    rank: str = ""
    """Rank of the line's prefix, when it had one."""

    @property
    def is_wrapper(self) -> bool:
        """Whether a launcher raised it because a process that it started had failed."""
        return self.exception.partition(":")[0].endswith(_WRAPPERS)

    @property
    def is_victim(self) -> bool:
        """Whether it reads like the death of another process of the group."""
        return bool(_VICTIM.search(self.exception))


@dataclass(frozen=True, kw_only=True, slots=True)
class RootCause:
    """The first process that failed, by torchrun's own report."""

    rank: str = ""
    host: str = ""
    exit_code: int | None = None
    is_certain: bool = True
    """False when another process failed in the same second: torchrun then names the lowest rank."""


def tracebacks(lines: Iterable[str]) -> list[Raised]:
    """Every traceback in the order of its end; lines of ranks that mix are told apart by their prefix."""
    streams: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        prefix = _PREFIX.match(line)
        rank = prefix["rank"] if prefix else ""
        streams[rank].append(line[prefix.end() :] if prefix else line)
    return [raised for rank, stream in streams.items() for raised in _tracebacks(stream, rank)]


def root_cause(lines: Sequence[str]) -> RootCause | None:
    """Report of torchrun in the log; None when there is none."""
    end = _last(lines, _ROOT_CAUSE)
    if end is None:
        return None
    begin = _last(lines[:end], _REPORT_START) or 0
    values = dict(reversed(_fields(takewhile(lambda line: not line.startswith(("===", "---")), lines[end + 1 :]))))
    others = [value for key, value in _fields(lines[begin:end]) if key == "time"]
    code = values.get("exitcode", "")
    return RootCause(
        rank=values.get("rank", ""),
        host=values.get("host", ""),
        exit_code=int(code) if re.fullmatch(r"-?\d{1,9}", code) else None,
        is_certain=values.get("time") not in others,
    )


def raised_in(lines: Sequence[str]) -> Raised | None:
    """The exception that ended the program, as far as the log tells; None when it shows none."""
    found = [raised for raised in tracebacks(lines) if not raised.is_wrapper]
    if not found:
        bare = [line for line in lines if _BARE_EXCEPTION.match(line)]
        found = [raised for line in bare if not (raised := Raised(exception=line)).is_wrapper]
    report = root_cause(lines)
    of_root = [raised for raised in found if report and report.is_certain and raised.rank == report.rank]
    for candidates in (of_root, [raised for raised in found if not raised.is_victim], found):
        if candidates:
            return candidates[-1]
    return None


def last_lines(lines: Sequence[str], limit: int = 3) -> list[str]:
    """The last lines that say something: without blank lines and without a launcher's own traceback and report."""
    report = _last(lines, _ROOT_CAUSE)
    own = lines[: _last(lines[:report], _HEADER)] if report is not None else lines
    return [line for line in own if not _NOISE.search(line)][-limit:]


def _last(lines: Sequence[str], text: str) -> int | None:
    return next((index for index in reversed(range(len(lines))) if text in lines[index]), None)


def _fields(lines: Iterable[str]) -> list[tuple[str, str]]:
    found = (_REPORT_FIELD.match(_PREFIX.sub("", line)) for line in lines)
    return [(match["key"], match["value"]) for match in found if match]


def _tracebacks(lines: Sequence[str], rank: str) -> Iterable[Raised]:
    frame, inside = "", False
    for line in lines:
        if line.rstrip().endswith(_HEADER):
            frame, inside = "", True
        elif inside and _FRAME.match(line):
            frame = line
        elif inside and line and not line[0].isspace():
            inside = False
            if _EXCEPTION.match(line):
                yield Raised(exception=line.rstrip(), frame=frame.strip(), rank=rank)
