"""OpenAPI v3 documents: only what kubectl reads before it sends strict writes.

``kubectl apply`` looks for a PATCH of the kind with the query parameter ``fieldValidation``. The bodies leave out
strategic merge patch, for which a client would need schemas with merge keys: kubectl then takes those it was built with.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from aiohttp import web

from airflow_mlxp.local.server import wire
from airflow_mlxp.local.server.resources import GROUP_VERSIONS, RESOURCES, Resource
from airflow_mlxp.schemas import schema_for

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]

_DESCRIBED = frozenset({("batch/v1", "Job"), ("kubeflow.org/v1", "PyTorchJob")})
_UNDESCRIBED = "The embedded platform describes the fields of Job and PyTorchJob only."
_EMPTY_V2 = b"\x0a\x032.0"
"""``openapi.v2.Document`` in protobuf with field 1, ``swagger: "2.0"``: kubectl asks it about kinds that v3 doesn't name, and has
to learn that they don't exist."""


def add_routes(application: web.Application) -> None:
    """Serve ``/openapi/v3`` and one document for each group and version."""
    paths: dict[str, Any] = {}
    for group, version in GROUP_VERSIONS:
        name = f"apis/{group}/{version}" if group else f"api/{version}"
        document = msgspec.json.encode(_document(group, version))
        digest = hashlib.sha256(document).hexdigest()[:32].upper()
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        application.router.add_get(f"/openapi/v3/{name}", _serve(document))
    application.router.add_get("/openapi/v2", _serve_v2)
    application.router.add_get("/openapi/v3", _serve(msgspec.json.encode({"paths": paths})))


def _serve(document: bytes) -> Any:
    async def handler(_: web.Request) -> web.Response:
        return wire.reply(document)

    return handler


async def _serve_v2(_: web.Request) -> web.Response:
    return web.Response(body=_EMPTY_V2, content_type="application/com.github.proto-openapi.spec.v2.v1.0+protobuf")


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
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": _schemas(resources)}}


def _schemas(resources: list[Resource]) -> dict[str, Any]:
    """What ``kubectl explain`` shows: the fields of Job and PyTorchJob; of the other kinds, that they aren't described."""
    schemas: dict[str, Any] = {}
    for resource in resources:
        schema: dict[str, Any] = {"type": "object", "description": _UNDESCRIBED}
        if (resource.api_version, resource.kind) in _DESCRIBED:
            source = schema_for(resource.kind)
            schemas |= {name: _openapi(part) for name, part in source["$defs"].items()}
            schema = _openapi({key: value for key, value in source.items() if key != "$defs"})
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schemas[resource.kind] = schema | {"x-kubernetes-group-version-kind": [kind]}
    return schemas


def _openapi(schema: dict[str, Any]) -> dict[str, Any]:
    """The parts of a JSON schema that OpenAPI 3.0 reads in the same way."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/$defs/", "#/components/schemas/")}
    kept: dict[str, Any] = {key: schema[key] for key in ("description", "required") if key in schema}
    if isinstance(schema.get("type"), str):
        kept["type"] = schema["type"]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            kept[key] = _openapi(schema[key])
    if "properties" in schema:
        kept["properties"] = {name: _openapi(part) for name, part in schema["properties"].items()}
    return kept


def _operation(resource: Resource, verb: str) -> dict[str, Any]:
    media_type = "application/merge-patch+json" if verb == "patch" else "application/json"
    return {
        "parameters": _PARAMETERS,
        "requestBody": {"content": {media_type: {"schema": {"type": "object"}}}},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
    }
