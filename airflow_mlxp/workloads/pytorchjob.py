"""Kubeflow ``PyTorchJob`` (``kubeflow.org/v1``, training-operator 1.9): the platform's kind for training on several nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Condition, Phase
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import Api, CompletionRule, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTAINER = "pytorch"
"""The operator's webhook refuses a template without a container of this name (guide, create PyTorchJob)."""

JOB_NAME_LABEL = "training.kubeflow.org/job-name"
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"

_PHASES: dict[str, Phase] = {
    # Strongest first. Elastic, restartPolicy Never, one worker ended well and one badly: both Succeeded and Failed are True.
    "Failed": Phase.FAILED,
    "Succeeded": Phase.SUCCEEDED,
    "Suspended": Phase.SUSPENDED,
    "Restarting": Phase.RESTARTING,
    "Running": Phase.RUNNING,
    "Created": Phase.CREATED,
}
_REPLICA_TYPES = ("master", "worker")


def _phase_of(obj: Mapping[str, Any] | None) -> Phase:
    if obj is None:
        return Phase.GONE
    condition = objects.deciding(obj, _PHASES)
    if condition is not None:
        return _PHASES[condition.type]
    return Phase.CREATED if _PHASES.keys() & objects.conditions(obj).keys() else Phase.PENDING


def _condition_of(obj: Mapping[str, Any]) -> Condition | None:
    return objects.deciding(obj, _PHASES)


def _replica_specs(obj: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Replica specs by lower-case type, in log order: the controller accepts the keys in any case."""
    given = objects.mapping(objects.at(obj, "spec", "pytorchReplicaSpecs"))
    by_type = {key.lower(): objects.mapping(spec) for key, spec in given.items() if isinstance(key, str)}
    return {kind: by_type[kind] for kind in _REPLICA_TYPES if kind in by_type}


def _count(spec: Mapping[str, Any]) -> int:
    # The operator applies its defaults in memory only: an object read back still lacks them.
    return min(objects.count(spec.get("replicas"), default=1), objects.MAX_REPLICAS)


def _replicas_of(obj: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{kind}-{index}" for kind, spec in _replica_specs(obj).items() for index in range(_count(spec)))


def _replica_of(pod: Mapping[str, Any]) -> str:
    labels = objects.labels_of(pod)
    kind, index = objects.text(labels.get(REPLICA_TYPE_LABEL)), objects.text(labels.get(REPLICA_INDEX_LABEL))
    return f"{kind.lower()}-{index}" if kind and index else objects.name_of(pod)


def _pod_selector(name: str) -> str:
    return f"{JOB_NAME_LABEL}={name}"


def _training_container_of(pod: Mapping[str, Any]) -> str:
    names = objects.container_names(pod)
    return CONTAINER if CONTAINER in names or not names else names[0]


def _completion_of(obj: Mapping[str, Any]) -> CompletionRule:
    specs = _replica_specs(obj)
    total = sum(_count(spec) for spec in specs.values())
    elastic = objects.mapping(objects.at(obj, "spec", "elasticPolicy"))
    lowest, highest = objects.count(elastic.get("minReplicas")), objects.count(elastic.get("maxReplicas"))
    # A missing bound defaults to the other one, both to the workers asked for: only two unequal ones make it elastic.
    shrinks = 0 < lowest < highest
    return CompletionRule(
        condition_is_sufficient=False,
        replicas=total,
        min_replicas=min(lowest, total) if shrinks else total,
        removes_running_pods=objects.at(obj, "spec", "runPolicy", "cleanPodPolicy") in ("All", "Running"),
    )


def _pod_templates_of(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(objects.mappings([spec.get("template") for spec in _replica_specs(obj).values()]))


def _is_suspended(obj: Mapping[str, Any]) -> bool:
    return objects.at(obj, "spec", "runPolicy", "suspend") is True


PYTORCHJOB = Workload(
    api=Api(group="kubeflow.org", version="v1", plural="pytorchjobs", kind="PyTorchJob"),
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
