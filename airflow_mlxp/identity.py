"""Whose a workload is: labels and annotations that say which task made it, and the rules for recognising one's own.

Labels hold hashes and shortened values, since Kubernetes allows 63 characters; annotations hold the originals.
docs/decisions/0001-names-and-identity.md gives the reasons for each rule.
"""

from __future__ import annotations

import copy
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_mlxp import naming

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

PREFIX = "airflow-mlxp/"
"""Every label and annotation of ours starts so; users' own must not."""

TASK_LABEL = f"{PREFIX}task"
INSTANCE_LABEL = f"{PREFIX}instance"
DAG_ID = f"{PREFIX}dag-id"
"""Label (shortened) and annotation (original), as the four below."""
TASK_ID = f"{PREFIX}task-id"
RUN_ID = f"{PREFIX}run-id"
MAP_INDEX = f"{PREFIX}map-index"
TRY_LABEL = f"{PREFIX}try"

OWNER_ANNOTATION = f"{PREFIX}owner"
"""The ``ti.id`` of the try that waits for the workload, or ``deleting/<who>``; changed by JSON patch only."""
TI_ID_ANNOTATION = f"{PREFIX}ti-id"
"""The ``ti.id`` of the try that created it; never changes."""
MAX_TRIES_ANNOTATION = f"{PREFIX}max-tries"
CLEAR_NUMBER_ANNOTATION = f"{PREFIX}clear-number"
START_DATE_ANNOTATION = f"{PREFIX}dag-run-start-date"
NONCE_ANNOTATION = f"{PREFIX}nonce"
SPEC_HASH_ANNOTATION = f"{PREFIX}spec-hash"
OUTCOME_ANNOTATION = f"{PREFIX}outcome"
"""What a trigger recorded at the end: ``success``, or the category of the failure."""

UNMAPPED = -1
"""``map_index`` of a task that is not mapped (Airflow)."""

