"""Watches: a stream of changes from a version on, seen through a selection."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import listing, parameters, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.selectors import Selection
    from airflow_mlxp.local.server.storage import Change, Store, Stored

BUFFER_LIMIT = 10_000
"""Changes that wait for a slow client; beyond it the watch is closed, as the watch cache of the real server does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One event of a watch. ``stored`` is None for a bookmark."""

    type: str
    stored: Stored | None
    version: int
    initial_end: bool = False
    """Whether the bookmark tells that all initial events were sent (``sendInitialEvents``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchOptions:
    """The query of a watch."""

    selection: Selection
    version: int | None
    """None or 0: begin with what exists."""
    bookmarks: bool
    send_initial: bool | None
    """``sendInitialEvents``; None when not given."""
    timeout: float
    """Seconds until the server ends the watch."""
    bookmark_interval: float
    """Seconds between bookmarks."""


def read_options(query: Mapping[str, str], selection: Selection, *, timeout: float, bookmark_interval: float) -> WatchOptions:
    """Options of a watch from its query; ``timeout`` applies when the query names none.

    Raises:
        ApiError: for a bad version or timeout, or ``sendInitialEvents`` without ``resourceVersionMatch=NotOlderThan``.
    """
    send_initial = parameters.flag(query, "sendInitialEvents")
    match = query.get("resourceVersionMatch", "")
    if send_initial is not None and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        errors = [problem.forbidden_field("resourceVersionMatch", text)]
        raise problem.invalid_object("ListOptions", "meta.k8s.io", "", errors)
    if send_initial is None and match:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors = [problem.forbidden_field("resourceVersionMatch", text)]
        raise problem.invalid_object("ListOptions", "meta.k8s.io", "", errors)
    return WatchOptions(
        selection=selection,
        version=listing.version_of(query),
        bookmarks=bool(parameters.flag(query, "allowWatchBookmarks")),
        send_initial=send_initial,
        timeout=float(parameters.integer(query, "timeoutSeconds") or timeout),
        bookmark_interval=bookmark_interval,
    )


def see(change: Change, selection: Selection) -> Seen | None:
    """What a watcher of a selection sees of a change: entering it is ADDED, leaving it is DELETED with the last state."""
    was = change.before is not None and selection.matches(change.before.data)
    is_in = change.type != "DELETED" and selection.matches(change.after.data)
    if is_in:
        return Seen("MODIFIED" if was else "ADDED", change.after, change.version)
    if not was or change.before is None:
        return None
    last = change.after if change.type == "DELETED" else change.before.at(change.version)
    return Seen("DELETED", last, change.version)


@dataclass(slots=True)
class _Inbox:
    """Changes that arrive while the client is being written to."""

    waiting: deque[Change] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    overflowed: bool = False

    def push(self, change: Change) -> None:
        if len(self.waiting) >= BUFFER_LIMIT:
            self.overflowed = True
        else:
            self.waiting.append(change)
        self.arrived.set()


async def stream(store: Store, resource: Resource, options: WatchOptions, stopping: asyncio.Event) -> AsyncIterator[Seen]:
    """Events until the timeout, the server's stop, or a client that reads too slowly.

    Raises:
        ApiError: Expired, when the version is too old. The caller tells it inside the stream.
    """
    inbox = _Inbox()
    past, initial = _begin(store, resource, options)
    store.listen(resource, inbox.push)
    stop_task = asyncio.ensure_future(stopping.wait())
    try:
        for stored in initial:
            if options.selection.matches(stored.data):
                yield Seen("ADDED", stored, stored.version)
        if options.send_initial and options.bookmarks:
            yield Seen("BOOKMARK", None, store.version, initial_end=True)
        for change in past:
            if seen := see(change, options.selection):
                yield seen
        async for seen in _follow(store, inbox, options, stop_task):
            yield seen
    finally:
        store.unlisten(resource, inbox.push)
        stop_task.cancel()


def _begin(store: Store, resource: Resource, options: WatchOptions) -> tuple[list[Change], list[Stored]]:
    """Past changes, and objects to begin with."""
    if options.send_initial or (options.send_initial is None and not options.version):
        return [], store.items(resource, options.selection.namespace)
    if not options.version:
        return [], []
    return store.changes_since(resource, options.version), []


async def _follow(
    store: Store, inbox: _Inbox, options: WatchOptions, stop_task: asyncio.Future[Any]
) -> AsyncIterator[Seen]:  # fmt: skip
    loop = asyncio.get_running_loop()
    end = loop.time() + options.timeout
    next_bookmark = loop.time() + options.bookmark_interval
    while not inbox.overflowed and not stop_task.done():
        while inbox.waiting:
            if seen := see(inbox.waiting.popleft(), options.selection):
                yield seen
        inbox.arrived.clear()
        now = loop.time()
        if now >= end:
            return
        if options.bookmarks and now >= next_bookmark:
            next_bookmark = now + options.bookmark_interval
            yield Seen("BOOKMARK", None, store.version)
            continue
        until = min(end, next_bookmark) if options.bookmarks else end
        arrived = asyncio.ensure_future(inbox.arrived.wait())
        try:
            await asyncio.wait({arrived, stop_task}, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrived.cancel()


def bookmark(resource: Resource, seen: Seen) -> bytes:
    """The object of a bookmark: only kind and resourceVersion."""
    meta: dict[str, Any] = {"resourceVersion": str(seen.version), "creationTimestamp": None}
    if seen.initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return json.dumps({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}).encode()


def line(kind: str, document: bytes) -> bytes:
    """One line of a watch stream."""
    return b'{"type":"' + kind.encode() + b'","object":' + document + b"}\n"
