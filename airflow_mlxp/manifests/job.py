"""``batch/v1`` Job: training on a single node (guide, run a single-node Job)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import common, pod, tree, typed
from airflow_mlxp.profile import MLXP, Profile
from airflow_mlxp.workloads.job import JOB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.manifests.spec import BuiltManifest, JobSpec

_RESTART_POLICIES = ("Never", "OnFailure")
_COMPLETION_MODES = ("Indexed", "NonIndexed")


def build(spec: JobSpec, *, namespace: str, profile: Profile = MLXP, retries: int = 0) -> BuiltManifest:
    """The Job that the arguments and the manifest describe, with the profile's defaults where both are silent.

    ``namespace`` is the connection's: the argument's and the manifest's own come first. ``retries`` are the task's.

    Raises:
        InvalidArgument: An argument or a field can't be; nothing else has happened.
    """
    started = common.start(spec, JOB.api, namespace)
    body = tree.child(started.manifest, "spec")
    _policy(body, spec, profile)
    template = tree.child(body, "template")
    pod_spec = tree.child(template, "spec")
    if spec.restart_policy is None:
        raise InvalidArgument("restart_policy", None, expected=f"one of {', '.join(_RESTART_POLICIES)}: a Job needs one")
    policy = tree.one_of(spec.restart_policy, "restart_policy", _RESTART_POLICIES)
    tree.settle(pod_spec, "restartPolicy", policy, profile.job_restart_policy.value)
    _check(body, pod_spec)
    container = _training_container(pod_spec)
    pod.apply(template, container, spec, profile, kind=JOB.kind, shared_memory=False)
    pod.finish(template, container, profile)
    note = _restarts(body, retries)
    return common.finish(started, spec, JOB, profile, container_restarts=None, warnings=[], notes=[note])


def _policy(body: dict[str, Any], spec: JobSpec, profile: Profile) -> None:
    common.limits(body, spec, profile, backoff_limit=profile.job_backoff_limit.value)
    for key, given in (("parallelism", spec.parallelism), ("completions", spec.completions)):
        tree.put(body, key, None if given is None else quantity.whole(given, key, minimum=1))
    tree.put(body, "completionMode", tree.one_of(spec.completion_mode, "completion_mode", _COMPLETION_MODES))
    if spec.pod_failure_policy is not None:
        policy = typed.mapping(spec.pod_failure_policy, "V1PodFailurePolicy", "pod_failure_policy", kind=JOB.kind)
        body["podFailurePolicy"] = policy


def _check(body: Mapping[str, Any], pod_spec: Mapping[str, Any]) -> None:
    """What the API server would refuse in words that say little of the arguments."""
    if body.get("podFailurePolicy") and pod_spec.get("restartPolicy") != "Never":
        raise InvalidArgument("restart_policy", pod_spec.get("restartPolicy"), expected="Never, as pod_failure_policy needs it")
    counted = body.get("completions") is not None or body.get("parallelism") is None
    if body.get("completionMode") == "Indexed" and not counted:
        raise InvalidArgument("completions", None, expected="the number of indexes, as completion_mode='Indexed' needs it")


def _training_container(pod_spec: dict[str, Any]) -> dict[str, Any]:
    entries = tree.items(pod_spec, "containers")
    if not entries:
        entries.append({"name": JOB.container})
    name = JOB.training_container_of({"spec": pod_spec})
    return next((entry for entry in entries if entry.get("name") == name), entries[0])


def _restarts(body: Mapping[str, Any], retries: int) -> str:
    limit = body.get("backoffLimit")
    pods = "Kubernetes' own number" if limit is None else str(int(limit) + 1)
    return f"Starts at most: {retries + 1} (tries of the task) x {pods} (pods, by backoffLimit)"
