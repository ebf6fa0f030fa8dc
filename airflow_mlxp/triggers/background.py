"""Tasks that outlive the trigger which started them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

_running: set[asyncio.Task[Any]] = set()


def in_background(work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Start a task that is held here until it ends: an event loop holds its tasks weakly."""
    task = asyncio.create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