_OLDEST = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskIdentity:
    """The try that runs now, as Airflow tells it. ``retries`` is the task's own, ``max_tries`` the task instance's."""

    dag_id: str
    task_id: str
    run_id: str
    ti_id: str
    try_number: int
    max_tries: int
    map_index: int = UNMAPPED
    retries: int | None = None
    clear_number: int | None = None
    """``dag_run.clear_number``; None where Airflow doesn't tell it."""
    start_date: datetime | None = None
    """``dag_run.start_date``; None after a run was set back to queued."""
    logical_date: datetime | None = None
    run_after: datetime | None = None
    instance: str = ""
    """``[mlxp] instance``: the name of this Airflow; empty when not configured."""
    nonce: str = ""
    """A random text of this submission, which the state store keeps."""

    @property
    def task_label(self) -> str:
        """Value of ``TASK_LABEL``: the same for all tries of a task in a run, different for every other task."""
        return naming.digest(json.dumps([self.dag_id, self.task_id, self.run_id, self.map_index]), 32)

    def labels(self) -> dict[str, str]:
        """Labels of the object and of its pods. ``map-index`` is left out when not mapped: ``-1`` is no valid value."""
        labels = {TASK_LABEL: self.task_label, TRY_LABEL: str(self.try_number)}
        originals = self.originals()
        if self.map_index < 0:
            del originals[MAP_INDEX]
        labels |= {key: naming.label_value(value) for key, value in originals.items()}
        if self.instance:
            labels[INSTANCE_LABEL] = naming.label_value(self.instance)
        return labels

    def originals(self) -> dict[str, str]:
        """Annotations for people: the ids as they are."""
        return {DAG_ID: self.dag_id, TASK_ID: self.task_id, RUN_ID: self.run_id, MAP_INDEX: str(self.map_index)}

    def annotations(self, spec_hash: str) -> dict[str, str]:
        """Annotations of the object; what Airflow doesn't tell is left out."""
        optional = {
            CLEAR_NUMBER_ANNOTATION: None if self.clear_number is None else str(self.clear_number),
            START_DATE_ANNOTATION: None if self.start_date is None else _time_text(self.start_date),
            NONCE_ANNOTATION: self.nonce or None,
        }
        return {
            **self.originals(),
            OWNER_ANNOTATION: self.ti_id,
            TI_ID_ANNOTATION: self.ti_id,
            MAX_TRIES_ANNOTATION: str(self.max_tries),
            SPEC_HASH_ANNOTATION: spec_hash,
            **{key: value for key, value in optional.items() if value is not None},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadIdentity:
    """What the labels and annotations of an object say about its maker; empty or None where they say nothing (readable)."""

    name: str
    uid: str
    ti_id: str
    owner: str
    task_label: str
    spec_hash: str
    nonce: str
    instance_label: str
    outcome: str
    max_tries: int | None
    clear_number: int | None
    start_date: str

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> WorkloadIdentity:
        """Read an object as the API server sent it. Never raises: anybody may have edited it."""
        metadata = _mapping(obj.get("metadata"))
        labels, annotations = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
        return cls(
            name=_text(metadata, "name"),
            uid=_text(metadata, "uid"),
            ti_id=_text(annotations, TI_ID_ANNOTATION),
            owner=_text(annotations, OWNER_ANNOTATION),
            task_label=_text(labels, TASK_LABEL),
            spec_hash=_text(annotations, SPEC_HASH_ANNOTATION),
            nonce=_text(annotations, NONCE_ANNOTATION),
            instance_label=_text(labels, INSTANCE_LABEL),
            outcome=_text(annotations, OUTCOME_ANNOTATION),
            max_tries=_number(annotations, MAX_TRIES_ANNOTATION),
            clear_number=_number(annotations, CLEAR_NUMBER_ANNOTATION),
            start_date=_text(annotations, START_DATE_ANNOTATION),
        )


def is_same_chain(own: TaskIdentity, other: WorkloadIdentity) -> bool:
    """Whether Airflow made both tries by itself, one as the retry of the other, with no clear of this task in between.

    A clear sets ``max_tries`` to ``try_number + retries``; automatic retries leave it. When another task's clear has raised
    ``clear_number``, ours must be a try that can only be an automatic one.
    """
    if other.max_tries != own.max_tries:
        return False
    if other.clear_number == own.clear_number:
        return True
    return own.max_tries - (own.retries or 0) + 2 <= own.try_number <= own.max_tries + 1


def is_certainly_ours(own: TaskIdentity, other: WorkloadIdentity, known_nonces: Collection[str] = ()) -> bool:
    """Whether the workload can't be that of another Airflow which happens to have the same DAG, task and run.

    Proof is a nonce from our own state store, the same configured instance, or the same start of the DAG run, unless that is
    one of the run's own dates: then every Airflow would have the same.
    """
    if other.nonce and other.nonce in known_nonces:
        return True
    if own.instance and other.instance_label == naming.label_value(own.instance):
        return True
    if own.start_date is None or own.start_date in {own.logical_date, own.run_after}:
        return False
    return other.start_date == _time_text(own.start_date)


def is_newer(ti_id: str, than: str) -> bool:
    """Whether the first ``ti.id`` was made after the second: they are UUIDv7, whose first bits are the time.

    An id that is no UUID, or none at all, counts as the oldest.
    """
    return age_key(ti_id) > age_key(than)


def age_key(ti_id: str) -> int:
    """Sort key of ``ti.id``, oldest first."""
    try:
        return uuid.UUID(ti_id).int
    except ValueError:
        return _OLDEST


def spec_hash(manifest: Mapping[str, Any]) -> str:
    """Hash of what a manifest asks for, independent of the order of keys, of names that change per try and of identity.

    Left out: ``metadata.name``, ``spec.elasticPolicy.rdzvId``, and labels and annotations of ours wherever they stand.
    """
    bare = copy.deepcopy(dict(manifest))
    _mapping(bare.get("metadata")).pop("name", None)
    _mapping(_mapping(bare.get("spec")).get("elasticPolicy")).pop("rdzvId", None)
    canonical = json.dumps(_without_identity(bare), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def stamp(
    manifest: Mapping[str, Any],
    identity: TaskIdentity,
    workload_templates: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]],
    *,
    name: str,
) -> dict[str, Any]:
    """A copy of the manifest that bears the name and the identity, on the object and on each pod template.

    ``workload_templates`` is ``Workload.pod_templates_of``. References to the manifest's own old name follow the new one
    (``naming.rename``). Identity left in a manifest that was copied from the cluster is replaced.
    """
    stamped = naming.rename(_without_identity(copy.deepcopy(dict(manifest))), name)
    _write(stamped, labels=identity.labels(), annotations=identity.annotations(spec_hash(manifest)))
    for template in workload_templates(stamped):
        _write(template, labels=identity.labels(), annotations=identity.originals())
    return stamped


def _write(obj: Any, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    metadata = obj.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}


def _without_identity(value: Any) -> Any:
    """The same without our labels and annotations, and without the empty mappings that this leaves behind."""
    if isinstance(value, list):
        return [_without_identity(item) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned = {key: _without_identity(item) for key, item in value.items() if not str(key).startswith(PREFIX)}
    for key in ("labels", "annotations", "metadata"):
        if key in cleaned and cleaned[key] == {}:
            del cleaned[key]
    return cleaned


def _time_text(moment: datetime) -> str:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def _mapping(value: object) -> Any:
    return value if isinstance(value, Mapping) else {}


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""


def _number(mapping: Mapping[str, Any], key: str) -> int | None:
    text = _text(mapping, key)
    return int(text) if text.isascii() and text.isdecimal() else None
