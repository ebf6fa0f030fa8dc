"""Label and field selectors as the API server reads them from a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import formats, problem
from airflow_mlxp.local.server.resources import SELECTABLE_METADATA

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.server.resources import Resource

_SET = re.compile(r"^(?P<key>[^\s=!,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_COMPARED = re.compile(r"^(?P<key>[^\s=!<>,()]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[^\s=!<>,()]*)$")
_NAMED = re.compile(r"^(?P<not>!)?\s*(?P<key>[^\s=!<>,()]+)$")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the term; ``!=`` and ``notin`` are met by a label that is not there."""
        value = labels.get(self.key)
        match self.op:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
        return value is not None and _compare(self.op, value, next(iter(self.values)))


def _compare(op: str, value: str, limit: str) -> bool:
    try:
        return int(value) > int(limit) if op == ">" else int(value) < int(limit)
    except ValueError:
        return False


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The terms of a ``labelSelector``.

    Raises:
        ApiError: BadRequest, when the text is no selector.
    """
    terms = tuple(_label_term(term.strip()) for term in _COMMA.split(text)) if text.strip() else ()
    for term in terms:
        _check_format(term)
    return terms


def _check_format(term: Requirement) -> None:
    """Refuse what can be no label: it would match nothing, and the real server says so."""
    errors = [problem.invalid("<nil>", term.key, why) for why in formats.qualified_name(term.key)]
    if term.op in {">", "<"} and not all(_INTEGER.fullmatch(value) for value in term.values):
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        errors += [problem.invalid("values[0]", value, why) for value in term.values]
    for index, value in enumerate(sorted(term.values)):
        errors += [problem.invalid(f"values[{index}][{term.key}]", value, why) for why in formats.label_value(value)]
    if errors:
        raise problem.bad_request(f"unable to parse requirement: {problem.aggregate(errors)}")


def _label_term(term: str) -> Requirement:
    if found := _SET.match(term):
        return Requirement(found["key"], found["op"], frozenset(value.strip() for value in found["values"].split(",")))
    if found := _COMPARED.match(term):
        op = {"=": "in", "==": "in", "!=": "notin"}.get(found["op"], found["op"])
        return Requirement(found["key"], op, frozenset({found["value"]}))
    if found := _NAMED.match(term):
        return Requirement(found["key"], "!" if found["not"] else "exists")
    raise problem.bad_request(f"unable to parse requirement: found '{term}', expected: a label requirement")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: equal or not equal."""

    path: str
    equal: bool
    value: str

    def matches(self, data: Mapping[str, Any]) -> bool:
        """Whether the object's field has, or has not, the value; an absent field is the empty string."""
        return (_field(data, self.path) == self.value) is self.equal


def _field(data: Mapping[str, Any], path: str) -> str:
    if path == "source":
        path = "source.component"
    value: Any = data
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return {"spec.hostNetwork": "false", "spec.unschedulable": "false", "status.successful": "0"}.get(path, "")
    return str(value)


def parse_fields(text: str, resource: Resource) -> tuple[FieldTerm, ...]:
    """The terms of a ``fieldSelector``; only the fields that the resource declares can be named.

    Raises:
        ApiError: BadRequest, for an unknown field or a text that is no selector.
    """
    terms = []
    for term in filter(None, (part.strip() for part in text.split(","))):
        found = re.match(r"^([^=!]+?)(!=|==|=)(.*)$", term)
        if found is None:
            raise problem.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        path, op, value = found.groups()
        if path not in SELECTABLE_METADATA and path not in resource.selectable:
            raise problem.bad_request(f"field label not supported: {path}")
        terms.append(FieldTerm(path, op != "!=", value))
    return tuple(terms)


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list, watch or deletecollection asks for."""

    namespace: str = ""
    """Empty: all namespaces."""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Whether neither labels nor fields narrow the selection."""
        return not self.labels and not self.fields

    def matches(self, data: Mapping[str, Any]) -> bool:
        """Whether an object belongs to the selection."""
        metadata = data["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels") or {}
        return all(term.matches(labels) for term in self.labels) and all(term.matches(data) for term in self.fields)
