"""The validating webhook of training-operator 1.9 for PyTorchJobs: which jobs it refuses, in its words."""

from __future__ import annotations

from typing import Any

from airflow_mlxp.local.server import formats, problem

NAME = "validator.pytorchjob.training-operator.kubeflow.org"
_REPLICAS = "spec.pytorchReplicaSpecs"
_CONTROLLERS = ["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"]


def admit(job: dict[str, Any]) -> list[str]:
    """Refuse a job that the operator can't run; the answer is deprecation warnings.

    Raises:
        ApiError: Forbidden, as controller-runtime answers for a webhook whose validation returns an error.
    """
    spec = job.get("spec") or {}
    errors, warnings = _name(job["metadata"]["name"]), []
    controller = (spec.get("runPolicy") or {}).get("managedBy")
    if controller is not None and controller not in _CONTROLLERS:
        errors.append(problem.not_supported("spec.runPolicy.managedBy", controller, _CONTROLLERS))
    replicas = spec.get("pytorchReplicaSpecs")
    elastic = spec.get("elasticPolicy")
    if elastic is not None:
        if "Worker" not in (replicas or {}):
            errors.append(problem.required(f"{_REPLICAS}[Worker]", "must be configured if elastic policy is used"))
        if elastic.get("nProcPerNode") is not None:
            warnings.append("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead")
            if spec.get("nprocPerNode") is not None:
                errors.append(
                    problem.forbidden_field("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")
                )
    if replicas is None:
        errors.append(problem.required(_REPLICAS, "must be required"))
    for role, replica in (replicas or {}).items():
        errors += _replica(role, replica or {})
    if errors:
        raise problem.denied_by_webhook(NAME, problem.aggregate(errors))
    return warnings


def _name(name: str) -> list[problem.FieldError]:
    broken = formats.dns1035_label(name)
    return [problem.invalid("metadata.name", name, f"should match: {','.join(broken)}")] if broken else []


def _replica(role: str, replica: dict[str, Any]) -> list[problem.FieldError]:
    path = f"{_REPLICAS}[{role}]"
    containers_path = f"{path}.template.spec.containers"
    containers = ((replica.get("template") or {}).get("spec") or {}).get("containers") or []
    errors = []
    if role not in {"Master", "Worker"}:
        errors.append(problem.not_supported(path, role, ["Master", "Worker"]))
    if not containers:
        errors.append(problem.required(containers_path, "must be specified"))
    for number, container in enumerate(containers):
        if not container.get("image"):
            errors.append(problem.required(f"{containers_path}[{number}].image", "must be required"))
    if not any(container.get("name") == "pytorch" for container in containers):
        errors.append(problem.required(containers_path, "must have at least one container with name pytorch"))
    count = replica.get("replicas")
    if role == "Master" and count != 1:
        errors.append(problem.forbidden_field(f"{path}.replicas", "must be 1"))
    elif role != "Master" and count is not None and count < 1:
        errors.append(problem.forbidden_field(f"{path}.replicas", "must be at least 1"))
    return errors
