"""DELETE: preconditions, grace period of pods, propagation to dependents, finalizers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import decoding, metadata, parameters, problem
from airflow_mlxp.local.server.resources import NAMESPACES, PODS

if TYPE_CHECKING:
    from multidict import MultiMapping

    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.storage import Object, Stored

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
_POLICIES = ("Foreground", "Background", "Orphan")
_BODY_TYPES: dict[str, tuple[type, str]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}
"""Fields of ``metav1.DeleteOptions`` with their Go types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteOptions:
    """``metav1.DeleteOptions``."""

    grace_seconds: int | None = None
    """None: the pod's own terminationGracePeriodSeconds."""
    propagation: str = ""
    """Background, Foreground or Orphan; empty: the default of the kind."""
    uid: str = ""
    version: str = ""
    dry_run: bool = False


def parse_options(body: Any, query: MultiMapping[str]) -> DeleteOptions:
    """Options from the body, or from the query where the body is empty.

    Raises:
        ApiError: Invalid for an unknown propagationPolicy or dryRun, BadRequest for a query and 500 for a body with a
            value of a wrong type.
    """
    if body:
        _check_types(body)
    given: dict[str, Any] = body or _from_query(query)
    dry_run, orphan = given.get("dryRun") or [], given.get("orphanDependents")
    propagation = given.get("propagationPolicy") or ""
    errors = []
    if orphan is not None and propagation:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(problem.invalid("propagationPolicy", propagation, why))
    if propagation not in {"", *_POLICIES}:
        errors.append(problem.not_supported("propagationPolicy", propagation, [*_POLICIES, "nil"]))
    if any(value != "All" for value in dry_run):
        errors.append(problem.not_supported("dryRun", dry_run, ["All"]))
    if errors:
        raise problem.invalid_object("DeleteOptions", "meta.k8s.io", "", errors)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    preconditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    return DeleteOptions(
        grace_seconds=1 if grace is not None and grace < 0 else grace,
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


def _from_query(query: MultiMapping[str]) -> dict[str, Any]:
    return {
        "dryRun": query.getall("dryRun", []),
        "propagationPolicy": query.get("propagationPolicy"),
        "orphanDependents": parameters.flag(query, "orphanDependents"),
        "gracePeriodSeconds": parameters.integer(query, "gracePeriodSeconds"),
    }


def _check_types(body: Any) -> None:
    """Refuse values that Go's decoder can't put into the struct; the real server answers a plain error of its own with 500."""
    if not isinstance(body, dict):
        raise _undecodable(body, "value", "v1.DeleteOptions")
    for name, (kind, go_type) in _BODY_TYPES.items():
        value = body.get(name)
        if value is not None and type(value) is not kind:
            raise _undecodable(value, f"struct field DeleteOptions.{name}", go_type)
    for value in body.get("dryRun") or ():
        if not isinstance(value, str):
            raise _undecodable(value, "struct field DeleteOptions.dryRun", "string")
    for name, go_type in (("uid", "types.UID"), ("resourceVersion", "string")):
        value = (body.get("preconditions") or {}).get(name)
        if not isinstance(value, str | None):
            raise _undecodable(value, f"struct field Preconditions.preconditions.{name}", go_type)


def _undecodable(value: Any, where: str, go_type: str) -> problem.ApiError:
    shown = decoding.go_name(value)
    shown = f"number {value}" if type(value) is float else shown
    return problem.ApiError(500, "", f"json: cannot unmarshal {shown} into Go {where} of type {go_type}")


def delete(registry: Registry, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
    """Delete an object, or start to. The answer is its last state and whether it is gone.

    Raises:
        ApiError: Conflict, when a precondition fails.
    """
    _check_preconditions(stored, options)
    data = copy.deepcopy(stored.data)
    finalizers = _finalizers(stored, options)
    _set(data["metadata"], "finalizers", finalizers)
    grace = _grace_seconds(stored, options)
    if stored.resource is NAMESPACES:
        data["status"] = {**(data.get("status") or {}), "phase": "Terminating"}
        grace = None
    waits = bool(finalizers) or bool(grace) or stored.resource is NAMESPACES
    if options.dry_run:
        return stored, not waits
    if waits or stored.resource is PODS:
        _mark(data, grace or 0)
    if waits:
        return (stored if data == stored.data else registry.replace(stored, data)), False
    if data != stored.data:
        stored = registry.store.put(stored.resource, data)  # a pod is marked before it goes
    return registry.store.remove(stored), True


def _set(meta: Object, name: str, value: Any) -> None:
    if value:
        meta[name] = value
    else:
        meta.pop(name, None)


def _check_preconditions(stored: Stored, options: DeleteOptions) -> None:
    resource, name = stored.resource, stored.data["metadata"]["name"]
    if options.uid and options.uid != stored.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({stored.uid}). "
            "The object might have been deleted and then recreated"
        )
        raise problem.conflict(resource.kind, resource.group, name, why)
    if options.version and options.version != str(stored.version):
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({stored.version}). The object might have been modified"
        )
        raise problem.conflict(resource.kind, resource.group, name, why)


def _finalizers(stored: Stored, options: DeleteOptions) -> list[str]:
    """The finalizers with those of the garbage collector as the propagation wants them."""
    present = stored.data["metadata"].get("finalizers") or []
    others = [name for name in present if name not in {FOREGROUND_FINALIZER, ORPHAN_FINALIZER}]
    match options.propagation:
        case "Foreground":
            return [*others, FOREGROUND_FINALIZER]
        case "Orphan":
            return [*others, ORPHAN_FINALIZER]
        case "Background":
            return others
    if ORPHAN_FINALIZER in present or FOREGROUND_FINALIZER in present:
        return list(present)
    return [*others, ORPHAN_FINALIZER] if stored.resource.orphans_by_default else others


def _grace_seconds(stored: Stored, options: DeleteOptions) -> int | None:
    """Seconds that a pod gets to end; 0 for a pod without a node or one that has ended, and for every other kind."""
    if stored.resource is not PODS:
        return 0
    data = stored.data
    if not data["spec"].get("nodeName") or data.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    wanted = options.grace_seconds
    if wanted is None:
        wanted = int(data["spec"].get("terminationGracePeriodSeconds", 30))
    running = data["metadata"].get("deletionGracePeriodSeconds")
    return wanted if running is None else min(wanted, running)


def _mark(data: Object, grace_seconds: int) -> None:
    """Set the time of deletion; a second delete can only shorten the grace period."""
    meta = data["metadata"]
    if "deletionTimestamp" in meta:
        earlier = grace_seconds - meta.get("deletionGracePeriodSeconds", 0)
        meta["deletionTimestamp"] = metadata.later(earlier, than=meta["deletionTimestamp"])
    else:
        meta["deletionTimestamp"] = metadata.later(grace_seconds)
        if meta.get("generation"):
            meta["generation"] += 1
    meta["deletionGracePeriodSeconds"] = grace_seconds
