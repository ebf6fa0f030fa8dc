"""Who may do what: everybody everything, less what a test or a user of the platform denies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_mlxp.local.server import parameters, problem, wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp import web

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True)
class Denied:
    """A rule that takes a right away: the user's name, the verb as RBAC spells it, the resource (``jobs``, ``pods/log``)."""

    user: str
    verb: str
    resource: str


def check(request: web.Request, user: str, denied: Collection[Denied]) -> None:
    """Refuse a request that a rule denies.

    Raises:
        ApiError: Forbidden, in the words of RBAC.
    """
    target = wire.parse_path(request.path) if denied else None
    if target is None:
        return
    verb, resource = _verb(request, target), target.resource
    below = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    if Denied(user, verb, below) not in denied:
        return
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    why = f'User "{user}" cannot {verb} resource "{below}" in API group "{resource.group}" {where}'
    raise problem.not_authorized(resource.plural, resource.group, target.name, why)


def _verb(request: web.Request, target: wire.Target) -> str:
    if request.method == "GET":
        watch = "watch" if parameters.flag(request.query, "watch") else "list"
        return "get" if target.name else watch
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(request.method, request.method.lower())
