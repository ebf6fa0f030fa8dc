"""Kubernetes quantities: ``500m``, ``16Gi``, ``1e3`` (Kubernetes API, ``resource.Quantity``)."""

from __future__ import annotations

import re
from decimal import Decimal

from airflow_mlxp.errors import InvalidArgument

_QUANTITY = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MIB = 2**20

Quantity = str | int | float
"""What a user may write: text as in a manifest, or a plain number."""


def parse(value: Quantity, argument: str) -> Decimal:
    """The exact number that a quantity stands for (cores, bytes, pieces).

    Raises:
        InvalidArgument: It is no quantity; ``argument`` is named in the text.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refused(value, argument)
    text = value.strip() if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise _refused(value, argument)
    return _scaled(Decimal(match["number"]), match["suffix"] or "")


def compare(left: Quantity, right: Quantity, argument: str) -> int:
    """-1, 0 or 1 as ``left`` is less than, equal to or greater than ``right``: ``1024Mi`` equals ``1Gi``."""
    one, other = parse(left, argument), parse(right, argument)
    return (one > other) - (one < other)


def cpu(value: Quantity, argument: str = "cpu") -> str:
    """CPU cores in wire form: ``4`` -> ``"4"``, ``0.5`` -> ``"500m"``; text stays as it is written.

    Raises:
        InvalidArgument: Not a quantity, not above 0, or finer than the 1m that Kubernetes counts in.
    """
    cores = parse(value, argument)
    if cores <= 0 or cores * 1000 % 1:
        raise InvalidArgument(argument, value, expected="CPU cores above 0 in steps of 1m, such as 4, 0.5 or '500m'")
    return value.strip() if isinstance(value, str) else _in_milli(cores)


def memory(value: Quantity, argument: str = "memory") -> str:
    """Bytes of memory in wire form: ``"16Gi"``, or a number of bytes.

    Raises:
        InvalidArgument: Not a quantity, or less than 1 MiB: no container starts with that, so the unit was forgotten
            (``memory=16``) or is wrong (``"512m"`` means 0.512 bytes).
    """
    size = parse(value, argument)
    if size < _MIB:
        raise InvalidArgument(argument, value, expected="at least 1Mi", fix="give the unit: '16Gi', '512Mi'")
    return value.strip() if isinstance(value, str) else format(size.to_integral_value(), "f")


def whole(value: str | int, argument: str, *, minimum: int) -> int:
    """A whole number of at least ``minimum``; digits as text are taken too, since that is what a template renders to.

    Raises:
        InvalidArgument: Anything else.
    """
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < minimum:
        raise InvalidArgument(argument, value, expected=f"a whole number of at least {minimum}")
    return number


def _scaled(number: Decimal, suffix: str) -> Decimal:
    if suffix in _BINARY:
        return number * Decimal(2 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0)
    return number.scaleb(exponent)


def _in_milli(cores: Decimal) -> str:
    return format(cores.to_integral_value(), "f") if cores % 1 == 0 else f"{int(cores * 1000)}m"


def _refused(value: object, argument: str) -> InvalidArgument:
    return InvalidArgument(argument, value, expected="a Kubernetes quantity such as 4, '500m' or '16Gi'")
