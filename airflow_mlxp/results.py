"""What a workload hands back: the termination messages of its training containers, combined into one JSON value.

A training container writes JSON to its termination message path and ends with 0; the kubelet puts the text into the pod's status
(core/v1 ContainerStateTerminated.message) and cuts it to 4096 bytes, or to 12288 bytes shared among the pod's containers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_mlxp.errors import MLXPError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 4096
"""What the kubelet keeps of one container's termination message."""
MAX_POD_BYTES = 12288
"""What the kubelet keeps of all messages of one pod."""


class ResultError(MLXPError):
    """The results can't be handed back. ``category`` is ``ambiguous_result`` or ``result_too_large``."""

    def __init__(self, category: str, message: str) -> None:
        super().__init__(message)
        self.category = category


def limit_for(containers: int) -> int:
    """Bytes that one container of a pod with so many containers may write."""
    return min(MAX_BYTES, MAX_POD_BYTES // max(containers, 1))


def combine(results: Mapping[str, str], *, indexed: bool, limit: int = MAX_BYTES) -> object:
    """The JSON value of the results by replica; None when no replica wrote one.

    Replicas that wrote the same text count as one. Different texts of an ``indexed`` Job give a mapping from completion index to
    value. A text that is no JSON (``NaN`` is none) is handed back as the string that it is. ``limit`` is in bytes.

    Raises:
        ResultError: ``ambiguous_result`` when replicas of something else than an indexed Job wrote different texts,
            ``result_too_large`` when a text reached the limit and was cut.
    """
    texts = {replica: text.strip() for replica, text in results.items() if text.strip()}
    values = {replica: _value(replica, results[replica], limit) for replica in texts}
    if len(set(texts.values())) > 1:
        if not indexed:
            _refuse_different(tuple(texts))
        return dict(sorted(values.items(), key=lambda item: (len(item[0]), item[0])))
    return next(iter(values.values()), None)


def _refuse_different(replicas: tuple[str, ...]) -> NoReturn:
    shown = ", ".join(replicas[:5]) + (", ..." if len(replicas) > 5 else "")
    raise ResultError(
        "ambiguous_result",
        f"{len(replicas)} replicas wrote different results ({shown}); let one write it, for instance where RANK is 0",
    )


def _value(replica: str, text: str, limit: int) -> Any:
    size = len(text.encode(errors="surrogatepass"))
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        # The kubelet keeps the last bytes of a longer text, so what was cut fills the limit and no longer parses.
        cut, value = size >= limit, text.strip()
    else:
        cut = size > limit
    if cut:
        raise ResultError(
            "result_too_large",
            f"{replica} wrote a result of {size} bytes or more, the limit is {limit}; write it to a volume and return its path",
        )
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
