"""The processes of one container: started in a session of their own, found again wherever they hide, killed together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from airflow_mlxp.local.agent.logs import LogFile

MARK = "AIRFLOW_MLXP_CONTAINER"
"""Variable that every process of a container inherits: it finds those that left the session (torchrun's workers do)."""

_KILL_ROUNDS = 100
_KILL_PAUSE = 0.02
"""Seconds between two rounds of killing what is still there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    folder: Path


class ContainerProcess:
    """A running container."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str, log: LogFile, record: Path) -> None:
        self._process, self._mark, self._log, self._record = process, mark, log, record
        self._pumps = [
            asyncio.create_task(_pump(reader, log, name), name=f"log {mark} {name}")
            for reader, name in ((process.stdout, "stdout"), (process.stderr, "stderr"))
            if reader is not None
        ]

    @classmethod
    async def start(cls, command: Command, *, mark: str, log: LogFile, records: Path) -> ContainerProcess:
        """Start it; OSError when the program can't be run. ``records`` remembers it for ``kill_leftovers``."""
        creating = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command.argv,
                env={**command.env, MARK: mark},
                cwd=command.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )
        try:
            # Cancelled before its pipes are connected, Python 3.11 waits for ever: so it is let finish, and then ended.
            process = await asyncio.shield(creating)
        except asyncio.CancelledError:
            await asyncio.wait([creating])
            if creating.exception() is None:
                await cls(creating.result(), mark, log, _remember(records, creating.result().pid, mark)).aclose()
            raise
        return cls(process, mark, log, _remember(records, process.pid, mark))

    async def wait(self, drain_timeout: float) -> int:
        """The exit code (128 + signal for a killed one), once everything it left behind is dead and its output is written."""
        code = await self._process.wait()
        await self.aclose(drain_timeout)
        return code if code >= 0 else 128 - code

    async def aclose(self, drain_timeout: float = 0.0) -> None:
        """Kill what still runs and finish the log."""
        await self.kill()
        await self._process.wait()
        _, late = await asyncio.wait(self._pumps, timeout=drain_timeout)
        for pump in late:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self._log.close()
        self._record.unlink(missing_ok=True)

    def terminate(self) -> None:
        """SIGTERM to the process group: the program may save its work."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """SIGKILL to all processes of the container."""
        await asyncio.to_thread(kill_marked, self._mark, self._process.pid)

    async def memory(self) -> int:
        """Resident bytes of the process tree."""
        return await asyncio.to_thread(_resident, self._process.pid)


def kill_marked(mark: str, session: int) -> None:
    """Kill all processes of the session or with the mark, again until there is none: they may be forking meanwhile."""
    for _ in range(_KILL_ROUNDS):
        found = [process for process in psutil.process_iter() if _belongs(process, mark, session)]
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if not found:
            return
        # Not psutil.wait_procs: it would take the exit code of our own child from the event loop.
        time.sleep(_KILL_PAUSE)


def kill_leftovers(records: Path) -> list[int]:
    """Kill containers that an agent which died left running; the ids of their first processes."""
    killed = []
    for path in records.glob("*.json") if records.is_dir() else ():
        record = json.loads(path.read_text(encoding="utf-8"))
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(record["pid"]).create_time() == record["create_time"]:
                killed.append(record["pid"])
        kill_marked(record["mark"], record["pid"] if record["pid"] in killed else -1)
        path.unlink(missing_ok=True)
    return killed


def _belongs(process: psutil.Process, mark: str, session: int) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return os.getsid(process.pid) == session or process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


def _resident(pid: int) -> int:
    total = 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def _remember(records: Path, pid: int, mark: str) -> Path:
    records.mkdir(parents=True, exist_ok=True)
    path = records / f"{mark}.json"
    created = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        created = psutil.Process(pid).create_time()
    path.write_text(json.dumps({"pid": pid, "create_time": created, "mark": mark}), encoding="utf-8")
    return path


async def _pump(reader: asyncio.StreamReader, log: LogFile, name: str) -> None:
    stream = log.stream(name)
    try:
        while data := await reader.read(64 * 1024):
            stream.feed(data)
    finally:
        stream.end()
