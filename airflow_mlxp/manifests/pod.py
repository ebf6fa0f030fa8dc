"""A pod template: the training container in it, volumes, scheduling, metadata, and what the platform forbids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.identity import PREFIX
from airflow_mlxp.manifests import container as containers
from airflow_mlxp.manifests import tree, volumes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile


_GRACE = "terminationGracePeriodSeconds"
_KUBERNETES_GRACE = 30
"""Seconds; Kubernetes' default of terminationGracePeriodSeconds."""


def grace_seconds(templates: Iterable[Mapping[str, Any]]) -> int:
    """Seconds that the slowest of these pod templates has between SIGTERM and SIGKILL."""
    given = (template["spec"].get(_GRACE) for template in templates)
    return max((_KUBERNETES_GRACE if seconds is None else int(seconds) for seconds in given), default=_KUBERNETES_GRACE)


def apply(template: dict[str, Any], container: dict[str, Any], spec: WorkloadSpec, profile: Profile) -> None:
    """Write the arguments into a pod template, whose training container is ``container``, then fill the profile's defaults."""
    metadata, pod = tree.child(template, "metadata"), tree.child(template, "spec")
    annotate(metadata, spec)
    for key, value in (profile.istio_annotation.value or {}).items():
        tree.fill(tree.child(metadata, "annotations"), key, value)
    containers.apply(container, spec, profile)
    volumes.mount_claims(pod, container, spec.volumes)
    if spec.grace_seconds is not None:
        pod[_GRACE] = quantity.whole(spec.grace_seconds, "grace_seconds", minimum=0)
    if spec.infiniband:
        containers.add_capability(container, profile.capability.value)
    _scheduling(metadata, pod, spec, profile)


def annotate(metadata: dict[str, Any], spec: WorkloadSpec) -> None:
    """Add the user's labels and annotations to the metadata of an object or a pod template."""
    for key, given in (("labels", spec.labels), ("annotations", spec.annotations)):
        if given:
            tree.child(metadata, key).update(tree.text_map(given, key, reserved=PREFIX))


def finish(template: Mapping[str, Any], container: dict[str, Any], profile: Profile, *, injected: int = 0) -> None:
    """The last step for a template: checks, then the result's variables. A controller adds ``injected`` containers."""
    pod = template["spec"]
    both = [*tree.items(pod, "containers"), *(pod.get("initContainers") or [])]
    _check(pod, both, profile)
    containers.fill_result(container, profile, containers=len(both) + injected)


def _scheduling(metadata: dict[str, Any], pod: dict[str, Any], spec: WorkloadSpec, profile: Profile) -> None:
    if spec.node_selector:
        tree.child(pod, "nodeSelector").update(tree.text_map(spec.node_selector, "node_selector"))
    if spec.zone and profile.zone_key.value:
        tree.child(pod, "nodeSelector")[profile.zone_key.value] = spec.zone
        tree.child(metadata, "annotations")[profile.zone_key.value] = spec.zone
    if spec.tolerations:
        tree.items(pod, "tolerations").extend(_tolerations(spec.tolerations))
    tree.put(pod, "serviceAccountName", spec.service_account)
    if spec.image_pull_secrets:
        secrets = [{"name": name} for name in tree.texts(spec.image_pull_secrets, "image_pull_secrets", fix="")]
        tree.merge_named(tree.items(pod, "imagePullSecrets"), secrets)


def _tolerations(given: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not isinstance(given, list | tuple) or not all(isinstance(item, Mapping) for item in given):
        raise InvalidArgument("tolerations", given, expected="a list of mappings, as in a pod spec")
    return [dict(toleration) for toleration in given]


def _check(pod: Mapping[str, Any], both: list[dict[str, Any]], profile: Profile) -> None:
    for entry in both:
        if not entry.get("image"):
            raise InvalidArgument("image", entry.get("image"), expected=f"an image for container {entry.get('name')!r}")
    names = [entry.get("name") for entry in both]
    if len(set(names)) != len(names):
        raise InvalidArgument("containers", names, expected="a different name for each container")
    group = (pod.get("securityContext") or {}).get("fsGroup")
    if group is not None and profile.refuses_fs_group.value:
        fix = "let the image's user be 500:500"
        raise InvalidArgument("securityContext.fsGroup", group, expected=f"none: {profile.refuses_fs_group.reason}", fix=fix)
