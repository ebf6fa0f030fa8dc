"""A real `airflow standalone` for tests: the demo's own helper, with the folders and settings that tests need."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "demo"))

from standalone import Airflow, AirflowAPI

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["Airflow", "AirflowAPI", "running_airflow", "text_of", "until"]


@asynccontextmanager
async def running_airflow(home: Path, dags: Path, env: dict[str, str]) -> AsyncIterator[AirflowAPI]:
    """Start Airflow, log in, and stop it with everything that it started."""
    airflow = Airflow.launch(home, dags=dags, env=env)
    try:
        await airflow.ready()
        async with AirflowAPI(airflow) as api:
            yield api
    finally:
        await asyncio.to_thread(airflow.stop)


async def until(condition: Callable[[], Awaitable[Any]], *, seconds: float, what: str) -> Any:
    """Poll a condition until it is true; its value. AssertionError names what did not come."""
    end = time.monotonic() + seconds
    while True:
        value = await condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        await asyncio.sleep(0.2)


def text_of(entries: list[dict[str, Any]]) -> str:
    """A task's log as one text."""
    return "\n".join(str(entry.get("event", "")) for entry in entries)
