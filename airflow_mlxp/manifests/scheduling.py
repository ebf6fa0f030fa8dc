"""Where and when pods run: zone, node selector, affinity, tolerations, priority, queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.manifests import tree, typed

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Kueue: the LocalQueue that admits an object."""


def apply(metadata: dict[str, Any], pod: dict[str, Any], spec: WorkloadSpec, profile: Profile, *, kind: str) -> None:
    """Write the arguments into a pod template's metadata and spec."""
    if spec.node_selector:
        tree.child(pod, "nodeSelector").update(tree.label_map(spec.node_selector, "node_selector"))
    if spec.zone and profile.zone_key.value:
        zone = tree.label_map({profile.zone_key.value: spec.zone}, "zone")[profile.zone_key.value]
        tree.child(pod, "nodeSelector")[profile.zone_key.value] = zone
        tree.child(metadata, "annotations")[profile.zone_key.value] = zone
    if spec.tolerations:
        tolerations = tree.items(pod, "tolerations")
        given = typed.mappings(spec.tolerations, "V1Toleration", "tolerations", kind=kind)
        tolerations.extend(toleration for toleration in given if toleration not in tolerations)
    if spec.affinity is not None:
        pod["affinity"] = typed.mapping(spec.affinity, "V1Affinity", "affinity", kind=kind)
    tree.put(pod, "priorityClassName", tree.object_name(spec.priority_class, "priority_class"))
    tree.put(pod, "serviceAccountName", tree.object_name(spec.service_account, "service_account"))


def queue(metadata: dict[str, Any], spec: WorkloadSpec) -> None:
    """Write the queue into the metadata of the object."""
    if (name := tree.object_name(spec.queue_name, "queue_name")) is not None:
        tree.child(metadata, "labels")[QUEUE_LABEL] = name
