"""From the body of a request to an object: kind and version, types, and unknown fields (``fieldValidation``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_mlxp import schemas
from airflow_mlxp.local.server import problem, quantities
from airflow_mlxp.local.server.resources import (
    CLAIMS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    PYTORCH_JOBS,
    QUOTAS,
    SECRETS,
    SERVICES,
    Resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_STRING, _NUMBER, _STRINGS = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "object", "additionalProperties": {"type": "string"}},
)
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_OBJECT_META: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": _STRING,
        "generateName": _STRING,
        "namespace": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
        "resourceVersion": _STRING,
        "creationTimestamp": _STRING,
        "deletionTimestamp": _STRING,
        "generation": _NUMBER,
        "deletionGracePeriodSeconds": _NUMBER,
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "finalizers": {"type": "array", "items": _STRING},
        "ownerReferences": _OBJECTS,
        "managedFields": _OBJECTS,
    },
}
_OBJECT = {"type": "object"}
_SMALL_SCHEMAS: dict[Resource, dict[str, Any]] = {
    SERVICES: {"properties": {"spec": {"type": "object", "properties": {"ports": _OBJECTS, "clusterIP": _STRING}}}},
    QUOTAS: {"properties": {"spec": {"type": "object", "properties": {"hard": _OBJECT}}}},
    EVENTS: {"properties": {"involvedObject": _OBJECT, "source": _OBJECT, "message": _STRING, "lastTimestamp": _STRING}},
    SECRETS: {"properties": {"data": _STRINGS, "stringData": _STRINGS, "type": _STRING}},
    CONFIG_MAPS: {"properties": {"data": _STRINGS, "binaryData": _STRINGS}},
    CLAIMS: {"properties": {"spec": _OBJECT}},
    NODES: {"properties": {"spec": _OBJECT}},
    LEASES: {"properties": {"spec": _OBJECT}},
}
"""Kinds of which only those types are checked that the server itself reads."""
_JSON_TYPES = {type(None): "null", bool: "boolean", int: "integer", str: "string", list: "array"}
_GO_TYPES = {"boolean": "bool", "integer": "int32", "number": "float64", "string": "string"}


def type_name(value: object) -> str:
    """The JSON Schema type of a value."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _JSON_TYPES.get(type(value), "object")


def go_name(value: object) -> str:
    """How Go's JSON decoder names the value's type."""
    kind = type_name(value)
    return {"boolean": "bool", "integer": "number"}.get(kind, kind)


@cache
def _schema(resource: Resource) -> dict[str, Any] | None:
    """The JSON schema of a kind, without demands on the object's own fields. None: everything is taken.

    A Pod is described by the pod template of a Job.
    """
    if resource in {JOBS, PYTORCH_JOBS}:
        return {**schemas.schema_for(resource.kind), "required": []}
    if resource is not PODS:
        return _SMALL_SCHEMAS.get(resource)
    job = schemas.schema_for(JOBS.kind)
    resolved = _Checker(job, custom=False)
    template = resolved.property(resolved.property(job, "spec"), "template")
    pod = {"type": "object", "properties": {"spec": template["properties"]["spec"]}}
    return {**pod, "$defs": job.get("$defs", {})}


