"""Mount paths in commands, arguments and environment become the folders that hold the volumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class PathMap:
    """Replaces whole leading path components: ``/data`` in ``/data/x``, ``--out=/data`` and ``a:/data``, not in ``/database``."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = {path.rstrip("/"): folder for path, folder in folders.items() if path.rstrip("/")}
        names = sorted(self._folders, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, names))
        # Not inside a longer path, name or URL before it, and not within a longer component after it.
        self._pattern = re.compile(rf"(?<![\w./~-])(?:{alternatives})(?![\w.-])") if names else None

    def translate(self, text: str) -> str:
        """The text with each mount path replaced by its folder."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._folders[match.group()], text)
