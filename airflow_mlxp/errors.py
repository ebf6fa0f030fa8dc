"""Every exception that the package raises, by who has to act.

MLXPError
├── InvalidArgument (ValueError)      the caller: an argument, template value or manifest field is wrong; nothing was created
├── AccessError                       the deployment: the connection, kubeconfig or credential can't be used
├── ClusterError                      the API server answered with an error
│   ├── BadRequest          400
│   ├── Unauthorized        401
│   ├── Forbidden           403
│   ├── NotFound            404
│   ├── Conflict            409       AlreadyExists or a failed precondition
│   ├── Gone                410       the resourceVersion is too old
│   ├── Unprocessable       422       schema or admission refused it, or a JSON patch test failed
│   ├── TooManyRequests     429
│   └── ServerFailure       5xx
├── ClusterUnreachable                the API server didn't answer within the bounds of the retry
└── WorkloadError                     the workload did not end well; carries the diagnosis
    ├── PermanentFailure              refused or impossible: a retry can't help
    ├── InfrastructureFailure         evicted, deleted, outage: a retry is right
    └── WorkloadFailure               the user's program: the task's own retries decide
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.models import Diagnosis


class MLXPError(Exception):
    """Base of all errors of this package."""


class InvalidArgument(MLXPError, ValueError):
    """An argument, a template's value or a manifest field is wrong. Nothing was created.

    ``argument`` is the Python argument or the field's path, ``value`` what was given, ``expected`` what is accepted and
    ``fix`` what to do about it.
    """

    def __init__(self, argument: str, value: object, *, expected: str, fix: str = "") -> None:
        text = f"{argument}={value!r}: expected {expected}"
        super().__init__(f"{text}; {fix}" if fix else text)
        self.argument, self.value, self.expected, self.fix = argument, value, expected, fix


class AccessError(MLXPError):
    """The connection, kubeconfig or credential can't be used; the text names the field and the way out."""


class ClusterError(MLXPError):
    """The API server refused a request.

    ``status`` is the HTTP status, ``reason`` and ``message`` are those of the ``Status`` body (``metav1.Status``), ``details``
    its details, ``retry_after`` the seconds of the Retry-After header, ``request`` the verb and path.
    """

    def __init__(
        self,
        status: int,
        *,
        reason: str = "",
        message: str = "",
        request: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}" if request else f"{status} {reason}: {message}")
        self.status, self.reason, self.message, self.request = status, reason, message, request
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after


class BadRequest(ClusterError):
    """400: the request or the object can't be decoded; strict field validation answers so."""


class Unauthorized(ClusterError):
    """401: the credential is missing, wrong or has expired."""


class Forbidden(ClusterError):
    """403: a role lacks the rule, a quota is exceeded or an admission plugin refused."""


class NotFound(ClusterError):
    """404: no such object, namespace or API."""


class Conflict(ClusterError):
    """409: the name is taken, or a precondition on uid or resourceVersion failed."""


class Gone(ClusterError):
    """410: the resourceVersion or continue token is too old; list anew."""


class Unprocessable(ClusterError):
    """422: validation refused the object, or the ``test`` of a JSON patch failed."""


class TooManyRequests(ClusterError):
    """429: the server is busy; ``retry_after`` says for how long."""


class ServerFailure(ClusterError):
    """5xx: the server or a webhook it calls failed."""


class ClusterUnreachable(MLXPError):
    """The API server could not be reached, or the connection broke, more often than the retry allows."""


class WorkloadError(MLXPError):
    """The workload did not end well. ``diagnosis`` says why; the text is its sentence, evidence and advice."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.as_text())
        self.diagnosis = diagnosis


class PermanentFailure(WorkloadError):
    """Refused or impossible: another try can't help."""


class InfrastructureFailure(WorkloadError):
    """The platform's fault (evicted, deleted, expired, outage): another try is right."""


class WorkloadFailure(WorkloadError):
    """The user's program ended badly: the task's own ``retries`` decide."""


_BY_STATUS: dict[int, type[ClusterError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Unprocessable,
    429: TooManyRequests,
}


def cluster_error_type(status: int) -> type[ClusterError]:
    """The class for an HTTP status; ``ServerFailure`` for all of 5xx, ``ClusterError`` for what has no class of its own."""
    return ServerFailure if status >= 500 else _BY_STATUS.get(status, ClusterError)
