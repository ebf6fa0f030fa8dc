"""``pods/log``: passed on from the kubelet of the pod's node, with the checks that the API server makes before."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from airflow_mlxp.local.server import parameters, problem
from airflow_mlxp.local.server.resources import NODES, PODS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from airflow_mlxp.local.server import wire
    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.storage import Object

_FLAGS = ("follow", "timestamps", "previous")
_COUNTS = ("sinceSeconds", "tailLines", "limitBytes")
_CONNECT_SECONDS = 10.0


class LogProxy:
    """Reads container logs for clients; ``kubelet_tls`` is how kubelets are called."""

    def __init__(self, registry: Registry, kubelet_tls: ssl.SSLContext, stopping: asyncio.Event) -> None:
        self._registry, self._kubelet_tls, self._stopping = registry, kubelet_tls, stopping

    async def handle(self, request: web.Request, target: wire.Target) -> web.StreamResponse:
        """Answer ``GET .../pods/<name>/log``.

        Raises:
            ApiError: for an unknown pod or container, one that hasn't started, or a bad option.
        """
        pod = self._registry.existing(PODS, target.key).data
        query = _checked_query(request.query, target.name)
        container = _container(pod, request.query.get("container", ""))
        url = self._kubelet_url(pod, container)
        if url is None:
            return web.Response(status=204)
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
                session.get(url, params=query, ssl=self._kubelet_tls) as answer,
            ):
                return await self._pass_on(request, answer, pod, container)
        except aiohttp.ClientConnectorError as error:
            why = f'Get "{url}": dial tcp {error.host}:{error.port}: connect: connection refused'
            raise problem.ApiError(500, "", why) from error

    def _kubelet_url(self, pod: Object, container: str) -> str | None:
        """Where the node serves the log; None while the pod has no node, for which the answer is an empty one.

        Raises:
            ApiError: NotFound, when there is no Node object. The real server calls it a pod.
        """
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            return None
        stored = self._registry.store.get(NODES, ("", node_name))
        if stored is None:
            raise problem.not_found(PODS.plural, "", node_name)
        node = stored.data.get("status") or {}
        addresses = {entry["type"]: entry["address"] for entry in node.get("addresses") or ()}
        address = addresses.get("InternalIP") or addresses.get("Hostname") or "127.0.0.1"
        port = ((node.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 10250)
        meta = pod["metadata"]
        return f"https://{address}:{port}/containerLogs/{meta['namespace']}/{meta['name']}/{container}"

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, pod: Object, container: str
    ) -> web.StreamResponse:
        if answer.status >= 400:
            raise _refused(answer.status, await answer.text(), pod, container)
        response = web.StreamResponse(headers={"Content-Type": "text/plain", "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await _copy(answer, response, stop)
            await response.write_eof()
        except (ConnectionResetError, aiohttp.ClientPayloadError):
            if request.transport is not None:
                request.transport.abort()  # a stream that broke must not look like one that ended
        finally:
            stop.cancel()
        return response


async def _copy(answer: aiohttp.ClientResponse, response: web.StreamResponse, stop: asyncio.Future[Any]) -> None:
    """Copy until either side ends or the server stops."""
    while True:
        chunk = asyncio.ensure_future(answer.content.readany())
        try:
            await asyncio.wait({chunk, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not chunk.done():
                return
            data = chunk.result()
        finally:
            chunk.cancel()
        if not data:
            return
        await response.write(data)


def _checked_query(query: Mapping[str, str], pod: str) -> dict[str, str]:
    """The options for the kubelet.

    Raises:
        ApiError: Invalid or BadRequest for options that can't be.
    """
    passed = {name: "true" for name in _FLAGS if parameters.flag(query, name)}
    errors = []
    for name in _COUNTS:
        count = parameters.integer(query, name)
        if count is None:
            continue
        passed[name] = str(count)
        least = 0 if name == "tailLines" else 1
        if count < least:
            errors.append(problem.invalid(name, count, f"must be greater than {'or equal to 0' if not least else '0'}"))
    if since := query.get("sinceTime"):
        if "sinceSeconds" in passed:
            text = "at most one of `sinceTime` or `sinceSeconds` may be specified"
            errors.append(problem.forbidden_field("[]", text))
        _check_time(since)
        passed["sinceTime"] = since
    if "stream" in query:
        errors.append(problem.forbidden_field("stream", "may not be specified"))
    if errors:
        raise problem.invalid_object("PodLogOptions", "", pod, errors)
    return passed


def _check_time(text: str) -> None:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError as error:
        why = f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
        raise problem.bad_request(why) from error


def _container(pod: Object, asked: str) -> str:
    """The container whose log is meant.

    Raises:
        ApiError: BadRequest, when none is named and there are several, or the pod has none of that name.
    """
    meta, spec = pod["metadata"], pod["spec"]
    containers = [container["name"] for container in spec.get("containers") or ()]
    init = [container["name"] for container in spec.get("initContainers") or ()]
    if asked:
        if asked not in (*containers, *init):
            raise problem.bad_request(f"container {asked} is not valid for pod {meta['name']}")
        return asked
    default = (meta.get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if len(containers) == 1:
        return str(containers[0])
    if default in containers:
        return str(default)
    text = f"a container name must be specified for pod {meta['name']}, choose one of: [{' '.join(containers)}]"
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise problem.bad_request(text)


def _refused(status: int, text: str, pod: Object, container: str) -> problem.ApiError:
    """The kubelet's refusal as the API server tells it."""
    name = pod["metadata"]["name"]
    text = text.strip() or f'container "{container}" in pod "{name}" is not available'
    if status == 404:
        details = {"name": name, "kind": "pods/log"}
        message = f"the server could not find the requested resource ( pods/log {name})"
        return problem.ApiError(404, "NotFound", message, details)
    if status == 400:
        return problem.bad_request(text)
    return problem.ApiError(500, "InternalError", f"Internal error occurred: {text}", {})
