"""DELETE: preconditions, grace period of pods, propagation to dependents, finalizers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server import metadata, problem
from airflow_mlxp.local.server.resources import NAMESPACES, PODS

if TYPE_CHECKING:
    from airflow_mlxp.local.server.registry import Registry
    from airflow_mlxp.local.server.storage import Object, Stored

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


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


def parse_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """Options from the body, or from the query where the body is empty.

    Raises:
        ApiError: Invalid for an unknown propagationPolicy or dryRun.
    """
    given: dict[str, Any] = body if isinstance(body, dict) and body else dict(query)
    dry_run = given.get("dryRun") or []
    dry_run = [dry_run] if isinstance(dry_run, str) else dry_run
    propagation = given.get("propagationPolicy") or ""
    errors = []
    if propagation not in {"", "Background", "Foreground", "Orphan"}:
        errors.append(problem.not_supported("propagationPolicy", propagation, ["Background", "Foreground", "Orphan"]))
    if any(value != "All" for value in dry_run):
        errors.append(problem.not_supported("dryRun", dry_run[0], ["All"]))
    if errors:
        raise problem.invalid_object("DeleteOptions", "meta.k8s.io", "", errors)
    if given.get("orphanDependents") is not None and not propagation:
        propagation = "Orphan" if str(given["orphanDependents"]).lower() == "true" else "Background"
    preconditions = given.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    return DeleteOptions(
        grace_seconds=None if grace is None else max(0, int(grace)),
        propagation=propagation,
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


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
