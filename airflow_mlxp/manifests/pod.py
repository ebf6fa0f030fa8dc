"""A pod template: the training container in it, others beside it, volumes, metadata, and what the platform forbids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.identity import PREFIX
from airflow_mlxp.manifests import container as containers
from airflow_mlxp.manifests import scheduling, security, tree, typed, volumes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile


_GRACE = "terminationGracePeriodSeconds"
_KUBERNETES_GRACE = 30
"""Seconds; Kubernetes' default of terminationGracePeriodSeconds."""


def grace_seconds(templates: Iterable[Mapping[str, Any]]) -> int:
    """Seconds that the slowest of these pod templates has between SIGTERM and SIGKILL."""
    given = (template["spec"].get(_GRACE) for template in templates)
    return max((_KUBERNETES_GRACE if seconds is None else int(seconds) for seconds in given), default=_KUBERNETES_GRACE)


def apply(
    template: dict[str, Any],
    container: dict[str, Any],
    spec: WorkloadSpec,
    profile: Profile,
    *,
    kind: str,
    shared_memory: bool,
) -> None:
    """Write the arguments into a pod template, whose training container is ``container``, then fill the profile's defaults.

    ``shared_memory`` is the kind's default for that argument.
    """
    metadata, pod = tree.child(template, "metadata"), tree.child(template, "spec")
    annotate(metadata, spec)
    for key, value in (profile.istio_annotation.value or {}).items():
        tree.fill(tree.child(metadata, "annotations"), key, value)
    containers.apply(container, spec, profile, kind=kind)
    _others(pod, spec, kind)
    volumes.mount(pod, container, spec.volumes, kind=kind)
    volumes.share_memory(pod, container, spec.shared_memory, default=shared_memory, source=profile.shared_memory.value)
    if spec.grace_seconds is not None:
        pod[_GRACE] = quantity.whole(spec.grace_seconds, "grace_seconds", minimum=0)
    security.apply(pod, container, spec, kind=kind)
    if tree.flag(spec.infiniband, "infiniband"):
        containers.add_capability(container, profile.capability.value)
    scheduling.apply(metadata, pod, spec, profile, kind=kind)
    if spec.image_pull_secrets:
        names = tree.texts(spec.image_pull_secrets, "image_pull_secrets", fix="")
        secrets = [{"name": tree.object_name(name, f"image_pull_secrets[{index}]")} for index, name in enumerate(names)]
        tree.merge_named(tree.items(pod, "imagePullSecrets"), secrets)


def annotate(metadata: dict[str, Any], spec: WorkloadSpec) -> None:
    """Add the user's labels and annotations to the metadata of an object or a pod template."""
    if spec.labels:
        tree.child(metadata, "labels").update(tree.label_map(spec.labels, "labels", reserved=PREFIX))
    if spec.annotations:
        tree.child(metadata, "annotations").update(tree.text_map(spec.annotations, "annotations", reserved=PREFIX))


def finish(template: Mapping[str, Any], container: dict[str, Any], profile: Profile, *, injected: int = 0) -> None:
    """The last step for a template: the result's variables. A controller adds ``injected`` containers."""
    containers.fill_result(container, profile, containers=len(_all_containers(template["spec"])) + injected)


def check(template: Mapping[str, Any], profile: Profile, *, training: str) -> list[str]:
    """Refuse what can't run or the platform forbids; the warnings are about what is legal but unwise.

    ``training`` is the name of the training container.
    """
    pod = template.get("spec")
    if not isinstance(pod, dict):
        raise InvalidArgument("overrides", pod, expected="to leave the pod template its spec")
    both = _all_containers(pod)
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
    found = security.warnings(pod, next((entry for entry in both if entry.get("name") == training), {}), profile)
    if folders := volumes.host_paths(pod):
        found.append(f"hostPath volumes ({', '.join(folders)}) tie pods to one node's disk: use PersistentVolumeClaims")
    return found


def _all_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*tree.items(pod, "containers"), *(pod.get("initContainers") or [])]


def _others(pod: dict[str, Any], spec: WorkloadSpec, kind: str) -> None:
    for argument, given, extra in (
        ("init_containers", spec.init_containers, {}),
        ("sidecars", spec.sidecars, {"restartPolicy": "Always"}),
    ):
        if given:
            entries = typed.mappings(given, "V1Container", argument, kind=kind)
            tree.merge_named(tree.items(pod, "initContainers"), [entry | extra for entry in entries])
