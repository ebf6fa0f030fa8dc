"""Lines of a log that name a known trouble of the platform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_mlxp.diagnosis import tails
from airflow_mlxp.diagnosis.conclude import conclude

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mlxp.diagnosis.failures import Failure
    from airflow_mlxp.models import Diagnosis


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pattern:
    category: str
    line: re.Pattern[str]
    words: str
    anywhere: bool = False
    """Whether an ordinary line counts too when the log shows exceptions: warnings of libraries mostly mean nothing."""
    besides: str = ""
    """What another line must hold, in lower case."""


def _pattern(category: str, line: str, words: str, *, anywhere: bool = False, besides: str = "") -> _Pattern:
    compiled = re.compile(line, re.IGNORECASE)
    return _Pattern(category=category, line=compiled, words=words, anywhere=anywhere, besides=besides)


_PATTERNS: tuple[_Pattern, ...] = (
    _pattern("cuda_out_of_memory", r"CUDA out of memory|cuda\.OutOfMemoryError", "ran out of GPU memory"),
    _pattern(
        "shared_memory",
        r"DataLoader worker .*(?:exited unexpectedly|killed by signal: Bus error)|insufficient shared memory \(shm\)",
        "lost a DataLoader worker, as happens when /dev/shm is too small",
    ),
    _pattern(
        "cuda_driver",
        r"CUDA driver version is insufficient|CUDA initialization|forward compatibility|no kernel image"
        r"|NVIDIA driver on your system is too old",
        "could not use CUDA with the node's driver",
    ),
    _pattern(
        "memlock",
        r"ibv_reg_mr|RLIMIT_MEMLOCK|(?:NCCL|IB).*Cannot allocate memory",
        "could not lock memory for InfiniBand",
        anywhere=True,
    ),
    _pattern("open_files", r"Too many open files", "ran out of file descriptors in gloo", besides="gloo"),
    _pattern("connection_reset", r"Connection reset by peer", "lost the connection to a peer"),
    _pattern(
        "nccl",
        r"NCCL error|nccl(?:System|Remote|Internal|UnhandledCuda)Error|collective operation timeout",
        "failed in NCCL",
    ),
)
"""Guide: debugging and the cautions for distributed training; the wording of PyTorch, NCCL and CUDA."""


def known_pattern(failure: Failure) -> Diagnosis | None:
    """The first pattern that a line of the log fits; exceptions are looked at first, ordinary lines when there is none."""
    if failure.source != "container":
        return None
    exceptions = [raised.exception for raised in tails.tracebacks(failure.tail) if not raised.is_wrapper]
    for pattern in _PATTERNS:
        lines = failure.tail if pattern.anywhere or not exceptions else exceptions
        line = _matching(pattern, lines, failure.tail)
        if line:
            sentence = f"{failure.who} {pattern.words} (exit code {failure.exit_code})"
            return conclude(pattern.category, sentence, failure=failure, evidence=[line])
    return None


def _matching(pattern: _Pattern, lines: Sequence[str], tail: Sequence[str]) -> str:
    if pattern.besides and not any(pattern.besides in line.lower() for line in tail):
        return ""
    return next((line for line in lines if pattern.line.search(line)), "")
