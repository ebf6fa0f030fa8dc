"""The work queue of a controller: one key is never handled twice at the same time, failures come back later and later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_mlxp.local.settings import ControllerSettings

Key = tuple[str, str]


class WorkQueue:
    """Keys to reconcile, each at most once."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._active: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def add(self, key: Key) -> None:
        """Ask for a reconcile now; while one runs, right after it."""
        if key in self._active:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Ask for a reconcile in ``seconds``; the earlier of two requests counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(seconds, 0.0)
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def retry(self, key: Key) -> None:
        """Ask again after a back-off that grows with each failure in a row."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._settings.retry_backoff * 2**failures, self._settings.retry_backoff_max))

    def forget(self, key: Key) -> None:
        """The reconcile went well: the next failure starts with the shortest back-off."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key; ``done`` must follow."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._active.add(key)
        return key

    def done(self, key: Key) -> None:
        """The reconcile of the key has ended."""
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel what is planned."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fire(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)
