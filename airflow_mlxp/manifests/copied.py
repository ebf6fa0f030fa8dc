"""What an API server writes into an object, taken out again of a manifest that was copied from a cluster."""

from __future__ import annotations

from typing import Any

_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration", "batch.kubernetes.io/job-tracking")
_JOB_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
"""The Job controller's; a new Job that carries them is refused."""


def clean(manifest: dict[str, Any]) -> list[str]:
    """Take out, in place, what a server has set; the notes say what."""
    found: list[str] = []
    if manifest.pop("status", None) is not None:
        found.append("status")
    found += _of_metadata(manifest, "metadata")
    spec = manifest.get("spec")
    if isinstance(spec, dict):
        if not spec.get("manualSelector") and _is_generated(spec.get("selector")):
            del spec["selector"]
            found.append("spec.selector")
        for path, owner in _template_owners(spec):
            if isinstance(owner.get("template"), dict):
                found += _of_metadata(owner["template"], f"{path}.template.metadata")
    return [f"Left out of the manifest, since a server sets it: {', '.join(found)}"] if found else []


def _template_owners(spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    replicas = spec.get("pytorchReplicaSpecs")
    owners = (
        [(f"spec.pytorchReplicaSpecs.{kind}", owner) for kind, owner in replicas.items()] if isinstance(replicas, dict) else []
    )
    return [(path, owner) for path, owner in [("spec", spec), *owners] if isinstance(owner, dict)]


def _is_generated(selector: object) -> bool:
    labels = selector.get("matchLabels") if isinstance(selector, dict) else None
    return isinstance(labels, dict) and any(name in labels for name in _JOB_LABELS)


def _of_metadata(obj: dict[str, Any], path: str) -> list[str]:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return []
    # Owners that a user writes stay; those of a copy would delete the new object together with the old one's owner.
    names = (*_METADATA, "ownerReferences") if metadata.get("uid") else _METADATA
    found = [f"{path}.{key}" for key in names if metadata.pop(key, None) is not None]
    for key, entry_names in (("annotations", _ANNOTATIONS), ("labels", _JOB_LABELS)):
        entries = metadata.get(key)
        if isinstance(entries, dict):
            found += [f"{path}.{key}[{name}]" for name in entry_names if entries.pop(name, None) is not None]
    return found
