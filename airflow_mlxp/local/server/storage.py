"""Objects in memory with one counter of versions and a ring of past changes, as etcd and the watch cache keep them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_mlxp.local.server import problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_mlxp.local.server.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True, eq=False)
class Stored:
    """One version of one object. ``data`` is never changed after it was stored; its JSON is made once."""

    resource: Resource
    data: Object
    version: int
    _body: bytes = field(default=b"", repr=False)

    @property
    def key(self) -> Key:
        """Namespace (empty for cluster-wide kinds) and name."""
        metadata = self.data["metadata"]
        return metadata.get("namespace", ""), metadata["name"]

    @property
    def uid(self) -> str:
        """``metadata.uid``."""
        return str(self.data["metadata"]["uid"])

    def body(self) -> bytes:
        """JSON without kind and apiVersion, as items of a list of built-in kinds are written."""
        if not self._body:
            self._body = _encode({k: v for k, v in self.data.items() if k not in {"kind", "apiVersion"}})
        return self._body

    def full(self) -> bytes:
        """JSON of the whole object."""
        head = f'{{"kind":"{self.resource.kind}","apiVersion":"{self.resource.api_version}",'.encode()
        return head + self.body()[1:]

    def item(self) -> bytes:
        """JSON as an item of a list: custom resources keep kind and apiVersion there, built-in kinds don't."""
        return self.full() if self.resource.custom else self.body()

    def at(self, version: int) -> Stored:
        """The same object under another resourceVersion: what a watch tells when it leaves a selection or is deleted."""
        metadata = {**self.data["metadata"], "resourceVersion": str(version)}
        return Stored(self.resource, {**self.data, "metadata": metadata}, version)


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``after`` of a DELETED change is the last state under the version of the deletion."""

    type: str
    before: Stored | None
    after: Stored

    @property
    def version(self) -> int:
        """The resourceVersion that the write made."""
        return self.after.version


class Store:
    """All objects. Every method is synchronous: a request's read-check-write is one step of the event loop.

    ``history`` is the number of past changes that watches and paged lists can go back to; older versions answer 410.
    """

    def __init__(self, *, history: int) -> None:
        self.version = 1
        self._objects: dict[Resource, dict[Key, Stored]] = {}
        self._history: deque[Change] = deque()
        self._history_limit = history
        self._compacted = 0
        self._listeners: dict[Resource | None, set[Callable[[Change], None]]] = {}
        self._by_uid: dict[str, Stored] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def get(self, resource: Resource, key: Key) -> Stored | None:
        """The object under a key."""
        return self._objects.get(resource, {}).get(key)

    def by_uid(self, uid: str) -> Stored | None:
        """The live object with this uid, of whatever kind."""
        return self._by_uid.get(uid)

    def dependents(self, uid: str) -> list[Stored]:
        """The live objects that name the uid in their ownerReferences, in order of creation."""
        return [self._by_uid[dependent] for dependent in self._dependents.get(uid, {})]

    def items(self, resource: Resource, namespace: str = "") -> list[Stored]:
        """Objects of a resource in the order of their keys; of all namespaces if none is named."""
        objects = self._objects.get(resource, {})
        keys = [key for key in objects if key[0] == namespace] if namespace else list(objects)
        return [objects[key] for key in sorted(keys)]

    def put(self, resource: Resource, data: Object) -> Stored:
        """Store a new object or version under the next resourceVersion. The caller gives ``data`` away."""
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        stored = Stored(resource, data, self.version)
        objects = self._objects.setdefault(resource, {})
        before = objects.get(stored.key)
        objects[stored.key] = stored
        self._index(before, stored)
        self._record(Change("MODIFIED" if before else "ADDED", before, stored))
        return stored

    def remove(self, stored: Stored) -> Stored:
        """Delete an object; the answer is its last state under the version of the deletion."""
        self.version += 1
        del self._objects[stored.resource][stored.key]
        self._index(stored, None)
        last = stored.at(self.version)
        self._record(Change("DELETED", stored, last))
        return last

    def _index(self, before: Stored | None, after: Stored | None) -> None:
        if before is not None:
            for uid in owners(before.data):
                self._dependents[uid].pop(before.uid, None)
                if not self._dependents[uid]:
                    del self._dependents[uid]
            del self._by_uid[before.uid]
        if after is not None:
            self._by_uid[after.uid] = after
            for uid in owners(after.data):
                self._dependents.setdefault(uid, {})[after.uid] = None

    def _record(self, change: Change) -> None:
        self._history.append(change)
        while len(self._history) > self._history_limit:
            self._compacted = self._history.popleft().version
        for scope in (change.after.resource, None):
            for listener in tuple(self._listeners.get(scope, ())):
                listener(change)

    def listen(self, resource: Resource | None, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` with every later change of a resource, or of all."""
        self._listeners.setdefault(resource, set()).add(listener)

    def unlisten(self, resource: Resource | None, listener: Callable[[Change], None]) -> None:
        """End a ``listen``."""
        self._listeners[resource].discard(listener)

    def compact(self) -> None:
        """Forget the history: every watch and page from before now is answered with 410."""
        self._history.clear()
        self._compacted = self.version

    def kept(self, version: int) -> bool:
        """Whether everything after a version is still in the history."""
        return version >= self._compacted

    def changes_since(self, resource: Resource, version: int) -> list[Change]:
        """Changes of a resource after a version, oldest first. 410 when some are forgotten.

        Raises:
            ApiError: Expired, when the history doesn't reach back that far.
        """
        if not self.kept(version):
            raise problem.expired(f"too old resource version: {version} ({self._compacted})")
        return [change for change in self._newer(version) if change.after.resource is resource][::-1]

    def _newer(self, version: int) -> Iterable[Change]:
        for change in reversed(self._history):
            if change.version <= version:
                return
            yield change

    def snapshot(self, resource: Resource, namespace: str, version: int) -> list[Stored]:
        """The objects of a resource as they were at a version that is still kept, in the order of their keys."""
        then: dict[Key, Stored | None] = dict(self._objects.get(resource, {}))
        for change in self._newer(version):
            if change.after.resource is resource:
                then[change.after.key] = change.before
        return [
            stored
            for key in sorted(then)
            if (stored := then[key]) is not None and (not namespace or key[0] == namespace)
        ]  # fmt: skip


def owners(data: Object) -> list[str]:
    """Uids of the ownerReferences."""
    return [str(reference["uid"]) for reference in data["metadata"].get("ownerReferences") or ()]
