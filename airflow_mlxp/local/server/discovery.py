"""Discovery: which groups, versions and resources the server has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import wire
from airflow_mlxp.local.server.resources import CONNECTIONS, GROUP_VERSIONS, RESOURCES, Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from airflow_mlxp.local.server.settings import ServerSettings


def add_routes(application: web.Application, settings: ServerSettings) -> None:
    """Serve ``/version``, ``/api``, ``/apis`` and the resource list of each group and version."""
    documents: dict[str, Mapping[str, Any]] = {"/version": _version(settings.git_version)}
    documents["/api"] = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    groups = [_group(group, version) for group, version in GROUP_VERSIONS if group]
    documents["/apis"] = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for group, version in GROUP_VERSIONS:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        documents[root] = _resources(group, version)
        if group:
            documents[f"/apis/{group}"] = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, version)}
    for path, document in documents.items():
        application.router.add_get(path, _serve(document))
        if path != "/version":
            application.router.add_get(f"{path}/", _serve(document))


def _serve(document: Mapping[str, Any]) -> Any:
    async def handler(_: web.Request) -> web.Response:
        return wire.reply_json(document)

    return handler


def _version(git_version: str) -> dict[str, str]:
    major, minor, *_ = git_version.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{git_version}+airflow-mlxp-local",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def _group(group: str, version: str) -> dict[str, Any]:
    preferred = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [preferred], "preferredVersion": preferred}


def _resources(group: str, version: str) -> dict[str, Any]:
    group_version = f"{group}/{version}" if group else version
    entries = [entry for r in RESOURCES if (r.group, r.version) == (group, version) for entry in _entries(r)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _entries(resource: Resource) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    verbs = {"log": ["get"], "binding": ["create"], "status": ["get", "patch", "update"]}
    verbs |= {name: ["create", "get"] for name in CONNECTIONS}
    below = (*resource.subresources, *(("status",) if resource.status else ()))
    return [entry, *(_subresource(resource, name, verbs[name]) for name in below)]


def _subresource(resource: Resource, name: str, verbs: list[str]) -> dict[str, Any]:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": "Binding" if name == "binding" else resource.kind,
        "verbs": verbs,
    }
