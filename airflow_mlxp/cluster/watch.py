"""List and watch one collection without end, by nested generators that have one job each.

``watch_once``     one HTTP call and what it brings
``watch_from``     goes on from the last resourceVersion after each call, until a new list is needed
``watch_forever``  lists, says ``Listed``, watches from there, begins anew; polls lists where watching is forbidden
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import msgspec

from airflow_mlxp import errors
from airflow_mlxp.cluster.backoff import Backoff
from airflow_mlxp.cluster.watch_items import Bookmark, Changed, Head, Interrupted, Item, Listed, Resumed, slim

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from airflow_mlxp.cluster.rest import Client, WatchEvent
    from airflow_mlxp.workloads.base import Api


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchLimits:
    """Waits between the calls of one watch, in seconds."""

    first_delay: float = 0.5
    """Longest first pause after a failed call; doubles with each failure in a row."""
    longest_delay: float = 30.0
    """Longest pause: after an outage of hours everybody knows again within half a minute."""
    quick_end: float = 1.0
    """A call that ends sooner and brought nothing counts as failed: a proxy that closes at once must not be asked in a loop."""
    poll_interval: float = 10.0
    """Distance of lists where a role allows ``list`` but not ``watch``."""
    poll_span: float = 600.0
    """How long lists are polled before ``watch`` is tried again: roles get mended."""
    refusal_grace: float = 120.0
    """How long a refused list is borne once one has worked: an API server that starts refuses until its own caches are full."""


DEFAULT_LIMITS = WatchLimits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What is listed and watched."""

    client: Client
    api: Api
    namespace: str
    label_selector: str = ""
    field_selector: str = ""


_TRANSIENT = (errors.Gone, errors.TooManyRequests, errors.ServerFailure, errors.ClusterUnreachable)
_LIST_ANEW = {410, 504}
"""410: the version is compacted. 504: the version is from the future, as after the restore of a backup."""


async def watch_once(query: Query, resource_version: str) -> AsyncGenerator[Changed | Bookmark, None]:
    """One call: changes and bookmarks. Ends and raises as ``Client.watch`` does."""
    call = query.client.watch(
        query.api,
        query.namespace,
        resource_version=resource_version,
        label_selector=query.label_selector,
        field_selector=query.field_selector,
    )
    async with aclosing(cast("AsyncGenerator[WatchEvent, None]", call)) as events:
        async for event in events:
            try:
                head = msgspec.json.decode(event.object, type=Head)
            except msgspec.MsgspecError as error:
                raise errors.ClusterUnreachable(f"the watch of {query.api.plural} brought an unreadable event") from error
            if event.type == "BOOKMARK":
                yield Bookmark(head.metadata.resource_version)
            elif event.type in {"ADDED", "MODIFIED", "DELETED"}:
                yield Changed(head, event.object, event.type == "DELETED")


async def watch_from(
    query: Query, resource_version: str, backoff: Backoff, limits: WatchLimits = DEFAULT_LIMITS
) -> AsyncGenerator[Changed | Bookmark | Interrupted, None]:
    """Call after call, each from where the last one ended. Ends when a new list is needed; refusals raise."""
    clock = asyncio.get_running_loop().time
    while True:
        begun, heard, retry_after = clock(), False, None
        try:
            async with aclosing(watch_once(query, resource_version)) as events:
                async for event in events:
                    heard = True
                    backoff.reset()
                    resource_version = event.resource_version or resource_version
                    yield event
        except errors.MLXPError as error:
            if isinstance(error, errors.ClusterError) and error.status in _LIST_ANEW:
                return
            if not isinstance(error, _TRANSIENT):
                raise
            retry_after = _retry_after(error)
            yield Interrupted(str(error))
        else:
            if heard or clock() - begun >= limits.quick_end:
                continue
        await asyncio.sleep(backoff.next(retry_after))


def _retry_after(error: errors.MLXPError) -> float | None:
    return error.retry_after if isinstance(error, errors.ClusterError) else None


async def watch_forever(query: Query, limits: WatchLimits = DEFAULT_LIMITS) -> AsyncGenerator[Item, None]:
    """The collection for ever: ``Listed`` first and after each gap, then changes; one mark at each end of an interruption.

    Raises:
        errors.MLXPError: the list is refused (401, 403, 404, no credential): at once at the beginning, after
            ``refusal_grace`` once a list has worked.
    """
    down = False
    async with aclosing(_Rounds(query, limits).run()) as items:
        async for item in items:
            if isinstance(item, Interrupted | Resumed):
                was_down, down = down, isinstance(item, Interrupted)
                if was_down == down:
                    continue
            yield item


class _Rounds:
    """List, watch until a new list is needed, again. Marks may repeat."""

    def __init__(self, query: Query, limits: WatchLimits) -> None:
        self._query, self._limits = query, limits
        self._backoff = Backoff(initial=limits.first_delay, maximum=limits.longest_delay)
        self._clock = asyncio.get_running_loop().time
        self._listed = False
        self._refused_since: float | None = None
        self._poll_until: float | None = None

    async def run(self) -> AsyncGenerator[Item, None]:
        query = self._query
        while True:
            try:
                page = await query.client.list(
                    query.api, query.namespace, label_selector=query.label_selector, field_selector=query.field_selector
                )
            except errors.MLXPError as error:
                if self._is_final(error):
                    raise
                yield Interrupted(str(error))
                await asyncio.sleep(self._backoff.next(_retry_after(error)))
                continue
            self._listed, self._refused_since = True, None
            yield Listed(tuple(slim(item) for item in page.items))
            if self._poll_until is not None and self._clock() < self._poll_until:
                await asyncio.sleep(self._limits.poll_interval)
                continue
            async with aclosing(self._watch(page.resource_version)) as items:
                async for item in items:
                    yield item

    def _is_final(self, error: errors.MLXPError) -> bool:
        """Whether a failed list has to be told instead of repeated."""
        if isinstance(error, _TRANSIENT):
            return False
        if self._refused_since is None:
            self._refused_since = self._clock()
        return not self._listed or self._clock() - self._refused_since >= self._limits.refusal_grace

    async def _watch(self, resource_version: str) -> AsyncGenerator[Item, None]:
        """Until the next list is needed; a forbidden watch turns into polling."""
        if self._poll_until is None:
            yield Resumed()
        pause: float | None = None
        try:
            async with aclosing(watch_from(self._query, resource_version, self._backoff, self._limits)) as items:
                async for item in items:
                    if isinstance(item, Interrupted):
                        yield item
                        continue
                    self._poll_until = None
                    yield Resumed()
                    if isinstance(item, Changed):
                        yield item
        except errors.Forbidden as error:
            pause = self._limits.poll_interval
            self._poll_until = self._clock() + self._limits.poll_span
            yield Interrupted(f"watching is forbidden, listing every {pause:g} s instead: {error}")
        except errors.MLXPError as error:
            pause = self._backoff.next(_retry_after(error))
            yield Interrupted(str(error))
        await asyncio.sleep(self._backoff.next() if pause is None else pause)
