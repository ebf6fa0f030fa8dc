"""Errors of the API server as ``metav1.Status`` bodies, with the reasons, codes and texts of the real kube-apiserver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field error of a validation (``field.Error`` of apimachinery)."""

    reason: str
    """``FieldValueRequired``, ``FieldValueInvalid``, ... as in ``Status.details.causes``."""
    field: str
    body: str
    """The text behind the field, such as ``Required value: must be set``."""

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


def _shown(value: object) -> str:
    """A bad value as the server prints it: strings quoted, everything else as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def required(field: str, detail: str = "") -> FieldError:
    """The field must be given."""
    return FieldError("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: object, detail: str) -> FieldError:
    """The value breaks a rule."""
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def wrong_type(field: str, value: object, detail: str) -> FieldError:
    """The value's type is not the one of the custom resource's schema; only the type's name is shown."""
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {_shown(value)}: {detail}")


def forbidden_field(field: str, detail: str) -> FieldError:
    """The field must not be given like this."""
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def not_found_field(field: str, value: object) -> FieldError:
    """The value names something that the object doesn't hold."""
    return FieldError("FieldValueNotFound", field, f"Not found: {_shown(value)}")


def duplicate_field(field: str, value: object) -> FieldError:
    """The value occurs twice where it must be unique."""
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def not_supported(field: str, value: object, supported: list[str]) -> FieldError:
    """The value is none of a fixed set."""
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return FieldError("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {choices}")


def aggregate(errors: list[FieldError]) -> str:
    """Several errors in one text, as apimachinery's ``Aggregate`` prints them: each once, in brackets if more than one."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


class ApiError(Exception):
    """An answer other than success. ``status`` is the ``metav1.Status`` body, ``code`` its HTTP status."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, *, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.status["reason"] = reason
        if details is not None:
            self.status["details"] = details if retry_after is None else {**details, "retryAfterSeconds": retry_after}
        self.status["code"] = code


def qualified(plural: str, group: str) -> str:
    """``jobs.batch``; ``pods`` in the core group."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details


def bad_request(message: str) -> ApiError:
    """400: the request can't be understood."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no credential, or one that is not known (any more)."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(plural: str, group: str, name: str, why: str, *, causes: list[dict[str, str]] | None = None) -> ApiError:
    """403 of an admission plugin: ``pods "x" is forbidden: why``."""
    details = _details(name, group, plural)
    if causes:
        details["causes"] = causes
    return ApiError(403, "Forbidden", f'{qualified(plural, group)} "{name}" is forbidden: {why}', details)


def not_authorized(plural: str, group: str, name: str, why: str) -> ApiError:
    """403 of the authorizer: ``jobs.batch is forbidden: User "x" cannot ...``."""
    about = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return ApiError(403, "Forbidden", f"{about} is forbidden: {why}", _details(name, group, plural))


def denied_by_webhook(webhook: str, message: str) -> ApiError:
    """403 of a validating webhook (controller-runtime answers a validation error with code 403)."""
    return ApiError(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {message}')


def not_found(plural: str, group: str, name: str) -> ApiError:
    """404: ``jobs.batch "x" not found``."""
    return ApiError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _details(name, group, plural))


def no_such_resource() -> ApiError:
    """404: the API group doesn't serve this path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    """405: the resource doesn't know this verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_implemented(why: str) -> ApiError:
    """501: Kubernetes has it, this server doesn't."""
    return ApiError(501, "NotImplemented", why, {})


def not_acceptable(offered: str) -> ApiError:
    """406: none of the media types that the client accepts can be written."""
    return ApiError(406, "NotAcceptable", f"only the following media types are accepted: {offered}")


def already_exists(plural: str, group: str, name: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{qualified(plural, group)} "{name}" already exists', _details(name, group, plural))


def conflict(kind: str, group: str, name: str, why: str) -> ApiError:
    """409: ``Operation cannot be fulfilled on jobs.batch "x": why``."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(kind, group)} "{name}": {why}',
        _details(name, group, kind),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def expired(message: str) -> ApiError:
    """410: the version that was asked for is no longer kept."""
    return ApiError(410, "Expired", message)


def unsupported_media_type(accepted: list[str]) -> ApiError:
    """415: the body's media type is not one of the accepted."""
    types = ", ".join(accepted)
    return ApiError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {types}",
    )


def invalid_object(kind: str, group: str, name: str, errors: list[FieldError]) -> ApiError:
    """422: ``Job.batch "x" is invalid: ...`` with one cause for each error."""
    details = _details(name, group, kind)
    details["causes"] = [{"reason": error.reason, "message": error.body, "field": error.field} for error in errors]
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {aggregate(errors)}', details)


def patch_not_applicable() -> ApiError:
    """422: a JSON patch whose operations can't be applied, a failed ``test`` above all. The real server names no cause."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def version_too_large(asked: int, current: int) -> ApiError:
    """504: a resourceVersion of the future, as after a restore of the storage."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Too large resource version: {asked}, current: {current}"
    return ApiError(504, "Timeout", f"Timeout: {message}", {"causes": causes}, retry_after=1)


def service_unavailable(message: str) -> ApiError:
    """503: something behind the server doesn't answer."""
    return ApiError(503, "ServiceUnavailable", message)
