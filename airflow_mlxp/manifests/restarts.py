"""Who starts a failed replica again: the next try of the task, or the kubelet in the pod.

Both at once would multiply. With retries of the task a replica is not started again; without them, and always where training
may go on with fewer workers, it is: under ``Never`` the operator ends such a job at the first failed pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.manifests import common, tree
from airflow_mlxp.manifests.unset import Unset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.manifests.spec import PyTorchJobSpec
    from airflow_mlxp.profile import Profile

_RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def apply(
    replicas: Mapping[str, dict[str, Any]], spec: PyTorchJobSpec, profile: Profile, *, shrinks: bool, retries: int
) -> int | None:
    """Write each replica's ``restartPolicy``; the result is the number of restarts that each replica has, None for no limit."""
    limit = common.whole(spec.container_restarts, "container_restarts", minimum=0)
    policy = tree.one_of(spec.restart_policy, "restart_policy", _RESTART_POLICIES)
    in_place = shrinks or (retries == 0 if isinstance(limit, Unset) else limit != 0)
    default = profile.restart_policy if in_place else profile.restart_policy_with_retries
    for replica in replicas.values():
        tree.settle(replica, "restartPolicy", policy, default.value)
    if not isinstance(limit, Unset):
        return limit
    never = all(replica.get("restartPolicy") == "Never" for replica in replicas.values())
    chosen = profile.container_restarts_with_retries if never else profile.container_restarts
    return int(chosen.value)


def backoff_limit(replicas: int, limit: int | None) -> int | None:
    """``runPolicy.backoffLimit`` as a net under the task's own limit; None for no limit.

    The operator adds up the restarts of all replicas and fails the job when the sum reaches the number: so many that ``limit``
    restarts of all replicas together stay below it.
    """
    return None if limit is None else replicas * (limit + 1) + 1


def note(limit: int | None, elastic: Mapping[str, Any], retries: int) -> str:
    """How often the program may start in all."""
    starts = "any number" if limit is None else str(limit + 1)
    torchrun = f" x {(elastic.get('maxRestarts') or 0) + 1} (starts by torchrun)" if elastic else ""
    return f"Starts at most: {retries + 1} (tries of the task) x {starts} (container starts of each replica){torchrun}"
