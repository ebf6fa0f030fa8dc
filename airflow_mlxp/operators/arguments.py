"""Arguments of an operator: checked while the DAG is parsed, as far as they are known then, and handed on as a spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from airflow.sdk.definitions._internal.mixins import ResolveMixin

from airflow_mlxp import compat
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import documents
from airflow_mlxp.manifests.elastic import Elastic
from airflow_mlxp.manifests.spec import SchedulingPolicy, Volume, WorkloadSpec
from airflow_mlxp.manifests.unset import UNSET

S = TypeVar("S", bound=WorkloadSpec)

_EXPRESSION, _STATEMENT = "{{", "{" + "%"


def spec(spec_type: type[S], owner: object, **changed: Any) -> S:
    """The spec whose fields are the attributes of the same names."""
    given = {field.name: getattr(owner, field.name) for field in fields(spec_type)} | changed
    # None says something only where "not given" is a value of its own; elsewhere it is the spec's own default.
    telling = {field.name for field in fields(spec_type) if field.default is UNSET}
    return spec_type(**{name: value for name, value in given.items() if value is not None or name in telling})


class Verbatim(ResolveMixin):
    """A value of a template field that stays as it is."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        """As the value is shown: under "Rendered Template" and in the serialized DAG."""
        return str(self.value)

    def iter_references(self) -> Iterator[Any]:
        """No other task's output."""
        return iter(())

    def resolve(self, context: Mapping[str, Any]) -> Any:  # noqa: ARG002 - what Airflow calls with it
        """The value instead of a rendering of it."""
        return self.value


class ManifestPart(ResolveMixin):
    """A part of the built manifest, shown under "Rendered Template": Airflow cuts each field there at 4,096 characters."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        """As it is shown before a task has run."""
        return "known when the task runs"

    def iter_references(self) -> Iterator[Any]:
        """No other task's output."""
        return iter(())

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """The part as YAML text, of the task whose other fields are rendered by now."""
        task: Any = context.get("task")
        return task.manifest_part(self.name, context) if hasattr(task, "manifest_part") else self


def verbatim(value: Any) -> Any:
    """The value itself, also while it is kept from Jinja."""
    return value.value if isinstance(value, Verbatim) else value


def is_record(value: object) -> bool:
    """Whether this is a dataclass of arguments: ``Volume``, ``Elastic``, ``SchedulingPolicy``."""
    return isinstance(value, Elastic | SchedulingPolicy | Volume)


def is_file_name(value: object) -> bool:
    """Whether a ``manifest`` names a file."""
    return isinstance(value, str) and documents.is_file_name(value)


def is_template(value: object) -> bool:
    """Whether Jinja would find something to do in this text, or in the text of this value."""
    return _EXPRESSION in str(value) or _STATEMENT in str(value)


def set_upstream(task: Any, values: Iterable[Any]) -> None:
    """Put the tasks whose outputs stand inside ``Volume`` or ``Elastic`` before the task: Airflow looks only into collections."""
    for reference in _references(list(values)):
        for operator, _ in reference.iter_references():
            task.set_upstream(operator)


def can_be_checked(values: Iterable[Any]) -> bool:
    """Whether no value is, or holds, the output of another task: what that will be is known only at run time."""
    return next(_references(list(values)), None) is None


@contextmanager
def templates_excused(*others: Any) -> Iterator[None]:
    """Let an ``InvalidArgument`` pass whose value is a template: it is not known yet.

    ``others`` are manifest and overrides: when one of them is a template, so may be whatever is wrong.
    """
    try:
        yield
    except InvalidArgument as error:
        if not is_template(error.value) and not any(is_template(other) for other in others):
            raise


def secrets_in(value: Any) -> Iterator[str]:
    """Values of variables whose names say that they are secret, in a manifest's lists of ``name`` and ``value``."""
    if isinstance(value, Mapping):
        secret, name = value.get("value"), value.get("name")
        if isinstance(secret, str) and isinstance(name, str) and compat.is_secret_name(name):
            yield secret
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)


def check_choice(argument: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise InvalidArgument unless the value is one of the choices."""
    if value not in choices:
        raise InvalidArgument(argument, value, expected=" or ".join(repr(choice) for choice in choices))


def check_text(argument: str, value: object) -> None:
    """Raise InvalidArgument unless the value is text, or another task's output."""
    if not isinstance(value, str | ResolveMixin) or not value:
        raise InvalidArgument(argument, value, expected="text")


def check_seconds(argument: str, value: object) -> None:
    """Raise InvalidArgument unless the value is None or a number of seconds."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise InvalidArgument(argument, value, expected="seconds as a number, at least 0")


def _references(value: Any) -> Iterator[Any]:
    """Every output of another task in a value."""
    if isinstance(value, ResolveMixin):
        if not isinstance(value, Verbatim | ManifestPart):
            yield value
    elif is_record(value):
        for field in fields(value):
            yield from _references(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _references(item)
