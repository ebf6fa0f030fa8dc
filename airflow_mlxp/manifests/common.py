"""What manifests of all kinds begin with: loading, name, namespace, metadata, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp import naming, quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import load, pod, tree
from airflow_mlxp.manifests.unset import UNSET, Unset

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile
    from airflow_mlxp.workloads.base import Api


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A manifest with its metadata done."""

    manifest: dict[str, Any]
    name: str
    name_prefix: str
    warnings: list[str]


def start(spec: WorkloadSpec, api: Api, namespace: str) -> Started:
    """Load the manifest and write name, namespace, labels and annotations."""
    manifest, warnings = load.load(spec.manifest, api)
    metadata = tree.child(manifest, "metadata")
    generated = metadata.pop("generateName", None)
    prefix = str(spec.name or metadata.get("name") or generated or "")
    name = naming.slug(prefix, naming.NAME_LIMIT) or api.kind.lower()
    naming.rename(manifest, name)
    tree.put(metadata, "namespace", spec.namespace)
    tree.fill(metadata, "namespace", namespace or None)
    if not metadata.get("namespace"):
        raise InvalidArgument("namespace", namespace, expected="a namespace", fix="name it in the connection or the task")
    pod.annotate(metadata, spec)
    return Started(manifest=manifest, name=name, name_prefix=prefix, warnings=warnings)


def limits(policy: dict[str, Any], spec: WorkloadSpec, profile: Profile, *, backoff_limit: int | None) -> None:
    """Write the limits that Job.spec and PyTorchJob.spec.runPolicy have in common; ``backoff_limit`` is the default."""
    ttl = whole(spec.ttl_seconds_after_finished, "ttl_seconds_after_finished", minimum=0)
    tree.settle(policy, "ttlSecondsAfterFinished", ttl, profile.ttl_seconds_after_finished.value)
    tree.settle(policy, "backoffLimit", whole(spec.backoff_limit, "backoff_limit", minimum=0), backoff_limit)
    deadline = UNSET if spec.active_deadline_seconds is None else spec.active_deadline_seconds
    tree.settle(policy, "activeDeadlineSeconds", whole(deadline, "active_deadline_seconds", minimum=1))
    if spec.suspend:
        policy["suspend"] = True


def whole(given: int | str | Unset | None, argument: str, *, minimum: int) -> int | Unset | None:
    """A whole number where one was given."""
    return given if given is None or isinstance(given, Unset) else quantity.whole(given, argument, minimum=minimum)
