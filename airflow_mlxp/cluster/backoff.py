"""The pauses between repetitions: exponential, jittered, capped, obedient to Retry-After, reset by progress. Pure."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_DOUBLINGS = 32
"""Where the exponent stops: by then every sensible cap is reached."""


class Backoff:
    """Pauses in seconds: the n-th lies between half of and the whole ``min(maximum, initial * 2**n)``.

    Half is kept so that a struggling server always gets a pause; the other half is random so that many clients which
    failed together don't come back together. ``random_unit`` gives numbers in [0, 1).
    """

    def __init__(self, *, initial: float = 0.25, maximum: float = 8.0, random_unit: Callable[[], float] = random.random) -> None:
        self._initial, self._maximum, self._random_unit = initial, maximum, random_unit
        self.failures = 0
        """Consecutive failures: calls of ``next`` since the last ``reset``."""

    def next(self, retry_after: float | None = None) -> float:
        """The next pause; never shorter than ``retry_after``, and spread a little beyond it."""
        ceiling = min(self._maximum, self._initial * 2.0 ** min(self.failures, _DOUBLINGS))
        self.failures += 1
        pause = ceiling * (1 + self._random_unit()) / 2
        if retry_after is None:
            return pause
        return max(pause, retry_after + min(1.0, ceiling) * self._random_unit())

    def reset(self) -> None:
        """Start anew after progress, so that only consecutive failures count."""
        self.failures = 0
