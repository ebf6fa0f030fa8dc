"""Read kubeconfig files as kubectl does: a list of files is merged, relative paths belong to the file that holds them.

Source: "Organizing Cluster Access Using kubeconfig Files" of the Kubernetes documentation.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from airflow_mlxp.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Mapping

_Loader: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One named cluster, user or context, and where relative paths in it start."""

    name: str
    fields: Mapping[str, Any] = field(repr=False)
    folder: str
    """Folder of the file that holds it; empty for a kubeconfig given as text."""

    def path(self, key: str) -> str:
        """A field that names a file, made absolute; empty when not set."""
        value = self.fields.get(key)
        if not value:
            return ""
        location = Path(str(value)).expanduser()
        if location.is_absolute():
            return str(location)
        if not self.folder:
            raise AccessError(
                f"kubeconfig: {key} {str(value)!r} of {self.name!r} is relative, which only a kubeconfig file can resolve"
            )
        return os.path.normpath(Path(self.folder) / location)

    def flag(self, key: str) -> bool:
        """A boolean field; false when not set. Text such as "false" is refused rather than taken for true."""
        value = self.fields.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise AccessError(f"kubeconfig: {key} of {self.name!r} is {value!r}; expected true or false")

    def texts(self, key: str) -> tuple[str, ...]:
        """A field that lists texts; empty when not set."""
        return tuple(str(value) for value in self._listed(key, "texts"))

    def mappings(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """A field that lists mappings; empty when not set."""
        values = self._listed(key, "mappings")
        if not all(isinstance(value, dict) for value in values):
            raise AccessError(f"kubeconfig: {key} of {self.name!r}: expected a list of mappings")
        return tuple(values)

    def _listed(self, key: str, what: str) -> list[Any]:
        value = self.fields.get(key) or []
        if not isinstance(value, list):
            raise AccessError(f"kubeconfig: {key} of {self.name!r}: expected a list of {what}")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """What one context of a kubeconfig comes to."""

    cluster: Entry
    user: Entry
    namespace: str
    source: str
    """Where it was read, for messages: ``/home/me/.kube/config, context 'prod'``."""


def default_paths() -> list[Path]:
    """The files that kubectl would read: those of KUBECONFIG, else ``~/.kube/config``."""
    listed = _split(os.environ.get("KUBECONFIG", ""))
    return listed or [Path.home() / ".kube" / "config"]


def load(*, path: str | None = None, content: str | None = None, context: str | None = None) -> Selected:
    """Read ``content``, or the file or list of files ``path``, or kubectl's own default, and select a context.

    Args:
        path: file, or several joined by the path separator; the first that names an entry wins.
        content: the kubeconfig itself as YAML or JSON text; wins over ``path``.
        context: name of the context; default is ``current-context``.

    Raises:
        AccessError: nothing to read, not a kubeconfig, or a name that doesn't exist.
    """
    if content:
        return _select([("kubeconfig text", "", _parse(content, "kubeconfig text"))], context)
    files = _split(path) if path else default_paths()
    existing = [file for file in files if file.is_file()]
    if not existing:
        names = ", ".join(map(str, files))
        raise AccessError(
            f"kubeconfig: {names} does not exist; give a kubeconfig path, set KUBECONFIG, or use the in-cluster account"
        )
    return _select([(str(file), str(file.absolute().parent), _parse(_read(file), str(file))) for file in existing], context)


def _split(paths: str) -> list[Path]:
    return [Path(part).expanduser() for part in paths.split(os.pathsep) if part]


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"kubeconfig: {file} can't be read: {error}") from error


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  a safe loader, the C one where it exists
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        # The parser's own text quotes the line, which may be a token.
        raise AccessError(f"kubeconfig: {source} is not valid YAML{where}: {getattr(error, 'problem', '')}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise AccessError(f"kubeconfig: {source} holds no mapping; is it a kubeconfig?")
    return document


def _select(documents: list[tuple[str, str, dict[str, Any]]], context: str | None) -> Selected:
    sources = ", ".join(source for source, _, _ in documents)
    clusters, users, contexts = (_merge(documents, section, key) for section, key in _SECTIONS)
    name = context or next((str(doc["current-context"]) for _, _, doc in documents if doc.get("current-context")), "")
    if not name:
        raise AccessError(f"kubeconfig: {sources} has no current-context; name one of: {_names(contexts)}")
    chosen = _find(contexts, name, "context", sources).fields
    if not chosen.get("cluster"):
        raise AccessError(f"kubeconfig: context {name!r} of {sources} names no cluster")
    user_name = str(chosen.get("user") or "")
    nobody = Entry(name="", fields={}, folder="")
    return Selected(
        cluster=_find(clusters, str(chosen["cluster"]), "cluster", sources),
        user=_find(users, user_name, "user", sources) if user_name else nobody,
        namespace=str(chosen.get("namespace") or ""),
        source=f"{sources}, context {name!r}",
    )


def _merge(documents: list[tuple[str, str, dict[str, Any]]], section: str, key: str) -> dict[str, Entry]:
    merged: dict[str, Entry] = {}
    for source, folder, document in documents:
        for name, fields in _named(document, section, key, source).items():
            merged.setdefault(name, Entry(name=name, fields=fields, folder=folder))
    return merged


def _named(document: dict[str, Any], section: str, key: str, source: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    items = document.get(section) or []
    if not isinstance(items, list):
        raise AccessError(f"kubeconfig: {section} of {source} must be a list of entries with a name and a {key}")
    for item in items:
        fields = item.get(key) or {} if isinstance(item, dict) else None
        if not isinstance(fields, dict) or not item.get("name"):
            raise AccessError(f"kubeconfig: {section} of {source} holds an entry without name and {key}")
        if str(item["name"]) in found:
            raise AccessError(f"kubeconfig: {section} of {source} names {item['name']!r} twice")
        found[str(item["name"])] = fields
    return found


def _find(entries: dict[str, Entry], name: str, what: str, sources: str) -> Entry:
    if name not in entries:
        raise AccessError(f"kubeconfig: {sources} has no {what} {name!r}; it has: {_names(entries)}")
    return entries[name]


def _names(entries: dict[str, Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
