"""Lists: whole, in pages by ``limit`` and ``continue``, at a past resourceVersion."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_mlxp.local.server import parameters, problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.server.resources import Resource
    from airflow_mlxp.local.server.selectors import Selection
    from airflow_mlxp.local.server.storage import Store, Stored

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted "
    "between the time the first chunk was returned and now may show up in the list."
)
_VERSION_END = 2**64
_LONGEST_VERSION = 40
"""Digits; Python refuses to convert very long texts."""
_MATCHES = ["Exact", "NotOlderThan", ""]


@dataclass(frozen=True, slots=True)
class Page:
    """A list or a part of it."""

    items: list[Stored]
    version: int
    token: str = ""
    """``metadata.continue``; empty on the last page."""
    remaining: int | None = None
    """``metadata.remainingItemCount``; only without selectors, as the real server can't know it otherwise."""


def version_of(query: Mapping[str, str]) -> int | None:
    """``resourceVersion`` of a query: None when not given or empty.

    Raises:
        ApiError: 500 without a reason, for what is no version; a list makes BadRequest of it.
    """
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise _no_version(text, "invalid syntax")
    if len(text) > _LONGEST_VERSION or int(text) >= _VERSION_END:
        raise _no_version(text, "value out of range")
    return int(text)


def _no_version(text: str, why: str) -> problem.ApiError:
    return problem.ApiError(500, "", f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {why}')


def require_reached(store: Store, version: int | None) -> None:
    """Refuse a version of the future.

    Raises:
        ApiError: Timeout (504).
    """
    if version is not None and version > store.version:
        raise problem.version_too_large(version, store.version)


def page(store: Store, resource: Resource, selection: Selection, query: Mapping[str, str]) -> Page:
    """The objects that a list request asks for.

    Raises:
        ApiError: Expired for a version or token that is too old, Timeout for one of the future, BadRequest or Invalid
            for a parameter that can't be.
    """
    limit = _checked_limit(query)
    if token := query.get("continue", ""):
        version, start = _read_token(token)
        if version < 0:
            version = store.version
        elif not store.kept(version):
            raise _too_old(store, start)
        items = store.snapshot(resource, selection.namespace, version)
    else:
        asked, start = _list_version(query), ("", "")
        require_reached(store, asked)
        if query.get("resourceVersionMatch") == "Exact" and asked:
            if not store.kept(asked):
                raise problem.expired("The resourceVersion for the provided list is too old.")
            version, items = asked, store.snapshot(resource, selection.namespace, asked)
        else:
            version, items = store.version, store.items(resource, selection.namespace)
    chosen = [stored for stored in items if stored.key > start and selection.matches(stored.data)]
    if limit <= 0 or len(chosen) <= limit:
        return Page(chosen, version)
    rest = len(chosen) - limit
    chosen = chosen[:limit]
    return Page(chosen, version, _write_token(version, chosen[-1].key), rest if selection.is_everything else None)


def _checked_limit(query: Mapping[str, str]) -> int:
    """``limit``; 0 or less is none. Checks the other parameters of a list on the way."""
    limit = parameters.integer(query, "limit") or 0
    parameters.integer(query, "timeoutSeconds")
    errors, match = [], query.get("resourceVersionMatch", "")
    if match and not query.get("resourceVersion"):
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        errors.append(problem.forbidden_field("resourceVersionMatch", text))
    if match not in _MATCHES:
        errors.append(problem.not_supported("resourceVersionMatch", match, _MATCHES))
    if parameters.flag(query, "sendInitialEvents") is not None:
        errors.append(problem.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise problem.invalid_object("ListOptions", "meta.k8s.io", "", errors)
    return limit


def _list_version(query: Mapping[str, str]) -> int | None:
    try:
        return version_of(query)
    except problem.ApiError as error:
        raise problem.bad_request(f"invalid resource version: {error.message}") from error


def _too_old(store: Store, start: tuple[str, str]) -> problem.ApiError:
    """410 with a token by which the client may go on at the present version."""
    error = problem.expired(_TOO_OLD)
    error.status["metadata"] = {"continue": _write_token(-1, start), "resourceVersion": str(store.version)}
    return error


def _write_token(version: int, start: tuple[str, str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(start)})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        content = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = content["start"].partition("/")
        return int(content["rv"]), (namespace, name)
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise problem.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
