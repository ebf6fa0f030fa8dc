"""Reading of objects that a server sent: every accessor is total, whatever JSON stands in a field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_mlxp.models import Condition, Phase

MAX_REPLICAS = 100_000
"""Names that are listed of one workload: the guide's 50 characters for a name leave room for indexes of five digits."""

_NOTHING: Mapping[str, Any] = {}


def mapping(value: object) -> Mapping[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else _NOTHING


def at(value: object, *path: str) -> Any:
    """What stands under a path of keys; None when any step is missing or no object."""
    for key in path:
        value = mapping(value).get(key)
    return value


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; everything else in it is left out."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text(value: object) -> str:
    """The value when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def count(value: object, default: int = 0) -> int:
    """A count that is zero or more; ``default`` when the field is absent or holds something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """``metadata.labels``."""
    return mapping(at(obj, "metadata", "labels"))


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """``metadata.annotations``."""
    return mapping(at(obj, "metadata", "annotations"))


def name_of(obj: Mapping[str, Any]) -> str:
    """``metadata.name``."""
    return text(at(obj, "metadata", "name"))


def uid_of(obj: Mapping[str, Any]) -> str:
    """``metadata.uid``."""
    return text(at(obj, "metadata", "uid"))


def container_names(pod: Mapping[str, Any]) -> list[str]:
    """Names of ``spec.containers``, in order."""
    return [text(container.get("name")) for container in mappings(at(pod, "spec", "containers"))]


def conditions(obj: Mapping[str, Any] | None) -> dict[str, Condition]:
    """``status.conditions`` by type; of two with the same type the later one, since controllers append."""
    found = {}
    for item in mappings(at(obj, "status", "conditions")):
        condition = Condition(
            type=text(item.get("type")),
            status=text(item.get("status")),
            reason=text(item.get("reason")),
            message=text(item.get("message")),
            last_transition_time=text(item.get("lastTransitionTime")),
        )
        found[condition.type] = condition
    return found


def deciding(obj: Mapping[str, Any] | None, phases: Mapping[str, Phase]) -> Condition | None:
    """The first condition of ``phases``, in the order of that table, whose status is the string ``True``.

    The type alone says nothing: a finished PyTorchJob keeps ``Running`` with status False, a resumed one ``Suspended``.
    The order of the list says nothing either: it is the order of the last changes.
    """
    found = conditions(obj)
    return next((found[kind] for kind in phases if kind in found and found[kind].status == "True"), None)
