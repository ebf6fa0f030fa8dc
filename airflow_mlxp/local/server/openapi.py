"""OpenAPI v3 documents: only what kubectl reads before it sends strict writes.

``kubectl apply`` looks for a PATCH of the kind with the query parameter ``fieldValidation``. The bodies leave out
strategic merge patch, for which a client would need schemas with merge keys: kubectl then takes those it was built with.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_mlxp.local.server import wire
from airflow_mlxp.local.server.resources import GROUP_VERSIONS, RESOURCES, Resource

if TYPE_CHECKING:
    from aiohttp import web

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def add_routes(application: web.Application) -> None:
    """Serve ``/openapi/v3`` and one document for each group and version."""
    paths: dict[str, Any] = {}
    for group, version in GROUP_VERSIONS:
        name = f"apis/{group}/{version}" if group else f"api/{version}"
        document = msgspec.json.encode(_document(group, version))
        digest = hashlib.sha256(document).hexdigest()[:32].upper()
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        application.router.add_get(f"/openapi/v3/{name}", _serve(document))
    application.router.add_get("/openapi/v3", _serve(msgspec.json.encode({"paths": paths})))


def _serve(document: bytes) -> Any:
    async def handler(_: web.Request) -> web.Response:
        return wire.reply(document)

    return handler


def _document(group: str, version: str) -> dict[str, Any]:
    resources = [r for r in RESOURCES if (r.group, r.version) == (group, version)]
    paths: dict[str, Any] = {}
    for resource in resources:
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        collection = f"{resource.root}{scope}/{resource.plural}"
        paths[collection] = {"post": _operation(resource, "post")}
        if not resource.create_only:
            paths[f"{collection}/{{name}}"] = {verb: _operation(resource, verb) for verb in ("put", "patch")}
    info = {"title": "airflow-mlxp local", "version": "unversioned"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}


def _operation(resource: Resource, verb: str) -> dict[str, Any]:
    media_type = "application/merge-patch+json" if verb == "patch" else "application/json"
    return {
        "parameters": _PARAMETERS,
        "requestBody": {"content": {media_type: {"schema": {"type": "object"}}}},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
    }
