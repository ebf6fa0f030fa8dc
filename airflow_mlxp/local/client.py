"""A small Kubernetes client for the embedded platform's own controllers and agent, over HTTP(S) as any other client.

It shares nothing with the product's client: a misreading of the API by one would be hidden by the same misreading in the other.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import msgspec
import yaml

from airflow_mlxp import errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object and where the API serves it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of one object, or of a subresource of it; an empty namespace is all or none."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        parts += [f"namespaces/{namespace}"] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
NODES = Resource("", "v1", "nodes", "Node")
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
JOBS = Resource("batch", "v1", "jobs", "Job")
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Address, CA certificate (PEM) and bearer token of an API server."""

    server: str
    ca_pem: str
    token: str

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Connection:
        """Read the current context of a kubeconfig file that holds a token."""
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        if "certificate-authority-data" in cluster:
            ca_pem = base64.b64decode(cluster["certificate-authority-data"]).decode()
        else:
            ca_pem = Path(cluster["certificate-authority"]).read_text(encoding="utf-8")
        return cls(server=cluster["server"], ca_pem=ca_pem, token=user["token"])


def _named(entries: list[Object], name: str) -> Object:
    return next(entry for entry in entries if entry["name"] == name)


class Client:
    """Calls one API server; errors are ``airflow_mlxp.errors.ClusterError``, an unreachable server ``aiohttp.ClientError``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None

    @property
    def ca_pem(self) -> str:
        """Certificate of the cluster's authority."""
        return self._connection.ca_pem

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cadata=self._connection.ca_pem)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {self._connection.token}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        return await self.request("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """One object, or None when there is none."""
        try:
            return await self.get(resource, namespace, name)
        except errors.NotFound:
            return None

    async def list(self, resource: Resource, namespace: str = "", *, selector: str = "") -> Object:
        """The List object of all matching objects; each item gets the apiVersion and kind that lists leave out."""
        answer = await self.request("GET", resource.path(namespace), params={"labelSelector": selector} if selector else None)
        answer["items"] = [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in answer["items"] or []]
        return answer

    async def create(self, resource: Resource, namespace: str, body: Object, *, subresource: str = "", name: str = "") -> Object:
        """POST an object, or a subresource (``binding``) of the object called ``name``."""
        return await self.request("POST", resource.path(namespace, name, subresource), body=body)

    async def update_status(self, resource: Resource, body: Object) -> Object:
        """PUT the status; Conflict when the object has changed since ``body`` was read."""
        metadata = body["metadata"]
        return await self.request("PUT", resource.path(metadata["namespace"], metadata["name"], "status"), body=body)

    async def patch(
        self, resource: Resource, namespace: str, name: str, body: Any, *, subresource: str = "", content_type: str = MERGE_PATCH
    ) -> Object:
        """PATCH an object; ``body`` is a merge patch, or a list of operations with ``content_type=JSON_PATCH``."""
        path = resource.path(namespace, name, subresource)
        return await self.request("PATCH", path, body=body, content_type=content_type)

    async def delete(
        self, resource: Resource, obj: Object, *, propagation: str = "Background", grace_seconds: int | None = None
    ) -> None:
        """Delete exactly this object (by uid); nothing happens when it is gone already."""
        metadata = obj["metadata"]
        body: Object = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": propagation}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self.request("DELETE", resource.path(metadata.get("namespace", ""), metadata["name"]), body=body)
        except (errors.NotFound, errors.Conflict):
            return

    async def watch(self, resource: Resource, *, resource_version: str, selector: str = "") -> AsyncIterator[tuple[str, Object]]:
        """Yield (type, object) from one watch call until the server ends it; Gone is raised, in whichever form it comes."""
        params = {"watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true", "timeoutSeconds": "240"}
        if selector:
            params["labelSelector"] = selector
        async with self._open("GET", resource.path(), params=params) as response:
            await _raise_for_error(response, f"WATCH {resource.plural}")
            async for line in _lines(response.content):
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    kind = errors.cluster_error_type(status.get("code", 500))
                    raise kind(status.get("code", 500), reason=status.get("reason", ""), message=status.get("message", ""))
                yield event["type"], event["object"]

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        """One call with a JSON answer."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        async with self._open(method, path, params=params, data=data, headers=headers) as response:
            await _raise_for_error(response, f"{method} {path}")
            answer: Object = msgspec.json.decode(await response.read())
            return answer

    def _open(self, method: str, path: str, **options: Any) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            raise RuntimeError("the client is not open: use it as an async context manager")
        return self._session.request(method, f"{self._connection.server}{path}", **options)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split on newlines by hand: aiohttp's own line reader fails on lines above its buffer."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


async def _raise_for_error(response: aiohttp.ClientResponse, request: str) -> None:
    if response.status < 400:
        return
    text = await response.text(errors="replace")
    try:
        status = msgspec.json.decode(text)
    except msgspec.DecodeError:
        status = {}
    if not isinstance(status, dict):
        status = {}
    raise errors.cluster_error_type(response.status)(
        response.status,
        reason=status.get("reason", ""),
        message=status.get("message", text[:256]),
        request=request,
        details=status.get("details"),
    )
