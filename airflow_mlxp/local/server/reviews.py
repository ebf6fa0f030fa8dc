"""Questions of a user about himself: ``kubectl auth can-i``, ``can-i --list`` and ``whoami``. Nothing is stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import authorization, problem, wire
from airflow_mlxp.local.server.resources import ACCESS_REVIEWS, RULES_REVIEWS, USER_REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aiohttp import web

_ANY = "*"


def add_routes(
    application: web.Application, user_of: Callable[[web.Request], str], denied: Collection[authorization.Denied]
) -> None:
    """Serve the three reviews; ``denied`` is read at each request."""

    def serve(status_of: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Callable[[web.Request], Any]:
        async def handler(request: web.Request) -> web.Response:
            body = await wire.read_body(request)
            if not isinstance(body, dict) or not isinstance(body.get("spec") or {}, dict):
                raise problem.bad_request("the body is no review")
            return wire.reply_json({**body, "status": status_of(user_of(request), body.get("spec") or {})}, 201)

        return handler

    def access(user: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": _is_allowed(user, spec.get("resourceAttributes") or {}, denied)}

    def rules(user: str, _: dict[str, Any]) -> dict[str, Any]:
        return {"resourceRules": _rules(user, denied), "nonResourceRules": [{"verbs": [_ANY], "nonResourceURLs": [_ANY]}]} | {
            "incomplete": any(rule.user == user for rule in denied)
        }

    def who(user: str, _: dict[str, Any]) -> dict[str, Any]:
        return {"userInfo": {"username": user, "groups": ["system:authenticated"]}}

    for resource, status_of in ((ACCESS_REVIEWS, access), (RULES_REVIEWS, rules), (USER_REVIEWS, who)):
        application.router.add_post(f"{resource.root}/{resource.plural}", serve(status_of))


def _is_allowed(user: str, asked: dict[str, Any], denied: Collection[authorization.Denied]) -> bool:
    resource = f"{asked.get('resource', '')}/{asked['subresource']}" if asked.get("subresource") else asked.get("resource", "")
    verb = asked.get("verb", "")
    return not any(
        rule.user == user and verb in {rule.verb, _ANY} and resource in {rule.resource, _ANY} for rule in tuple(denied)
    )


def _rules(user: str, denied: Collection[authorization.Denied]) -> list[dict[str, Any]]:
    """Everything, or, as RBAC can't take rights away, nothing where something is denied: the list is then marked incomplete."""
    if any(rule.user == user for rule in tuple(denied)):
        return []
    return [{"verbs": [_ANY], "apiGroups": [_ANY], "resources": [_ANY]}]
