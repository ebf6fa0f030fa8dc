"""The pods of a batch/v1 Job, as the Job controller of Kubernetes makes them from the template."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from airflow_mlxp.local import objects
from airflow_mlxp.local.client import JOBS
from airflow_mlxp.local.controllers import job_state

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object


def make_pod(job: Object, index: int | None) -> Object:
    """The next pod of the Job; ``index`` is its completion index when the Job is Indexed."""
    template = copy.deepcopy(job["spec"]["template"])
    metadata, spec = template.get("metadata") or {}, template["spec"]
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = {**(metadata.get("labels") or {}), **job_labels(name, uid)}
    annotations = dict(metadata.get("annotations") or {})
    prefix = f"{name}-"
    if index is not None:
        labels[job_state.INDEX] = annotations[job_state.INDEX] = str(index)
        prefix = f"{name}-{index}-"
        spec.setdefault("hostname", f"{name}-{index}")
        _tell_index(spec)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": job["metadata"]["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [job_state.FINALIZER],
            "ownerReferences": [objects.owner_reference(JOBS, job)],
        },
        "spec": spec,
    }


def job_labels(name: str, uid: str) -> dict[str, str]:
    """Labels of a Job's pods, the old unprefixed ones included."""
    return {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


def _tell_index(spec: Object) -> None:
    """JOB_COMPLETION_INDEX from the label, unless the user set it."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{job_state.INDEX}']"}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        env = container.setdefault("env", None) or []
        if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in env):
            env = [*env, {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}]
        container["env"] = env
