"""Start and stop the platform in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil

from airflow_mlxp.errors import MLXPError
from airflow_mlxp.local.agent import process

if TYPE_CHECKING:
    from airflow_mlxp.local.options import Options
    from airflow_mlxp.local.state import Record, StateFolder

START_TIMEOUT = 60.0
"""Seconds for the platform to come up; it takes about one."""

STOP_TIMEOUT = 30.0
"""Seconds for the platform to stop by itself before it is killed; ending all pods takes about one."""

_POLL = 0.05


class StartFailedError(MLXPError):
    """The platform's process ended, or wasn't ready in time; the text holds the end of its log."""


def start(folder: StateFolder, options: Options) -> Record:
    """Start the platform and wait until it can be used; the caller has made sure that none runs."""
    options.settings(folder.path)  # says what is wrong before anything is started
    folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.options.write_text(options.to_json(), encoding="utf-8")
    with folder.log.open("wb") as log:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "airflow_mlxp.local.daemon", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    deadline = time.monotonic() + START_TIMEOUT
    try:
        while time.monotonic() < deadline:
            record = folder.running()
            if record is not None:
                return record
            if child.poll() is not None:
                raise StartFailedError(f"the platform ended with exit code {child.returncode}; {_log_end(folder)}")
            time.sleep(_POLL)
    except KeyboardInterrupt:
        _end(psutil.Process(child.pid))
        raise
    _end(psutil.Process(child.pid))
    raise StartFailedError(f"the platform wasn't ready after {START_TIMEOUT:.0f} s; {_log_end(folder)}")


def stop(folder: StateFolder) -> bool:
    """Stop the platform of the folder and everything that its pods run; whether there was one."""
    record = folder.running()
    if record is not None:
        _end(psutil.Process(record.pid))
    process.kill_leftovers(folder.processes)
    folder.clear()
    return record is not None


def _end(target: psutil.Process) -> None:
    try:
        target.terminate()
        target.wait(STOP_TIMEOUT)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        target.kill()


def _log_end(folder: StateFolder) -> str:
    return f"end of {folder.log}:\n{folder.log_end()}"
