"""Users, capabilities and security contexts of pods and containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import overrides, tree, typed, volumes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.manifests.spec import WorkloadSpec
    from airflow_mlxp.profile import Profile

_CONTEXT = "securityContext"


def apply(pod: dict[str, Any], container: dict[str, Any], spec: WorkloadSpec, *, kind: str) -> None:
    """Merge the arguments into the security contexts of a pod spec and its training container.

    Raises:
        InvalidArgument: A context with a field that Kubernetes doesn't have, or no user.
    """
    for owner, given, definition, argument in (
        (pod, spec.pod_security_context, "V1PodSecurityContext", "pod_security_context"),
        (container, spec.security_context, "V1SecurityContext", "security_context"),
    ):
        if given is not None:
            context = typed.mapping(given, definition, argument, kind=kind)
            owner[_CONTEXT] = overrides.merge(tree.child(owner, _CONTEXT), context)
    if spec.run_as is not None:
        tree.child(pod, _CONTEXT).update(_user(spec.run_as))


def warnings(pod: Mapping[str, Any], container: Mapping[str, Any], profile: Profile) -> list[str]:
    """What is said of a user that the platform's storage does not expect; an image's own user is not known."""
    context = {**(pod.get(_CONTEXT) or {}), **(container.get(_CONTEXT) or {})}
    wanted = profile.storage_user.value
    if wanted is None or not volumes.mounts_claims(pod):
        return []
    expected = dict(zip(("runAsUser", "runAsGroup"), map(int, wanted.split(":")), strict=True))
    other = {key: context[key] for key, number in expected.items() if context.get(key) not in (None, number)}
    said = ", ".join(f"{key} {value}" for key, value in other.items())
    return [f"The pods run with {said}; high-performance storage expects UID and GID {wanted}"] if other else []


def _user(given: int | str) -> dict[str, int]:
    user, colon, group = given.partition(":") if isinstance(given, str) else (given, "", "")
    try:
        found = {"runAsUser": quantity.whole(user, "run_as", minimum=0)}
        return found | ({"runAsGroup": quantity.whole(group, "run_as", minimum=0)} if colon else {})
    except InvalidArgument as error:
        raise InvalidArgument("run_as", given, expected="a UID such as 500, or 'uid:gid' such as '500:500'") from error
