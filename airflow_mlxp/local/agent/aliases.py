"""Paths without blanks for folders whose own path has them: shell scripts name a mount path without quotes."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

_PLAIN = re.compile(r"[\w@%+=:,.-]*")
"""A path component that no shell splits or expands."""


class Aliases:
    """Symbolic links in a private temporary folder, made when they are needed."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._links: dict[Path, Path] = {}

    def plain(self, path: Path) -> Path:
        """The path itself, or one to the same place that a shell takes as one word."""
        odd = [number for number, part in enumerate(path.parts[1:], start=1) if not _PLAIN.fullmatch(part)]
        if not odd:
            return path
        head = Path(*path.parts[: odd[-1] + 1])
        return self._link(head).joinpath(*path.parts[odd[-1] + 1 :])

    def close(self) -> None:
        """Remove the links."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
            self._links.clear()

    def _link(self, target: Path) -> Path:
        if target not in self._links:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="airflow-mlxp-")
            link = Path(self._folder.name, str(len(self._links)))
            link.symlink_to(target)
            self._links[target] = link
        return self._links[target]
