"""Kubernetes ``Job`` (``batch/v1``): the platform's kind for training on a single node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Condition, Phase
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import Api, CompletionRule, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER = "main"
"""Any name is accepted; the guide's sample uses this one."""

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"

_PHASES: dict[str, Phase] = {"Failed": Phase.FAILED, "Complete": Phase.SUCCEEDED, "Suspended": Phase.SUSPENDED}
_ENDING: dict[str, Phase] = {"FailureTarget": Phase.RUNNING, "SuccessCriteriaMet": Phase.RUNNING}
"""Announce the end while pods are still being stopped; the terminal condition follows."""


def _phase_of(obj: Mapping[str, Any] | None) -> Phase:
    if obj is None:
        return Phase.GONE
    condition = objects.deciding(obj, _PHASES)
    if condition is not None:
        return _PHASES[condition.type]
    return Phase.RUNNING if objects.deciding(obj, _ENDING) else _phase_by_counts(obj)


def _phase_by_counts(obj: Mapping[str, Any]) -> Phase:
    """A Job has no condition for being at work: ``status`` counts its pods instead."""
    status = objects.mapping(objects.at(obj, "status"))
    uncounted = objects.mapping(status.get("uncountedTerminatedPods"))
    if objects.count(status.get("ready")):
        return Phase.RUNNING
    if objects.count(status.get("failed")) or uncounted.get("failed"):
        return Phase.RESTARTING
    if objects.count(status.get("succeeded")) or uncounted.get("succeeded"):
        return Phase.RUNNING
    known = _PHASES.keys() & objects.conditions(obj).keys()
    return Phase.CREATED if known or status.get("startTime") or objects.count(status.get("active")) else Phase.PENDING


def _condition_of(obj: Mapping[str, Any]) -> Condition | None:
    return objects.deciding(obj, _PHASES | _ENDING)


def _completions(obj: Mapping[str, Any]) -> int:
    spec = objects.mapping(objects.at(obj, "spec"))
    # Without completions each of the parallel pods may end the work; the server writes 1 when both are absent.
    return min(objects.count(spec.get("completions"), objects.count(spec.get("parallelism"), 1)), objects.MAX_REPLICAS)


def _replicas_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    indexed = objects.at(obj, "spec", "completionMode") == "Indexed"
    return tuple(str(index) for index in range(_completions(obj))) if indexed else ()


def _replica_of(pod: Mapping[str, Any]) -> str:
    for source in (objects.annotations_of(pod), objects.labels_of(pod)):
        if index := objects.text(source.get(COMPLETION_INDEX)):
            return index
    pod_name = objects.name_of(pod)
    prefix = (
        objects.text(objects.at(pod, "metadata", "generateName"))
        or f"{objects.text(objects.labels_of(pod).get(JOB_NAME_LABEL))}-"
    )
    return pod_name.removeprefix(prefix) or pod_name


def _pod_selector(name: str) -> str:
    return f"{JOB_NAME_LABEL}={name}"


def _training_container_of(pod: Mapping[str, Any]) -> str:
    names = objects.container_names(pod)
    wanted = (objects.text(objects.annotations_of(pod).get(DEFAULT_CONTAINER_ANNOTATION)), CONTAINER, *names)
    return next((name for name in wanted if name in names), CONTAINER)


def _completion_of(obj: Mapping[str, Any]) -> CompletionRule:
    needed = _completions(obj)
    # The controller itself stops what still runs before it writes Complete (a successPolicy may leave pods running till then).
    return CompletionRule(condition_is_sufficient=True, replicas=needed, min_replicas=needed, removes_running_pods=True)


def _pod_templates_of(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(objects.mappings([objects.at(obj, "spec", "template")]))


def _is_suspended(obj: Mapping[str, Any]) -> bool:
    return objects.at(obj, "spec", "suspend") is True


JOB = Workload(
    api=Api(group="batch", version="v1", plural="jobs", kind="Job"),
    container=CONTAINER,
    phase_of=_phase_of,
    condition_of=_condition_of,
    replicas_of=_replicas_of,
    replica_of=_replica_of,
    pod_selector=_pod_selector,
    training_container_of=_training_container_of,
    completion_of=_completion_of,
    pod_templates_of=_pod_templates_of,
    is_suspended=_is_suspended,
)
