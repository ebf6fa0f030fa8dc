"""Query parameters as apimachinery converts them: integers as Go's ``strconv.ParseInt`` reads them, booleans by their absence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_mlxp.local.server import problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = 2**63
_DIGITS = 40
"""Longer texts are out of range anyway, and Python refuses to convert very long ones."""


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """A boolean: None when absent, False for ``false`` and ``0``, True for everything else, even for an empty text."""
    value = query.get(name)
    return None if value is None else value.lower() not in {"false", "0"}


def integer(query: Mapping[str, str], name: str) -> int | None:
    """An int64; None when absent.

    Raises:
        ApiError: BadRequest, also for an empty text.
    """
    text = query.get(name)
    if text is None:
        return None
    if not _INTEGER.fullmatch(text):
        raise problem.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _DIGITS or not -_INT64 <= int(text) < _INT64:
        raise problem.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)
