"""Kubernetes quantities as numbers (``resource.Quantity``)."""

from __future__ import annotations

from decimal import Decimal

_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


def parse(quantity: object) -> Decimal:
    """The number of ``2``, ``500m``, ``16Gi``, ``1e3``. The API server has checked the form."""
    text = str(quantity)
    if text[-2:] in _SUFFIXES:
        return Decimal(text[:-2]) * _SUFFIXES[text[-2:]]
    if text[-1:] in _SUFFIXES:
        return Decimal(text[:-1]) * _SUFFIXES[text[-1:]]
    return Decimal(text)
