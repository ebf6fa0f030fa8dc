"""What a watch tells: lists, changes and the marks between them. Objects are decoded only when somebody wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import msgspec


class OwnerReference(msgspec.Struct):
    """One entry of ``metadata.ownerReferences``."""

    uid: str = ""


class Metadata(msgspec.Struct, rename="camel"):
    """The fields of ``metadata`` that say whether an object has to be decoded at all."""

    uid: str = ""
    resource_version: str = ""
    owner_references: list[OwnerReference] | None = None


class PhaseOnly(msgspec.Struct):
    """``status.phase``, which pods have."""

    phase: str = ""


class Head(msgspec.Struct):
    """Identity, owners and phase of an object; the rest stays undecoded."""

    metadata: Metadata
    status: PhaseOnly | None = None

    @property
    def uid(self) -> str:
        """``metadata.uid``."""
        return self.metadata.uid

    @property
    def owners(self) -> tuple[str, ...]:
        """Uids of the owners."""
        return tuple(reference.uid for reference in self.metadata.owner_references or ())

    @property
    def phase(self) -> str:
        """``status.phase``; empty for kinds without it."""
        return self.status.phase if self.status else ""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The collection is unchanged up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Changed:
    """An object was added, modified or deleted."""

    head: Head
    raw: msgspec.Raw
    deleted: bool

    @property
    def resource_version(self) -> str:
        """Version of the collection after the change; opaque."""
        return self.head.metadata.resource_version

    def decode(self) -> dict[str, Any]:
        """The whole object, without managedFields."""
        return slim(cast("dict[str, Any]", msgspec.json.decode(self.raw)))


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects that exist now; what is not among them is gone."""

    objects: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Nothing is heard of the collection at present."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The interruption is over."""


Item = Changed | Listed | Interrupted | Resumed


def slim(item: dict[str, Any]) -> dict[str, Any]:
    """Drop ``metadata.managedFields``, which is long and read by nobody here; in place."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return item
