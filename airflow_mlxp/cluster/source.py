"""One shared list+watch with its objects, for any number of observers."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from airflow_mlxp import errors
from airflow_mlxp.cluster import watch
from airflow_mlxp.cluster.watch_items import Changed, Head, Interrupted, Listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_mlxp.cluster.observation import Observation
    from airflow_mlxp.cluster.rules import Rules
    from airflow_mlxp.workloads.base import Api


class Listener(Protocol):
    """Who is told what happens to the objects of a source. Called in the source's own task; must not wait."""

    def on_object(self, source: Source, uid: str, obj: dict[str, Any]) -> None:
        """An object is there or has changed."""

    def on_removed(self, source: Source, uid: str, obj: dict[str, Any] | None) -> None:
        """An object is gone; its last state, if it was known."""

    def on_listed(self, source: Source, uids: set[str]) -> None:
        """These objects exist, and no others."""

    def on_state(self, source: Source) -> None:
        """``interrupted`` or ``error`` changed."""


class Source:
    """List and watch one collection in a task of its own until ``cancel``."""

    def __init__(self, query: watch.Query, *, rules: Rules, listener: Listener, limits: watch.WatchLimits) -> None:
        self.observers: set[Observation] = set()
        """Who needs this source; empty: nobody."""
        self.objects: dict[str, dict[str, Any]] = {}
        self.by_key: dict[str, dict[str, dict[str, Any]]] = {}
        self.dropped: set[str] = set()
        """Owners of objects that were not admitted: who observes such an owner has to read them."""
        self.interrupted = ""
        self.error: BaseException | None = None
        """Why the source has ended for good."""
        self._query, self._rules, self._listener, self._limits = query, rules, listener, limits
        self._settled = asyncio.Event()
        name = f"watch {query.api.plural} in {query.namespace}"
        # A clean context: else whatever is logged in here would land in the log of the task that came first.
        self.task = asyncio.get_running_loop().create_task(self._run(), name=name, context=contextvars.Context())
        self.task.add_done_callback(self._ended)

    @property
    def api(self) -> Api:
        """What is watched."""
        return self._query.api

    async def listed(self, limit: float) -> None:
        """Wait until the collection is known, at most ``limit`` seconds.

        Raises:
            errors.ClusterUnreachable: not within the limit; says what stood in the way.
            errors.MLXPError: the API server refuses the list.
        """
        try:
            async with asyncio.timeout(limit):
                await self._settled.wait()
        except TimeoutError:
            reason = self.interrupted or "no answer"
            raise errors.ClusterUnreachable(f"could not list {self._query.api.plural} for {limit:g} s: {reason}") from None
        if self.error is not None:
            raise self.error.with_traceback(None)

    def review(self, uids: Iterable[str]) -> None:
        """Drop those of these objects that nobody wants any more."""
        for uid in uids:
            obj = self.objects.get(uid)
            if obj is not None and self._admit(msgspec.convert(obj, type=Head), obj) is None:
                self._forget(uid)

    def _admit(self, head: Head, obj: dict[str, Any]) -> dict[str, Any] | None:
        return self._rules.admit(head, lambda: obj)

    def _forget(self, uid: str) -> None:
        """Drop an object that still exists."""
        obj = self.objects.pop(uid, None)
        if obj is not None:
            self._unlink(uid, obj)
            self.dropped.update(self._rules.keys_of(obj))

    async def _run(self) -> None:
        async with aclosing(watch.watch_forever(self._query, self._limits)) as items:
            async for item in items:
                if isinstance(item, Changed):
                    self._change(item)
                elif isinstance(item, Listed):
                    self._replace(item.objects)
                else:
                    self.interrupted = item.reason if isinstance(item, Interrupted) else ""
                    self._listener.on_state(self)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A source that ends by itself takes its observers with it: they would wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
            self._settled.set()
            self._listener.on_state(self)

    def _change(self, item: Changed) -> None:
        uid = item.head.uid
        if item.deleted:
            known = uid in self.objects
            self._remove(uid, item.decode() if known else None)
        elif (obj := self._rules.admit(item.head, item.decode)) is not None:
            self._store(uid, obj)
        else:
            self._forget(uid)
            self.dropped.update(item.head.owners)

    def _replace(self, objects: Iterable[dict[str, Any]]) -> None:
        listed: dict[str, dict[str, Any] | None] = {}
        self.dropped.clear()
        for obj in objects:
            head = msgspec.convert(obj, type=Head)
            listed[head.uid] = self._admit(head, obj)
            if listed[head.uid] is None:
                self.dropped.update(head.owners)
        for uid in self.objects.keys() - listed.keys():
            self._remove(uid, self.objects[uid])
        for uid, kept in listed.items():
            if kept is None:
                self._forget(uid)
            elif uid not in self.objects or _version(self.objects[uid]) != _version(kept):
                self._store(uid, kept)
        self._settled.set()
        self._listener.on_listed(self, set(listed))

    def _store(self, uid: str, obj: dict[str, Any]) -> None:
        old = self.objects.get(uid)
        if old is not None:
            self._unlink(uid, old)
        self.objects[uid] = obj
        for key in self._rules.keys_of(obj):
            self.by_key.setdefault(key, {})[uid] = obj
        self._listener.on_object(self, uid, obj)

    def _remove(self, uid: str, last: dict[str, Any] | None) -> None:
        old = self.objects.pop(uid, None)
        if old is not None:
            self._unlink(uid, old)
        self._listener.on_removed(self, uid, last)

    def _unlink(self, uid: str, obj: dict[str, Any]) -> None:
        for key in self._rules.keys_of(obj):
            group = self.by_key.get(key, {})
            group.pop(uid, None)
            if not group:
                self.by_key.pop(key, None)


def _version(obj: Mapping[str, Any]) -> object:
    return obj["metadata"].get("resourceVersion")
