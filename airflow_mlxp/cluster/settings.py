"""Every time bound and size limit of the cluster layer, each with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Bounds of the conversation with one API server."""

    connect_timeout: float = 10.0
    """Seconds for TCP and TLS. A reachable API server needs milliseconds; three lost SYN packets need 7 s."""
    request_timeout: float = 35.0
    """Seconds for one try of a plain request. Admission webhooks may take up to 30 s (their ``timeoutSeconds``)."""
    request_deadline: float = 60.0
    """Seconds for all tries of a plain request: spans the restart of an API server behind a load balancer."""
    backoff_initial: float = 0.25
    """Seconds before the first repetition; doubles with each further one."""
    backoff_maximum: float = 8.0
    """Longest pause in seconds between repetitions, unless the server asks for more by Retry-After."""
    watch_timeout: float = 300.0
    """Least seconds (``timeoutSeconds``) after which the server ends a watch; up to twice as many, so that watches spread."""
    watch_inactivity: float = 70.0
    """Seconds without any event, bookmarks included, before a watch counts as dead. Bookmarks come about each minute."""
    log_inactivity: float = 300.0
    """Seconds of silence before a followed log ends and is opened anew. A quiet program is normal, so this only bounds
    how long a connection that died without a word goes unnoticed."""
    max_line_bytes: int = 65_536
    """Longest log line that is carried, in bytes, its mark included; more is cut. Container runtimes write pieces of 16 KiB."""
    max_event_bytes: int = 16 * 1024 * 1024
    """Longest watch event in bytes. etcd stores at most 1.5 MiB an object; JSON may need several times that."""
    max_body_bytes: int = 128 * 1024 * 1024
    """Longest answer in bytes: a page of 500 objects of 250 KiB."""
    max_error_bytes: int = 65_536
    """How much of an error's body is read, in bytes."""
    file_check_interval: float = 60.0
    """Seconds between looks at token and certificate files. The kubelet renews a service account's token at 80 % of its life."""
    expiry_lead: float = 30.0
    """Seconds before its expiry that a credential is renewed; at most a fifth of its life."""
    exec_timeout: float = 60.0
    """Seconds for one run of a credential plugin."""
    exec_attempts: int = 3
    """Runs of a credential plugin that has worked before, until its failure counts."""


DEFAULTS = Settings()
