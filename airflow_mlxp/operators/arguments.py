"""Arguments of an operator: checked while the DAG is parsed, as far as they are known then, and handed on as a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from airflow.sdk.definitions._internal.mixins import ResolveMixin

from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests.spec import WorkloadSpec
from airflow_mlxp.manifests.unset import UNSET

S = TypeVar("S", bound=WorkloadSpec)

_EXPRESSION, _STATEMENT = "{{", "{" + "%"


def spec(spec_type: type[S], owner: object, **changed: Any) -> S:
    """The spec whose fields are the attributes of the same names."""
    given = {field.name: getattr(owner, field.name) for field in fields(spec_type)} | changed
    # None says something only where "not given" is a value of its own; elsewhere it is the spec's own default.
    telling = {field.name for field in fields(spec_type) if field.default is UNSET}
    return spec_type(**{name: value for name, value in given.items() if value is not None or name in telling})


def can_be_checked(values: Iterable[Any]) -> bool:
    """Whether no value is, or holds, the output of another task: what that will be is known only at run time."""
    return not any(_is_computed(value) for value in values)


@contextmanager
def templates_excused(manifest: Any) -> Iterator[None]:
    """Let an ``InvalidArgument`` pass whose value is a template, or lies in a manifest that is: it is not known yet."""
    try:
        yield
    except InvalidArgument as error:
        text = f"{error.value}{manifest}"
        if _EXPRESSION not in text and _STATEMENT not in text:
            raise


def check_choice(argument: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise InvalidArgument unless the value is one of the choices."""
    if value not in choices:
        raise InvalidArgument(argument, value, expected=" or ".join(repr(choice) for choice in choices))


def check_seconds(argument: str, value: object) -> None:
    """Raise InvalidArgument unless the value is None or a number of seconds."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise InvalidArgument(argument, value, expected="seconds as a number, at least 0")


def _is_computed(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_is_computed(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_is_computed(item) for item in value)
    return isinstance(value, ResolveMixin)
