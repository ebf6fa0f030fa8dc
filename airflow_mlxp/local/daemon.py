"""The platform as a process: runs until SIGTERM or ctrl-C; in the background as ``python -m airflow_mlxp.local.daemon``."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from airflow_mlxp.errors import MLXPError
from airflow_mlxp.local.options import Options
from airflow_mlxp.local.platform import Platform
from airflow_mlxp.local.state import Record, StateFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)


class AlreadyRunningError(MLXPError):
    """Another process runs a platform in this folder."""


async def run(folder: StateFolder, options: Options, *, ready: Callable[[Record], None]) -> None:
    """Run a platform until a signal comes or a part of it fails; ``ready`` is called when it can be used."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    settings = options.settings(folder.path)
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder):
        try:
            async with Platform(settings) as platform:
                record = _record_of(platform)
                folder.write(record)
                ready(record)
                await _until(stop, platform)
        finally:
            folder.clear()


async def _until(stop: asyncio.Event, platform: Platform) -> None:
    stopped = asyncio.create_task(stop.wait(), name="signal")
    broken = asyncio.create_task(platform.wait(), name="platform")
    await asyncio.wait({stopped, broken}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if broken.done():
        broken.result()
    broken.cancel()


def _record_of(platform: Platform) -> Record:
    return Record(
        pid=os.getpid(),
        create_time=psutil.Process().create_time(),
        server=platform.server.url,
        kubeconfig=str(platform.kubeconfig),
        namespaces=tuple(f"p-{project}" for project in platform.settings.projects),
    )


@contextlib.contextmanager
def _locked(folder: StateFolder) -> Iterator[None]:
    """Hold the folder: the system lets go of it however the process ends."""
    with folder.lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"a platform runs in {folder.path} already") from None
        yield


def main() -> None:
    """Entry point of the background process; its output is the log file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    folder = StateFolder(Path(sys.argv[1]))
    options = Options.from_json(folder.options.read_text(encoding="utf-8"))
    try:
        asyncio.run(run(folder, options, ready=lambda record: log.info("ready at %s", record.server)))
    except MLXPError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
