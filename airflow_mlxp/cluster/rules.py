"""Which objects the hub keeps, and what they are looked up by. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from airflow_mlxp import workloads
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from airflow_mlxp.cluster.watch_items import Head
    from airflow_mlxp.workloads.base import Workload

_ENDED = {"Succeeded", "Failed"}


class Rules(Protocol):
    """What a source needs to know of its kind of object."""

    def admit(self, head: Head, decode: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """The object, if anybody may want it; None drops it, if possible before it is decoded."""

    def keys_of(self, obj: Mapping[str, Any]) -> Iterable[str]:
        """What the object is looked up by."""


class WorkloadRules:
    """Keep what is observed or not over: of thousands of ended workloads nobody wants to know."""

    def __init__(self, observed: Container[str], kind: Workload) -> None:
        self._observed, self._kind = observed, kind

    def admit(self, head: Head, decode: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """See ``Rules``."""
        obj = decode()
        return obj if head.uid in self._observed or not self._kind.phase_of(obj).is_terminal else None

    def keys_of(self, obj: Mapping[str, Any]) -> Iterable[str]:  # noqa: ARG002  # the protocol's
        """Workloads are looked up by uid only."""
        return ()


class PodRules:
    """Keep pods of observed workloads and pods that have not ended."""

    def __init__(self, observed: Container[str]) -> None:
        self._observed = observed

    def admit(self, head: Head, decode: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """See ``Rules``."""
        wanted = head.phase not in _ENDED or any(owner in self._observed for owner in head.owners)
        return decode() if wanted else None

    def keys_of(self, obj: Mapping[str, Any]) -> Iterable[str]:
        """The uids of the owners."""
        return owners_of(obj)


class EventRules:
    """Keep warnings about pods and about the kinds that we know."""

    def admit(self, head: Head, decode: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:  # noqa: ARG002  # the protocol's
        """See ``Rules``."""
        event = decode()
        kind = objects.at(event, "involvedObject", "kind")
        return event if kind == PODS.kind or any(kind == known.kind for known in workloads.all_workloads()) else None

    def keys_of(self, obj: Mapping[str, Any]) -> Iterable[str]:
        """The subject's uid; ``kind/name`` when the event has none."""
        subject = objects.mapping(objects.at(obj, "involvedObject"))
        uid = objects.text(subject.get("uid"))
        return (uid or f"{objects.text(subject.get('kind'))}/{objects.text(subject.get('name'))}",)


EVENT_RULES = EventRules()


def owners_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Uids in ``metadata.ownerReferences``: labels can be copied, uids can't."""
    references = objects.mappings(objects.at(obj, "metadata", "ownerReferences"))
    return tuple(objects.text(reference.get("uid")) for reference in references)
