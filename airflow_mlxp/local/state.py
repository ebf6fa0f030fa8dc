"""The folder of a platform that runs in the background: which process it is, and where its files lie."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Written by the platform's process once it is ready."""

    pid: int
    create_time: float
    server: str
    kubeconfig: str
    namespaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The files of one platform."""

    path: Path

    @property
    def log(self) -> Path:
        """Output of the platform's process."""
        return self.path / "platform.log"

    @property
    def options(self) -> Path:
        """What it was started with."""
        return self.path / "options.json"

    @property
    def lock(self) -> Path:
        """Held by the platform's process as long as it lives."""
        return self.path / "lock"

    @property
    def processes(self) -> Path:
        """The node agent's records of what it runs."""
        return self.path / "processes"

    @property
    def _record(self) -> Path:
        return self.path / "platform.json"

    def write(self, record: Record) -> None:
        """Say that the platform is ready; whoever waits for the file finds it whole."""
        part = self._record.with_suffix(".part")
        part.write_text(json.dumps(asdict(record), indent=2), encoding="utf-8")
        part.replace(self._record)

    def clear(self) -> None:
        """Say that no platform runs."""
        self._record.unlink(missing_ok=True)

    def running(self) -> Record | None:
        """The platform that is up here; a record whose process is gone, or whose id another process has now, is none."""
        try:
            values = json.loads(self._record.read_text(encoding="utf-8"))
            record = Record(**{**values, "namespaces": tuple(values["namespaces"])})
            process = psutil.Process(record.pid)
            alive = process.create_time() == record.create_time and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, TypeError, KeyError, psutil.Error):
            return None
        return record if alive else None

    def log_end(self, lines: int = 20) -> str:
        """The last lines of the log."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def default_folder() -> Path:
    """``$XDG_STATE_HOME/airflow-mlxp/local``, or the same under ``~/.local/state``."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "airflow-mlxp" / "local"
