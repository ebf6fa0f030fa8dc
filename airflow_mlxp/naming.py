"""Names of objects and values of labels: always valid, whatever a DAG author calls things."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any

NAME_LIMIT = 50
"""Characters of a workload's name: ``<name>-worker-<index>``, its pods and Services, must fit into 63 (guide, name length)."""

LABEL_LIMIT = 63
"""Characters of a label's value (Kubernetes, label syntax)."""

_HASH_LENGTH = 12
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")
_REST = re.compile(r"[^a-z0-9]+")


def digest(text: str, length: int) -> str:
    """The first ``length`` hexadecimal digits (at most 64) of the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def slug(text: str, limit: int) -> str:
    """The readable part of a name: lower-case letters, digits and single hyphens, starting with a letter.

    At most ``limit`` characters. Accents are dropped and everything else becomes a hyphen; ``"데이터"`` leaves nothing.
    """
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _REST.sub("-", ascii_text).lstrip("-0123456789")[:limit].rstrip("-")


def workload_name(prefix: str, ti_id: str) -> str:
    """The name of the workload of one try: a DNS-1035 label of at most ``NAME_LIMIT`` characters.

    It ends in a hash of ``ti_id``, which Airflow makes anew for every try and keeps through a deferral: a repeated create meets
    its own object and nobody else's.
    """
    readable = slug(prefix, NAME_LIMIT - _HASH_LENGTH - 1) or "task"
    return f"{readable}-{digest(ti_id, _HASH_LENGTH)}"


def label_value(text: str) -> str:
    """The text itself where Kubernetes accepts it as a label's value, else what is readable of it and a hash of all of it."""
    if len(text) <= LABEL_LIMIT and _LABEL_VALUE.match(text):
        return text
    hashed = digest(text, _HASH_LENGTH)
    readable = slug(text, LABEL_LIMIT - _HASH_LENGTH - 1)
    return f"{readable}-{hashed}" if readable else hashed


def rename(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """Give a manifest its name, in place, and let references to its old name follow.

    These are ``spec.elasticPolicy.rdzvId`` when it is the old name, and ``<old>-worker-<i>`` or ``<old>-master-<i>`` (the pods'
    Services, as in MASTER_ADDR or rdzvHost) wherever such a text stands in the spec.
    """
    metadata = manifest.setdefault("metadata", {})
    old, metadata["name"] = metadata.get("name"), name
    if isinstance(old, str) and old and old != name and isinstance(manifest.get("spec"), dict):
        elastic = manifest["spec"].get("elasticPolicy")
        if isinstance(elastic, dict) and elastic.get("rdzvId") == old:
            elastic["rdzvId"] = name
        service = re.compile(rf"(?<![\w.-]){re.escape(old)}(?=-(?:worker|master)-\d+(?![\w-]))", re.ASCII)
        manifest["spec"] = _replaced(manifest["spec"], service, name)
    return manifest


def _replaced(value: Any, pattern: re.Pattern[str], name: str) -> Any:
    if isinstance(value, str):
        return pattern.sub(name, value)
    if isinstance(value, list):
        return [_replaced(item, pattern, name) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item, pattern, name) for key, item in value.items()}
    return value
