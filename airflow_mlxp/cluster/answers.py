"""What an API server's answer means: errors from ``Status`` bodies and from anything else, Retry-After, warnings. Pure."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_mlxp import errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

_EXCERPT = 256
"""Characters of a body that is no ``Status``: enough to recognise a proxy's page, too little for secrets and pages of HTML."""
_NO_SUCH_API = b"404 page not found"
"""What an API server says for a group or version that it does not serve; only that is no ``Status``."""
_TAGS = re.compile(rb"(?s)<(script|style)\b.*?</\1\s*>|<[^>]*>")
_WARNING = re.compile(r'(\d{3}) \S+ "((?:[^"\\]|\\.)*)"')


class _Status(msgspec.Struct):
    """``metav1.Status`` as far as it is read."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


def error_of(status: int, body: bytes, *, request: str, retry_after: float | None = None) -> errors.ClusterError:
    """The error for an HTTP answer that is no success; a body that is no ``Status`` is told as a short excerpt."""
    try:
        parsed = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        parsed = _Status()
    if parsed.kind != "Status":
        parsed = _Status(reason=_phrase(status), message=excerpt(body) or "the answer has no text")
    return _error(status, parsed, request, retry_after)


def is_foreign(status: int, body: bytes) -> bool:
    """Whether a 404 comes from a load balancer or proxy. To take it for the API server's word would mean "deleted"."""
    return status == 404 and b'"Status"' not in body and body.strip() != _NO_SUCH_API


def error_of_event(object_: bytes | msgspec.Raw, *, request: str) -> errors.ClusterError:
    """The error that an ERROR event inside a watch stands for."""
    try:
        parsed = msgspec.json.decode(object_, type=_Status)
    except msgspec.MsgspecError:
        parsed = _Status(message=excerpt(bytes(object_)))
    return _error(parsed.code or 500, parsed, request, None)


def _error(status: int, parsed: _Status, request: str, retry_after: float | None) -> errors.ClusterError:
    details = parsed.details or {}
    if retry_after is None and isinstance(seconds := details.get("retryAfterSeconds"), int) and seconds > 0:
        retry_after = float(seconds)
    return errors.cluster_error_type(status)(
        status, reason=parsed.reason, message=parsed.message, request=request, details=details, retry_after=retry_after
    )


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def excerpt(body: bytes) -> str:
    """The beginning of a body as one line of readable text."""
    text = _TAGS.sub(b" ", body[: 64 * _EXCERPT]).decode(errors="replace")
    text = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return text if len(text) <= _EXCERPT else f"{text[: _EXCERPT - 1]}…"


def retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds that a Retry-After header (a number or a date) asks for; None without a header that makes sense."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def warnings(headers: Iterable[str]) -> tuple[str, ...]:
    """Texts of the ``299`` warnings in Warning headers (RFC 7234 5.5, as the API server writes them)."""
    found = (match for header in headers for match in _WARNING.finditer(header))
    return tuple(re.sub(r"\\(.)", r"\1", match[2]) for match in found if match[1] == "299")
