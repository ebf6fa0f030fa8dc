"""The client: the Kubernetes verbs that this package uses, and nothing of HTTP, which is ``transport``'s."""

from __future__ import annotations

import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from airflow_mlxp.cluster import answers, streams
from airflow_mlxp.cluster.settings import DEFAULTS, Settings
from airflow_mlxp.cluster.transport import Request, Transport
from airflow_mlxp.errors import ClusterUnreachable, Gone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from airflow_mlxp.cluster.access import Access
    from airflow_mlxp.workloads.base import Api

    Params = Mapping[str, str | int]
    Operations = Sequence[Mapping[str, Any]]

_LIST_RESTARTS = 2
"""How often a list whose continue token became too old is begun anew in pages, before it is asked for in one piece."""


class WatchEvent(msgspec.Struct, frozen=True):
    """One event of a watch. ``object`` is still encoded: most objects are dropped after a look at their metadata."""

    type: str
    """ADDED, MODIFIED, DELETED or BOOKMARK; ERROR is raised instead."""
    object: msgspec.Raw


@dataclass(frozen=True, kw_only=True, slots=True)
class ListPage:
    """All objects of a list, pages joined, and the resource version to watch from."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """The object as the server stored it (or would have: dry run), and its warnings (deprecations, unknown fields)."""

    object: dict[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _StreamRules:
    """What silence means for a stream. Times in seconds, sizes in bytes."""

    head_timeout: float
    inactivity: float
    max_line: int
    silence_ends: bool = True
    """Whether ``inactivity`` is an end like any other; else it is a failure."""
    silent_head: bool = False
    """A kubelet sends the header together with the first line, so a silent container has none yet."""
    repeat_busy: bool = False


class Client:
    """A client of one API server, for one event loop. Close it with ``aclose()`` or ``async with``.

    Plain calls are repeated within ``Settings.request_deadline`` after 429, 5xx and broken connections, and once with a
    renewed credential after 401. A change whose answer was lost may so be sent twice: a create then raises Conflict, a
    delete NotFound, a JSON patch whose ``test`` no longer holds Unprocessable; look at the object before drawing conclusions.

    Raises, from every method: AccessError (credential or certificate), ClusterError (the server's refusal, by status),
    ClusterUnreachable (no answer within the deadline).
    """

    def __init__(self, access: Access, *, settings: Settings = DEFAULTS) -> None:
        self.access, self._settings = access, settings
        self._transport = Transport(access, settings=settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; open watches and logs end with ClusterUnreachable. Finishes though it is cancelled."""
        await self._transport.aclose()

    async def get(self, path: str, *, params: Params | None = None) -> dict[str, Any]:
        """Read one object, or any other JSON document such as ``/version``."""
        return (await self._transport.call(Request(method="GET", path=path, params=params or {}))).body

    async def list(
        self, api: Api, namespace: str, *, label_selector: str = "", field_selector: str = "", limit: int = 500
    ) -> ListPage:
        """All objects that match, read in pages of ``limit``; a continue token that became too old starts the list anew."""
        params = _given(labelSelector=label_selector, fieldSelector=field_selector)
        for _ in range(_LIST_RESTARTS + 1):
            try:
                return await self._list_pages(api.path(namespace), {**params, "limit": limit})
            except Gone:
                continue
        return await self._list_pages(api.path(namespace), params)

    async def create(self, api: Api, namespace: str, body: dict[str, Any], *, dry_run: bool = False) -> Created:
        """Create an object with strict field validation; ``dry_run`` runs admission and validation and stores nothing."""
        params = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        request = Request(method="POST", path=api.path(namespace), params=params, body=msgspec.json.encode(body))
        answer = await self._transport.call(request)
        return Created(object=answer.body, warnings=answer.warnings)

    async def json_patch(self, path: str, operations: Operations) -> dict[str, Any]:
        """Apply a JSON patch (RFC 6902); a ``test`` that fails raises Unprocessable and changes nothing."""
        return await self._patch(path, operations, "application/json-patch+json")

    async def merge_patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Apply a JSON merge patch (RFC 7396)."""
        return await self._patch(path, body, "application/merge-patch+json")

    async def delete(self, path: str, *, uid: str, propagation: str = "Background", grace_seconds: int | None = None) -> None:
        """Delete the object with this uid; another one under the name raises Conflict, none raises NotFound.

        ``propagation`` is ``propagationPolicy``: Background, Foreground or Orphan. ``grace_seconds`` is for pods: how long
        their processes have after SIGTERM; None takes the pod's own ``terminationGracePeriodSeconds``.
        """
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "preconditions": {"uid": uid},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._transport.call(Request(method="DELETE", path=path, params={}, body=msgspec.json.encode(options)))

    async def watch(
        self,
        api: Api,
        namespace: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """One watch call, bookmarks included. Ends when the server ends it or after ``Settings.watch_inactivity``.

        Nothing is repeated here but a 401: the caller knows from where to go on. An ERROR event raises the ClusterError that
        it stands for (Gone: list anew), a connection that breaks ClusterUnreachable.
        """
        least = int(self._settings.watch_timeout)
        params: dict[str, str | int] = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": random.randint(least, 2 * least),  # noqa: S311  spreads load, guards nothing
            **_given(labelSelector=label_selector, fieldSelector=field_selector),
        }
        request = Request(method="GET", path=api.path(namespace), params=params)
        settings = self._settings
        rules = _StreamRules(
            head_timeout=settings.request_timeout, inactivity=settings.watch_inactivity, max_line=settings.max_event_bytes
        )
        lines = self._lines(request, rules)
        async with aclosing(lines):
            async for line in lines:
                event = _watch_event(line, request)
                if event.type == "ERROR":
                    raise answers.error_of_event(event.object, request=str(request))
                yield event

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool,
        since_time: str = "",
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Lines of a container's log, each with its RFC 3339 time in front, none longer than ``Settings.max_line_bytes``.

        With ``follow`` it ends when the container ends, but also when the server closes the stream or after
        ``Settings.log_inactivity`` of silence: open it anew while the container runs. A container that has not started raises
        BadRequest, a pod that is gone NotFound. 429 and 401 are repeated, nothing else: the caller owns the position.
        """
        params: dict[str, str | int] = {
            "container": container,
            "timestamps": "true",
            **_given(sinceTime=since_time, follow="true" if follow else "", previous="true" if previous else ""),
            **{name: n for name, n in (("tailLines", tail_lines), ("limitBytes", limit_bytes)) if n is not None},
        }
        request = Request(method="GET", path=f"/api/v1/namespaces/{namespace}/pods/{pod}/log", params=params)
        inactivity = self._settings.log_inactivity if follow else self._settings.request_timeout
        rules = _StreamRules(
            head_timeout=inactivity,
            inactivity=inactivity,
            max_line=self._settings.max_line_bytes,
            silence_ends=follow,
            silent_head=follow,
            repeat_busy=True,
        )
        lines = self._lines(request, rules)
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def _lines(self, request: Request, rules: _StreamRules) -> AsyncGenerator[bytes]:
        splitter = streams.LineSplitter(limit=rules.max_line)
        try:
            async with self._transport.stream(
                request, head_timeout=rules.head_timeout, silent_head=rules.silent_head, repeat_busy=rules.repeat_busy
            ) as body:
                while chunk := await streams.next_chunk(body, inactivity=rules.inactivity):
                    for line in splitter.feed(chunk):
                        yield line
        except streams.Inactive:
            if rules.silence_ends:
                return
            raise ClusterUnreachable(f"{request}: silent for {rules.inactivity:.0f} s before its end") from None
        for line in splitter.end():
            yield line

    async def _patch(self, path: str, body: object, content_type: str) -> dict[str, Any]:
        request = Request(method="PATCH", path=path, body=msgspec.json.encode(body), content_type=content_type)
        return (await self._transport.call(request)).body

    async def _list_pages(self, path: str, params: Params) -> ListPage:
        items: list[dict[str, Any]] = []
        continuation = ""
        while True:
            page = (
                await self._transport.call(
                    Request(method="GET", path=path, params={**params, **_given(**{"continue": continuation})})
                )
            ).body
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            continuation = metadata.get("continue") or ""
            if not continuation:
                return ListPage(items=items, resource_version=str(metadata.get("resourceVersion") or ""))


def _given(**params: str) -> dict[str, str]:
    """The parameters that are not empty."""
    return {name: value for name, value in params.items() if value}


def _watch_event(line: bytes, request: Request) -> WatchEvent:
    try:
        return msgspec.json.decode(line, type=WatchEvent)
    except msgspec.MsgspecError as error:
        raise ClusterUnreachable(f"{request}: the watch broke off inside an event: {answers.excerpt(line)}") from error
