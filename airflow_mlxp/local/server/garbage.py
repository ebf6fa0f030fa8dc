"""Garbage collection: dependents of deleted owners, foreground and orphan deletion, namespaces, old events.

Every object that could need collecting is put into a queue by the change that made it so, and looked at afresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import datetime as dt
from typing import TYPE_CHECKING

from airflow_mlxp.local.server import deletion, problem
from airflow_mlxp.local.server.resources import EVENTS, NAMESPACES, RESOURCES

if TYPE_CHECKING:
    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.storage import Change, Object, Stored

_SWEEP_SECONDS = 30.0
"""Between two looks for events that are too old: they are kept for an hour, half a minute more does no harm."""
_BACKGROUND = deletion.DeleteOptions(propagation="Background")
_FOREGROUND = deletion.DeleteOptions(propagation="Foreground")


class Collector:
    """Removes what has lost its owners. ``event_ttl`` is in seconds."""

    def __init__(self, registry: Registry, *, event_ttl: float) -> None:
        self._registry, self._store = registry, registry.store
        self._event_ttl = event_ttl
        self._queue: asyncio.Queue[Stored] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._store.listen(None, self._on_change)

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._run(), name="garbage collector")

    async def stop(self) -> None:
        """End the work; what is queued waits for the next start."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _on_change(self, change: Change) -> None:
        meta = change.after.data["metadata"]
        references = meta.get("ownerReferences") or ()
        if change.type == "DELETED":
            for dependent in self._store.dependents(change.after.uid):
                self._queue.put_nowait(dependent)
            for owner in (self._store.by_uid(reference["uid"]) for reference in references):
                if owner is not None and "deletionTimestamp" in owner.data["metadata"]:
                    self._queue.put_nowait(owner)
            namespace = self._store.get(NAMESPACES, ("", meta.get("namespace", "")))
            if namespace is not None and "deletionTimestamp" in namespace.data["metadata"]:
                self._queue.put_nowait(namespace)
        elif "deletionTimestamp" in meta or references:
            self._queue.put_nowait(change.after)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_SWEEP_SECONDS):
                    stored = await self._queue.get()
            except TimeoutError:
                self._expire_events()
                continue
            current = self._store.by_uid(stored.uid)
            if current is not None:
                # A precondition can't fail here: nothing runs between the look and the write.
                with contextlib.suppress(problem.ApiError):
                    self._collect(current)
            if self._queue.qsize() % 64 == 0:
                await asyncio.sleep(0)  # a long queue must not keep requests waiting

    def _collect(self, stored: Stored) -> None:
        meta = stored.data["metadata"]
        finalizers = meta.get("finalizers") or []
        if "deletionTimestamp" not in meta:
            self._collect_dependent(stored)
        elif stored.resource is NAMESPACES:
            self._empty_namespace(stored)
        elif deletion.ORPHAN_FINALIZER in finalizers:
            self._orphan(stored)
        elif deletion.FOREGROUND_FINALIZER in finalizers:
            self._delete_in_foreground(stored)

    def _collect_dependent(self, stored: Stored) -> None:
        """Delete an object none of whose owners exists any more."""
        references = stored.data["metadata"].get("ownerReferences") or ()
        owners = [self._store.by_uid(reference["uid"]) for reference in references]
        if owners and not any(owners):
            deletion.delete(self._registry, stored, _BACKGROUND)

    def _delete_in_foreground(self, owner: Stored) -> None:
        """Delete the dependents; the owner goes when none is left that blocks it."""
        blocking = []
        for dependent in self._store.dependents(owner.uid):
            if _blocks(dependent, owner.uid):
                blocking.append(dependent)
            if "deletionTimestamp" not in dependent.data["metadata"]:
                has_own = bool(self._store.dependents(dependent.uid))
                deletion.delete(self._registry, dependent, _FOREGROUND if has_own else _BACKGROUND)
        if not any(self._store.by_uid(dependent.uid) for dependent in blocking):
            self._drop_finalizer(owner, deletion.FOREGROUND_FINALIZER)

    def _orphan(self, owner: Stored) -> None:
        """Take the owner out of its dependents' references, then let it go."""
        for dependent in self._store.dependents(owner.uid):
            data = copy.deepcopy(dependent.data)
            rest = [reference for reference in data["metadata"]["ownerReferences"] if reference["uid"] != owner.uid]
            _set(data, "ownerReferences", rest)
            self._registry.replace(dependent, data)
        self._drop_finalizer(owner, deletion.ORPHAN_FINALIZER)

    def _drop_finalizer(self, owner: Stored, finalizer: str) -> None:
        current = self._store.by_uid(owner.uid)
        if current is not None:
            data = copy.deepcopy(current.data)
            _set(data, "finalizers", [name for name in data["metadata"].get("finalizers") or () if name != finalizer])
            self._registry.replace(current, data)

    def _empty_namespace(self, namespace: Stored) -> None:
        """Delete what a namespace holds; it goes when nothing is left."""
        name = namespace.key[1]
        held = [stored for resource in RESOURCES if resource.namespaced for stored in self._store.items(resource, name)]
        for stored in held:
            current = self._store.by_uid(stored.uid)
            if current is not None and "deletionTimestamp" not in current.data["metadata"]:
                deletion.delete(self._registry, current, _BACKGROUND)
        if not any(self._store.by_uid(stored.uid) for stored in held):
            current = self._store.by_uid(namespace.uid)
            if current is not None:
                self._store.remove(current)

    def _expire_events(self) -> None:
        oldest = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=self._event_ttl)
        limit = oldest.strftime("%Y-%m-%dT%H:%M:%SZ")
        for stored in self._store.items(EVENTS):
            last = stored.data.get("lastTimestamp") or stored.data["metadata"]["creationTimestamp"]
            if last < limit:
                self._store.remove(stored)


def _blocks(dependent: Stored, uid: str) -> bool:
    references = dependent.data["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == uid and reference.get("blockOwnerDeletion") for reference in references)


def _set(data: Object, name: str, value: list[object]) -> None:
    if value:
        data["metadata"][name] = value
    else:
        data["metadata"].pop(name, None)