@dataclass(slots=True)
class _Checker:
    """One walk through an object along its schema. Unknown fields are collected and, unless strict, removed."""

    root: dict[str, Any]
    custom: bool
    unknown: list[str] = field(default_factory=list)
    errors: list[problem.FieldError] = field(default_factory=list)

    def resolve(self, schema: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The schema behind ``$ref``, and the name of its type."""
        name = ""
        while "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema = self.root["$defs"][name]
        return schema, name.removeprefix("V1").removeprefix("KubeflowOrgV1")

    def property(self, schema: dict[str, Any], name: str) -> dict[str, Any]:
        """The resolved schema of one property."""
        return self.resolve(self.resolve(schema)[0]["properties"][name])[0]

    def walk(self, schema: dict[str, Any], value: Any, path: str, go_path: str) -> None:
        """Check a value; ``path`` has list indices, ``go_path`` names struct and fields as Go's decoder does."""
        schema, name = self.resolve(schema)
        allowed = _allowed_types(schema)
        if value is None and (not self.custom or "null" in allowed):
            return
        if allowed and not _fits(type_name(value), allowed):
            self._mistyped(value, allowed, path, go_path, name)
        elif isinstance(value, str):
            self._walk_string(schema, value, path)
        elif isinstance(value, dict):
            self._walk_object(schema, value, path, go_path, name)
        elif isinstance(value, list) and "items" in schema:
            of_objects = "object" in _allowed_types(self.resolve(schema["items"])[0])
            for number in range(len(value)):
                if value[number] is None and of_objects and not self.custom:
                    value[number] = {}  # Go makes an empty struct of null
                self.walk(schema["items"], value[number], f"{path}[{number}]", go_path)

    def _walk_string(self, schema: dict[str, Any], value: str, path: str) -> None:
        """Patterns are a matter of custom resources: built-in kinds are validated in code."""
        patterns = [part["pattern"] for part in (schema, *schema.get("anyOf", ())) if "pattern" in part]
        if self.custom and patterns and not any(re.search(pattern, value) for pattern in patterns):
            self.errors.append(problem.invalid(path, value, f"{path} in body should match '{patterns[0]}'"))

    def _walk_object(self, schema: dict[str, Any], value: dict[str, Any], path: str, go_path: str, name: str) -> None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        fields = go_path.partition(".")[2]
        for key in list(value):
            below = f"{path}.{key}" if path else key
            if value[key] is None and not self.custom and (key in properties or isinstance(others, dict)):
                del value[key]  # null is the same as absent
            elif key in properties:
                struct = name or go_path.partition(".")[0]
                self.walk(properties[key], value[key], below, f"{struct}.{fields}.{key}" if fields else f"{struct}.{key}")
            elif others is False:
                self.unknown.append(below)
                del value[key]
            elif isinstance(others, dict):
                self.walk(others, value[key], below, go_path)
        if self.custom:
            missing = (key for key in schema.get("required", ()) if key not in value)
            self.errors.extend(problem.required(f"{path}.{key}" if path else key) for key in missing)

    def _mistyped(self, value: Any, allowed: set[str], path: str, go_path: str, name: str) -> None:
        expected = next(iter(sorted(allowed - {"null"})), "object")
        if self.custom:
            shown = type_name(value)
            text = f'{path} in body must be of type {expected}: "{shown}"'
            self.errors.append(problem.wrong_type(path, shown, text))
            return
        go_type = _GO_TYPES.get(expected) or {"array": "[]" + (name or "interface {}")}.get(expected, name or "map[string]string")
        raise problem.bad_request(f"json: cannot unmarshal {go_name(value)} into Go struct field {go_path} of type {go_type}")


def _allowed_types(schema: dict[str, Any]) -> set[str]:
    """The JSON types that a schema takes; empty when it takes all."""
    for combination in ("anyOf", "oneOf"):
        if combination in schema:
            parts = [_allowed_types(part) for part in schema[combination]]
            return set().union(*parts) if all(parts) else set()
    kind = schema.get("type", [])
    return {kind} if isinstance(kind, str) else set(kind)


def _fits(actual: str, allowed: set[str]) -> bool:
    return actual in allowed or (actual == "integer" and "number" in allowed)


def check(resource: Resource, data: Any, validation: str) -> list[str]:
    """Check kind, types and unknown fields of an object; unknown fields are removed from it.

    ``validation`` is the query's ``fieldValidation``: with ``Strict`` an unknown field is an error, with ``Warn`` a warning
    (the answer), with ``Ignore`` it is dropped in silence.

    Raises:
        ApiError: BadRequest for what can't be decoded, Invalid for wrong types in a custom resource.
    """
    _check_kind(resource, data)
    unknown = _check_fields(resource, data)
    if unknown and validation == "Strict":
        fields = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise Undecodable(resource, f"strict decoding error: {fields}")
    return [f'unknown field "{path}"' for path in unknown] if validation == "Warn" else []


class Undecodable(problem.ApiError):
    """400 for a body that is no object of its kind; ``why`` is what a patch is refused with."""

    def __init__(self, resource: Resource, why: str) -> None:
        self.why = why
        about = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
        super().__init__(400, "BadRequest", f"{about}: {why}")


def _check_kind(resource: Resource, data: Any) -> None:
    if not isinstance(data, dict):
        raise problem.bad_request(f"couldn't get version/kind; json parse error: json: cannot unmarshal {go_name(data)}")
    version, kind = data.setdefault("apiVersion", resource.api_version), data.setdefault("kind", resource.kind)
    if version != resource.api_version:
        raise problem.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})",
        )
    if kind != resource.kind:
        raise problem.bad_request(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: the kinds differ',
        )
    if data.get("metadata") is None:
        data["metadata"] = {}


def _check_fields(resource: Resource, data: dict[str, Any]) -> list[str]:
    checker = _Checker({}, custom=False)
    _decode(resource, lambda: checker.walk(_OBJECT_META, data["metadata"], "metadata", "ObjectMeta.metadata"))
    schema = _schema(resource)
    _check_status(resource, data)
    _decode(resource, lambda: quantities.make_canonical(resource, data))
    if schema is None:
        return checker.unknown
    body = _Checker(schema, custom=resource.custom)
    rest = {key: value for key, value in data.items() if key not in {"metadata", "status"}}
    _decode(resource, lambda: body.walk(schema, rest, "", resource.kind))
    for key in data.keys() - rest.keys() - {"metadata", "status"}:
        del data[key]
    if body.errors:
        name = str(data["metadata"].get("name", ""))
        raise problem.invalid_object(resource.kind, resource.group, name, body.errors)
    return [*checker.unknown, *body.unknown]


def _check_status(resource: Resource, data: dict[str, Any]) -> None:
    """What writes it is trusted with its fields, but it must be an object."""
    status = data.get("status")
    if isinstance(status, dict | None):
        return
    if resource.custom:
        kind = type_name(status)
        error = problem.wrong_type("status", kind, f'status in body must be of type object: "{kind}"')
        raise problem.invalid_object(resource.kind, resource.group, str(data["metadata"].get("name", "")), [error])
    kind = resource.kind
    raise Undecodable(
        resource, f"json: cannot unmarshal {go_name(status)} into Go struct field {kind}.status of type v1.{kind}Status"
    )


def _decode(resource: Resource, step: Callable[[], None]) -> None:
    try:
        step()
    except problem.ApiError as error:
        raise Undecodable(resource, error.message) from error
