"""The verbs over HTTP: get, list, watch, create, update, patch, delete, deletecollection and the subresources of pods."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from airflow_mlxp.local.server import deletion, listing, logs, parameters, problem, selectors, tables, watching, wire
from airflow_mlxp.local.server.registry import WriteOptions
from airflow_mlxp.local.server.resources import BUILT_IN_GROUPS, CONNECTIONS, NAMESPACES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.settings import ServerSettings
    from airflow_mlxp.local.server.storage import Stored

_VALIDATIONS = ["", "Ignore", "Strict", "Warn"]


class Verbs:
    """Handlers of one server."""

    def __init__(self, registry: Registry, settings: ServerSettings, log_proxy: logs.LogProxy, stopping: asyncio.Event) -> None:
        self._registry, self._store, self._settings, self._stopping = registry, registry.store, settings, stopping
        self._below = {
            "log": (("GET",), log_proxy.handle),
            "binding": (("POST",), self._bind),
            **dict.fromkeys(CONNECTIONS, (("GET", "POST"), self._connect)),
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request below ``/api`` and ``/apis`` that names a resource."""
        target = wire.parse_path(request.path)
        if target is None:
            return _nothing(request)
        handler = self._handler(request, target)
        if handler is None:
            raise problem.method_not_allowed()
        return await handler(request, target)

    def _handler(
        self, request: web.Request, target: wire.Target
    ) -> Callable[[web.Request, wire.Target], Awaitable[web.StreamResponse]] | None:
        method = request.method
        if target.resource.create_only:
            return None
        if target.subresource in self._below:
            methods, handler = self._below[target.subresource]
            return handler if method in methods else None
        if target.name:
            one = {"GET": self._get, "PUT": self._update, "PATCH": self._patch}
            return self._delete if method == "DELETE" and not target.subresource else one.get(method)
        if method == "GET":
            return self._watch if parameters.flag(request.query, "watch") else self._list
        many = {"DELETE": self._delete_collection}
        if target.namespace or not target.resource.namespaced:
            many["POST"] = self._create
        return many.get(method)

    async def _get(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table = wire.wants_table(request)
        listing.require_reached(self._store, listing.version_of(request.query))
        stored = self._registry.existing(target.resource, target.key)
        return _show(request, stored, table=table)

    async def _list(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table = wire.wants_table(request)
        page = listing.page(self._store, target.resource, _selection(request, target), request.query)
        if table:
            return wire.reply_json(tables.table(target.resource, page, request.query.get("includeObject", "")))
        return wire.reply(wire.list_document(target.resource, page))

    async def _watch(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table = wire.wants_table(request)
        options = watching.read_options(
            request.query,
            _selection(request, target),
            timeout=self._settings.watch_timeout,
            bookmark_interval=self._settings.bookmark_interval,
        )
        response = web.StreamResponse(headers={"Content-Type": wire.JSON, "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        include = request.query.get("includeObject", "")
        try:
            async for seen in watching.stream(self._store, target.resource, options, self._stopping):
                await response.write(_watch_line(target, seen, include if table else None))
        except problem.ApiError as error:
            await response.write(watching.line("ERROR", msgspec.json.encode(error.status)))
        except ConnectionResetError:
            return response
        with contextlib.suppress(ConnectionResetError):
            await response.write_eof()
        return response

    async def _create(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table, options = wire.wants_table(request), _write_options(request)
        body = await wire.read_body(request)
        written = self._registry.create(target.resource, target.namespace, body, options)
        return _show(request, written.stored, table=table, status=201, warnings=written.warnings)

    async def _update(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table, options = wire.wants_table(request), _write_options(request)
        body = await wire.read_body(request)
        written = self._registry.update(target.resource, target.key, body, options, subresource=target.subresource)
        return _show(request, written.stored, table=table, warnings=written.warnings)

    async def _patch(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        table, options = wire.wants_table(request), _write_options(request)
        body = await wire.read_body(request)
        written = self._registry.patch(
            target.resource, target.key, body, request.content_type, options, subresource=target.subresource
        )
        status = 201 if written.created else 200
        return _show(request, written.stored, table=table, status=status, warnings=written.warnings)

    async def _delete(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        options = deletion.parse_options(await wire.read_body(request), request.query)
        stored = self._registry.existing(target.resource, target.key)
        last, gone = deletion.delete(self._registry, stored, options)
        if gone and not target.resource.returns_deleted:
            return wire.reply_json(wire.deleted_status(last))
        return _show(request, last, table=False)

    async def _delete_collection(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        options = deletion.parse_options(await wire.read_body(request), request.query)
        parameters.integer(request.query, "limit")
        page = listing.page(self._store, target.resource, _selection(request, target), {})
        for stored in page.items:
            deletion.delete(self._registry, stored, options)
        return wire.reply(wire.list_document(target.resource, page))

    async def _bind(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        self._registry.bind(target.key, await wire.read_body(request))
        return wire.reply_json({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    async def _connect(self, _: web.Request, target: wire.Target) -> web.StreamResponse:
        self._registry.existing(target.resource, target.key)
        raise problem.not_implemented(
            f"{target.subresource} is not served: pods of the embedded platform are processes of its host"
        )


def _nothing(request: web.Request) -> web.Response:
    """404 for a path without a resource: a Status in the built-in groups, plain text in others.

    Raises:
        ApiError: NotFound.
    """
    _, root, group, *_ = request.path.split("/")
    if root == "api" or group in BUILT_IN_GROUPS:
        raise problem.no_such_resource()
    return web.Response(status=404, text="404 page not found\n")


def _selection(request: web.Request, target: wire.Target) -> selectors.Selection:
    labels = selectors.parse_labels(request.query.get("labelSelector", ""))
    fields = selectors.parse_fields(request.query.get("fieldSelector", ""), target.resource)
    if target.resource is NAMESPACES:
        return selectors.Selection("", labels, fields)
    return selectors.Selection(target.namespace, labels, fields)


def _write_options(request: web.Request) -> WriteOptions:
    """The query of a create, update or patch.

    Raises:
        ApiError: Invalid, for an unknown dryRun or fieldValidation.
    """
    dry_run, validation = request.query.getall("dryRun", []), request.query.get("fieldValidation", "")
    kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(request.method, "PatchOptions")
    manager = request.query.get("fieldManager", "")
    errors = [problem.not_supported("dryRun", dry_run, ["All"])] if any(value != "All" for value in dry_run) else []
    if validation not in _VALIDATIONS:
        errors.append(problem.not_supported("fieldValidation", validation, _VALIDATIONS))
    if request.content_type == "application/apply-patch+yaml" and not manager:
        errors.append(problem.required("fieldManager", "is required for apply patch"))
    if errors:
        raise problem.invalid_object(kind, "meta.k8s.io", "", errors)
    return WriteOptions(dry_run=bool(dry_run), validation=validation or "Warn", field_manager=manager)


def _show(
    request: web.Request, stored: Stored, *, table: bool, status: int = 200, warnings: list[str] | None = None
) -> web.Response:
    if not table:
        return wire.reply(stored.full(), status, warnings)
    page = listing.Page([stored], stored.version)
    document: dict[str, Any] = tables.table(stored.resource, page, request.query.get("includeObject", ""))
    return wire.reply(msgspec.json.encode(document), status, warnings)


def _watch_line(target: wire.Target, seen: watching.Seen, include: str | None) -> bytes:
    """One event as a line; ``include`` is None for plain objects, else how much of the object a table's row carries."""
    if seen.stored is None:
        return watching.line(seen.type, watching.bookmark(target.resource, seen))
    if include is None:
        return watching.line(seen.type, seen.stored.full())
    page = listing.Page([seen.stored], seen.version)
    return watching.line(seen.type, msgspec.json.encode(tables.table(target.resource, page, include)))
