"""Pods and services of a PyTorchJob, with the labels and the environment that the training operator gives them.

Left out: the init container ``init-pytorch``, which waits for the Master's DNS name; here names need no waiting.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from airflow_mlxp.local import objects
from airflow_mlxp.local.client import PYTORCHJOBS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mlxp.local.client import Object

JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
REPLICA_TYPE = "training.kubeflow.org/replica-type"

CONTAINER = "pytorch"
PORT_NAME = "pytorchjob-port"
PORT = 23456


def replica_specs(job: Object) -> dict[str, Object]:
    """The replica specs with the operator's defaults (one replica, OnFailure, the port), Master first. The job is not changed."""
    specs = {}
    for kind in sorted(job["spec"]["pytorchReplicaSpecs"]):
        spec = copy.deepcopy(job["spec"]["pytorchReplicaSpecs"][kind])
        spec["replicas"] = int(spec["replicas"]) if spec.get("replicas") is not None else 1
        spec["restartPolicy"] = spec.get("restartPolicy") or "OnFailure"
        container = _training_container(spec)
        ports = container.get("ports") or []
        if not any(port.get("name") == PORT_NAME for port in ports):
            ports = [*ports, {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}]
        container["ports"] = ports
        specs[kind] = spec
    return specs


def labels(job: Object) -> dict[str, str]:
    """Labels of everything that belongs to the job."""
    return {JOB_NAME: job["metadata"]["name"].replace("/", "-"), OPERATOR_NAME: "pytorchjob-controller"}


def replica_name(job: Object, kind: str, index: int) -> str:
    """Name of a replica's pod and service."""
    return f"{job['metadata']['name']}-{kind.lower()}-{index}".replace("/", "-")


def make_pod(job: Object, specs: Mapping[str, Object], kind: str, index: int) -> Object:
    """The pod of one replica."""
    spec = specs[kind]
    template = copy.deepcopy(spec["template"])
    metadata, pod_spec = template.get("metadata") or {}, template["spec"]
    env = environment(job, specs, kind, index)
    for container in [*(pod_spec.get("initContainers") or []), *pod_spec["containers"]]:
        container["env"] = [*(container.get("env") or []), *({"name": key, "value": value} for key, value in env.items())]
    pod_spec["restartPolicy"] = "Never" if spec["restartPolicy"] == "ExitCode" else spec["restartPolicy"]
    role = {JOB_ROLE: "master"} if kind == "Master" or ("Master" not in specs and index == 0) else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": replica_name(job, kind, index),
            "namespace": job["metadata"]["namespace"],
            "labels": {**(metadata.get("labels") or {}), **_replica_labels(job, kind, index), **role},
            "annotations": {"sidecar.istio.io/inject": "false", **(metadata.get("annotations") or {})},
            "ownerReferences": [objects.owner_reference(PYTORCHJOBS, job)],
        },
        "spec": pod_spec,
    }


def make_service(job: Object, specs: Mapping[str, Object], kind: str, index: int) -> Object:
    """The headless service of one replica."""
    identity = _replica_labels(job, kind, index)
    ports = _training_container(specs[kind])["ports"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": replica_name(job, kind, index),
            "namespace": job["metadata"]["namespace"],
            "labels": identity,
            "ownerReferences": [objects.owner_reference(PYTORCHJOBS, job)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": identity,
            "ports": [{"name": port["name"], "port": port["containerPort"]} for port in ports if port.get("name")],
        },
    }


def environment(job: Object, specs: Mapping[str, Object], kind: str, index: int) -> dict[str, str]:
    """The variables that the operator adds, in its order."""
    total = sum(spec["replicas"] for spec in specs.values())
    elastic = job["spec"].get("elasticPolicy")
    processes = job["spec"].get("nprocPerNode")
    if processes is None and (elastic or {}).get("nProcPerNode") is None:
        processes = "auto"
    env = {"PYTHONUNBUFFERED": "1"}
    if "Master" in specs:
        port, address = str(_port(specs["Master"])), replica_name(job, "Master", 0)
        rank = str(0 if kind == "Master" else index + 1)
        world = total * (int(processes) if str(processes).isdigit() else 1)
        env |= {"MASTER_PORT": port, "PET_MASTER_PORT": port, "MASTER_ADDR": address, "PET_MASTER_ADDR": address}
        env |= {"WORLD_SIZE": str(world), "RANK": rank, "PET_NODE_RANK": rank}
    if processes is not None:
        env["PET_NPROC_PER_NODE"] = str(processes)
    return env | ({"PET_NNODES": str(total)} if elastic is None else _elastic_environment(job, specs, elastic))


def _elastic_environment(job: Object, specs: Mapping[str, Object], elastic: Object) -> dict[str, str]:
    smallest, largest = elastic.get("minReplicas"), elastic.get("maxReplicas")
    workers = specs["Worker"]["replicas"]
    first = smallest if smallest is not None else largest if largest is not None else workers
    last = largest if largest is not None else first
    host = elastic.get("rdzvHost") or replica_name(job, "Worker", 0)
    port = elastic.get("rdzvPort") or _port(specs["Worker"])
    env = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": elastic.get("rdzvBackend") or "c10d",
        "PET_NNODES": f"{first}:{last}",
    }
    optional = {"PET_MAX_RESTARTS": "maxRestarts", "PET_NPROC_PER_NODE": "nProcPerNode", "PET_RDZV_ID": "rdzvId"}
    env |= {name: str(elastic[field]) for name, field in optional.items() if elastic.get(field) is not None}
    if elastic.get("rdzvConf"):
        env["PET_RDZV_CONF"] = ",".join(f"{item['key']}={item['value']}" for item in elastic["rdzvConf"])
    if elastic.get("standalone"):
        env["PET_STANDALONE"] = ""
    return env


def _replica_labels(job: Object, kind: str, index: int) -> dict[str, str]:
    return {**labels(job), REPLICA_INDEX: str(index), REPLICA_TYPE: kind.lower()}


def _training_container(spec: Object) -> Object:
    containers: list[Object] = spec["template"]["spec"]["containers"]
    return next((item for item in containers if item["name"] == CONTAINER), containers[0])


def _port(spec: Object) -> int:
    ports = _training_container(spec)["ports"]
    return next(int(port["containerPort"]) for port in ports if port.get("name") == PORT_NAME)
