"""What manifests of all kinds begin and end with: loading, name, namespace, metadata, limits; overrides and checks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp import naming, quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import load, overrides, pod, scheduling, tree
from airflow_mlxp.manifests.spec import BuiltManifest
from airflow_mlxp.manifests.unset import UNSET, Unset
from airflow_mlxp.workloads.job import DEFAULT_CONTAINER_ANNOTATION

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile
    from airflow_mlxp.workloads.base import Api, Workload

EXACT = "exact"
"""Value of the argument ``name`` that keeps the manifest's own name."""
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A manifest with its metadata done."""

    manifest: dict[str, Any]
    name: str
    name_prefix: str
    exact_name: bool
    warnings: list[str]
    notes: list[str]


def start(spec: WorkloadSpec, api: Api, namespace: str) -> Started:
    """Load the manifest and write name, namespace, labels and annotations."""
    loaded = load.load(spec.manifest, api)
    manifest = loaded.manifest
    metadata = tree.child(manifest, "metadata")
    generated = metadata.pop("generateName", None)
    exact = spec.name == EXACT
    own = tree.text(metadata.get("name"), "manifest.metadata.name")
    prefix = _exact(own) if exact else str(tree.text(spec.name, "name") or own or generated or "")
    name = prefix if exact else naming.slug(prefix, naming.NAME_LIMIT) or api.kind.lower()
    naming.rename(manifest, name)
    tree.put(metadata, "namespace", tree.object_name(spec.namespace, "namespace"))
    tree.fill(metadata, "namespace", namespace or None)
    if not metadata.get("namespace"):
        raise InvalidArgument("namespace", namespace, expected="a namespace", fix="name it in the connection or the task")
    pod.annotate(metadata, spec)
    scheduling.queue(metadata, spec)
    notes = [
        *loaded.notes,
        *([f"The name {name!r} is kept: a try starts only when no {api.kind} of that name exists"] if exact else []),
    ]
    return Started(manifest=manifest, name=name, name_prefix=prefix, exact_name=exact, warnings=loaded.warnings, notes=notes)


def finish(
    started: Started,
    spec: WorkloadSpec,
    workload: Workload,
    profile: Profile,
    *,
    container_restarts: int | None,
    warnings: list[str],
    notes: list[str],
) -> BuiltManifest:
    """Merge the overrides, check what came of it, and put it together with what there is to say."""
    manifest = started.manifest
    if spec.overrides is not None:
        manifest = overrides.apply(manifest, spec.overrides, workload.api)
        _keep_training_containers(started.manifest, manifest, workload)
    said = [*started.warnings, *warnings]
    for template in workload.pod_templates_of(manifest):
        said += pod.check(template, profile, training=workload.training_container_of(template))
    return BuiltManifest(
        manifest=manifest,
        name_prefix=started.name_prefix,
        exact_name=started.exact_name,
        container_restarts=container_restarts,
        warnings=tuple(dict.fromkeys(said)),
        notes=(*started.notes, *notes),
    )


def _keep_training_containers(before: dict[str, Any], after: dict[str, Any], workload: Workload) -> None:
    """Say which container trains where a merge has put another one in front of it."""
    for old, template in zip(workload.pod_templates_of(before), workload.pod_templates_of(after), strict=False):
        name = workload.training_container_of(old)
        names = [entry.get("name") for entry in (template.get("spec") or {}).get("containers") or []]
        if name in names and workload.training_container_of(template) != name and isinstance(template, dict):
            metadata = template["metadata"] = dict(template.get("metadata") or {})
            metadata["annotations"] = {DEFAULT_CONTAINER_ANNOTATION: name, **(metadata.get("annotations") or {})}


def limits(policy: dict[str, Any], spec: WorkloadSpec, profile: Profile, *, backoff_limit: int | None) -> None:
    """Write the limits that Job.spec and PyTorchJob.spec.runPolicy have in common; ``backoff_limit`` is the default."""
    ttl = whole(spec.ttl_seconds_after_finished, "ttl_seconds_after_finished", minimum=0)
    tree.settle(policy, "ttlSecondsAfterFinished", ttl, profile.ttl_seconds_after_finished.value)
    tree.settle(policy, "backoffLimit", whole(spec.backoff_limit, "backoff_limit", minimum=0), backoff_limit)
    deadline = UNSET if spec.active_deadline_seconds is None else spec.active_deadline_seconds
    tree.settle(policy, "activeDeadlineSeconds", whole(deadline, "active_deadline_seconds", minimum=1))
    if tree.flag(spec.suspend, "suspend"):
        policy["suspend"] = True


def whole(given: int | str | Unset | None, argument: str, *, minimum: int) -> int | Unset | None:
    """A whole number where one was given."""
    return given if given is None or isinstance(given, Unset) else quantity.whole(given, argument, minimum=minimum)


def _exact(name: str | None) -> str:
    if not name or len(name) > naming.NAME_LIMIT or not _NAME.fullmatch(name):
        words = f"a manifest whose name is a DNS-1035 label of at most {naming.NAME_LIMIT} characters, not {name!r}"
        raise InvalidArgument("name", EXACT, expected=words)
    return name
