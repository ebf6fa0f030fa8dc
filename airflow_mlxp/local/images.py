"""What an image name means on a node without a container engine: folders put first on PATH, and environment variables."""

from __future__ import annotations

import fnmatch
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from airflow_mlxp.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEYS = frozenset({"name", "path", "env", "clean_env", "command"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One row of the table.

    ``name`` is a shell pattern for image references (``registry.example/torch:*``), ``path`` the folders that come first on
    PATH, ``env`` variables below the container's own, ``command`` the entrypoint for containers that give none. ``clean_env``
    drops the caller's VIRTUAL_ENV and PYTHON* variables, for an interpreter that must not see the caller's packages.
    """

    name: str
    path: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    clean_env: bool = False
    command: tuple[str, ...] = ()

    def environment(self) -> dict[str, str]:
        """The environment that a container of this image starts from."""
        base = dict(os.environ)
        if self.clean_env:
            base = {key: value for key, value in base.items() if key != "VIRTUAL_ENV" and not key.startswith("PYTHON")}
        # Last on PATH: `python` is there even when the caller's shell has only python3.
        folders = [*map(str, self.path), base.get("PATH", os.defpath), str(Path(sys.executable).parent)]
        return {**base, "PATH": os.pathsep.join(folders), **self.env}


class ImageTable:
    """Rows in order; the first whose pattern fits counts. An image without a row runs in the caller's environment."""

    def __init__(self, images: Iterable[Image] = ()) -> None:
        self._images = tuple(images)

    @classmethod
    def from_file(cls, path: Path) -> ImageTable:
        """Read a YAML or JSON file: a list of rows, or a mapping with the list under ``images``."""
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        rows = content.get("images") if isinstance(content, dict) else content
        if not isinstance(rows, list):
            raise InvalidArgument(
                "image table", str(path), expected="a list of images, or a mapping with the list under 'images'"
            )
        return cls(_row(row) for row in rows)

    def extended(self, images: Iterable[Image]) -> ImageTable:
        """A table in which ``images`` come before the rows of this one."""
        return ImageTable((*images, *self._images))

    def find(self, reference: str) -> Image:
        """The row for an image reference."""
        return next((image for image in self._images if fnmatch.fnmatchcase(reference, image.name)), Image(name=reference))


def parse_option(text: str) -> Image:
    """``NAME=FOLDER`` of the command line: NAME is a pattern, FOLDER comes first on PATH (``FOLDER/bin`` when it has one)."""
    name, separator, folder = text.partition("=")
    if not separator or not name or not folder:
        raise InvalidArgument("--image", text, expected="NAME=FOLDER, for example 'registry.example/torch:*=/opt/torch'")
    root = Path(folder).expanduser().absolute()
    if not root.is_dir():
        raise InvalidArgument("--image", text, expected="a folder that exists", fix=f"create {root} or name another one")
    return Image(name=name, path=(root / "bin",) if (root / "bin").is_dir() else (root,))


def pull_error(reference: str) -> str | None:
    """Why the image can't be pulled: registries under ``.invalid`` (RFC 2606) never answer. None: it counts as present."""
    host, separator, rest = reference.partition("/")
    if not separator or not host.partition(":")[0].endswith(".invalid"):
        return None
    name, _, tag = rest.partition(":")
    url = f"https://{host}/v2/{name}/manifests/{tag or 'latest'}"
    lookup = f'failed to do request: Head "{url}": dial tcp: lookup {host.partition(":")[0]}: no such host'
    return f'failed to pull and unpack image "{reference}": failed to resolve reference "{reference}": {lookup}'


def _row(row: Any) -> Image:
    if not isinstance(row, dict) or "name" not in row or not row.keys() <= _KEYS:
        raise InvalidArgument(
            "image table", row, expected=f"a mapping with 'name' and some of {', '.join(sorted(_KEYS - {'name'}))}"
        )
    folders = row.get("path") or []
    return Image(
        name=str(row["name"]),
        path=tuple(Path(folder).expanduser() for folder in ([folders] if isinstance(folders, str) else folders)),
        env={str(key): str(value) for key, value in (row.get("env") or {}).items()},
        clean_env=bool(row.get("clean_env", False)),
        command=tuple(map(str, row.get("command") or ())),
    )
