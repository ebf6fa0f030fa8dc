"""Formats of names, labels and quantities, with the texts that apimachinery's validation uses."""

from __future__ import annotations

import re
from decimal import Decimal

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = rf"({_QUALIFIED})?"
_ALNUM_ENDS = "and must start and end with an alphanumeric character"
_QUANTITY = re.compile(r"^(?P<sign>[+-]?)(?P<number>\d+\.?\d*|\.\d+)(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$")
QUANTITY_RULE = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def _example(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _checked(value: str, pattern: str, limit: int, message: str) -> list[str]:
    errors = [f"must be no more than {limit} characters"] if len(value.encode()) > limit else []
    return errors if re.fullmatch(pattern, value) else [*errors, message]


def dns1123_label(value: str) -> list[str]:
    """RFC 1123 label, at most 63 characters."""
    if re.fullmatch(_SUBDOMAIN, value) and "." in value:
        return _checked(value, _LABEL, 63, "must not contain dots")
    message = f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALNUM_ENDS}"
    return _checked(value, _LABEL, 63, _example(message, _LABEL, "my-name", "123-abc"))


def dns1123_subdomain(value: str) -> list[str]:
    """RFC 1123 subdomain, at most 253 characters."""
    message = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ALNUM_ENDS}"
    return _checked(value, _SUBDOMAIN, 253, _example(message, _SUBDOMAIN, "example.com"))


def dns1035_label(value: str) -> list[str]:
    """DNS-1035 label, at most 63 characters; starts with a letter."""
    message = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
        "and end with an alphanumeric character"
    )
    return _checked(value, _LABEL_1035, 63, _example(message, _LABEL_1035, "my-name", "abc-123"))


def label_value(value: str) -> list[str]:
    """Value of a label: empty or at most 63 characters."""
    message = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
    return _checked(value, _LABEL_VALUE, 63, _example(message, _LABEL_VALUE, "MyValue", "my_value", "12345"))


def qualified_name(value: str) -> list[str]:
    """Key of a label or annotation: an optional DNS prefix, a slash, and a name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    message = f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ALNUM_ENDS}"
    if slash and not prefix:
        return ["prefix part must be non-empty"]
    errors = [f"prefix part {error}" for error in dns1123_subdomain(prefix)] if slash else []
    if not name:
        return [*errors, "name part must be non-empty", _example(message, _QUALIFIED, "MyName", "my.name", "123-abc")]
    if len(name) > 63:
        errors.append("name part must be no more than 63 characters")
    if not re.fullmatch(_QUALIFIED, name):
        errors.append(_example(message, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return errors


def quantity(value: object) -> Decimal:
    """The number behind a quantity such as ``100m``, ``16Gi`` or ``1e3``.

    Raises:
        ValueError: for what is no quantity.
    """
    found = _QUANTITY.match(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    if found is None:
        raise ValueError(QUANTITY_RULE)
    number, suffix = Decimal(found["sign"] + found["number"]), found["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(1024 ** _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:])) if suffix else number


def canonical_quantity(value: object, *, binary: bool | None = None) -> str:
    """A quantity as the server writes it: ``0.5`` becomes ``500m``, ``1000m`` becomes ``1``, ``2048Mi`` becomes ``2Gi``.

    ``binary`` chooses suffixes such as ``Gi``; by default the value's own notation decides.

    Raises:
        ValueError: for what is no quantity.
    """
    amount = quantity(value)
    if isinstance(value, str) and re.search(r"[eE]\d", value):
        return value  # an exponent stays one
    if binary is None:
        binary = str(value).endswith("i")
    if binary and abs(amount) >= 1024 and amount == amount.to_integral_value():
        power = max((power for power in range(7) if amount % 1024**power == 0), default=0)
        return f"{int(amount) // 1024**power}{('', *_BINARY)[power]}"
    nano = int(amount.scaleb(9).to_integral_value(rounding="ROUND_UP"))
    power = max((power for power in range(0, 28, 3) if nano % 10**power == 0), default=0) if nano else 9
    suffix = {exponent: suffix for suffix, exponent in _DECIMAL.items()}.get(power - 9, "")
    return f"{nano // 10**power}{suffix}"
