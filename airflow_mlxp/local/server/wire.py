"""What a request says and how an answer is written: paths, bodies, media types, lists."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from aiohttp import web

from airflow_mlxp.local.server import problem, protobuf
from airflow_mlxp.local.server.resources import BY_PATH, NAMESPACES, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.server.listing import Page
    from airflow_mlxp.local.server.storage import Stored

JSON = "application/json"
_OFFERED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL path names."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name in the storage."""
        return self.namespace, self.name


def parse_path(path: str) -> Target | None:
    """The resource behind a path below ``/api`` or ``/apis``; None when there is none."""
    steps = path.strip("/").split("/")
    if steps[0] == "api" and len(steps) > 2:
        group, version, rest = "", steps[1], steps[2:]
    elif steps[0] == "apis" and len(steps) > 3:
        group, version, rest = steps[1], steps[2], steps[3:]
    else:
        return None
    namespace = ""
    if rest[0] == NAMESPACES.plural and len(rest) > 2 and (group, version, rest[2]) in BY_PATH:
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or not all(rest) or (namespace and not resource.namespaced):
        return None
    name, subresource = ([*rest[1:], "", ""])[:2]
    known = ("", *resource.subresources, *(("status",) if resource.status else ()))
    if subresource not in known or (name and resource.namespaced and not namespace):
        return None
    return Target(resource, namespace, name, subresource)


async def read_body(request: web.Request) -> Any:
    """The decoded body: JSON, or YAML or protobuf where the client says so; None when empty.

    Raises:
        ApiError: BadRequest for what can't be read, UnsupportedMediaType for protobuf of a kind that is not read.
    """
    raw = await request.read()
    if not raw:
        return None
    media_type = request.content_type
    try:
        if media_type.endswith("yaml"):
            return yaml.safe_load(raw)
        if media_type.endswith(("json", "octet-stream")) or media_type == "text/plain":
            return json.loads(raw)
        if media_type == protobuf.MEDIA_TYPE and (decoded := protobuf.decode(raw)) is not None:
            return decoded
    except (ValueError, KeyError, yaml.YAMLError) as error:
        raise problem.bad_request(f"couldn't get version/kind; json parse error: {error}") from error
    raise problem.unsupported_media_type([JSON, "application/yaml"])


def wants_table(request: web.Request) -> bool:
    """Whether the client asks for a Table; refuses a client that takes no JSON.

    Raises:
        ApiError: NotAcceptable.
    """
    accepted = request.headers.get("Accept", "") or "*/*"
    choices = [choice.strip() for choice in accepted.split(",")]
    for choice in choices:
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        if media_type == JSON and "as=Table" in parameters:
            return True
        if media_type in {JSON, "*/*", "application/*"} and not any(p.startswith("as=") for p in parameters):
            return False
    raise problem.not_acceptable(_OFFERED)


def reply(document: bytes, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """An answer in JSON, with warnings as the header that clients print."""
    response = web.Response(body=document + b"\n", status=status, content_type=JSON)
    for warning in warnings or ():
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def reply_json(document: Mapping[str, Any], status: int = 200) -> web.Response:
    """An answer from an object."""
    return reply(msgspec.json.encode(document), status)


def reply_problem(error: problem.ApiError) -> web.Response:
    """The Status body of an error."""
    response = reply_json(error.status, error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def list_document(resource: Resource, page: Page) -> bytes:
    """A list object around items that are encoded already."""
    meta: dict[str, Any] = {"resourceVersion": str(page.version)}
    if page.token:
        meta["continue"] = page.token
    if page.remaining is not None:
        meta["remainingItemCount"] = page.remaining
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
    items = b",".join(stored.item() for stored in page.items)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def deleted_status(stored: Stored) -> dict[str, Any]:
    """The Status that tells a completed deletion."""
    resource = stored.resource
    details = {"name": stored.key[1], "group": resource.group, "kind": resource.plural, "uid": stored.uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
