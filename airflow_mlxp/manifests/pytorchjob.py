"""``kubeflow.org/v1`` PyTorchJob: training on several nodes with torchrun (guide, run distributed training)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import common, pod, rendezvous, restarts, tree, volumes
from airflow_mlxp.manifests import container as containers
from airflow_mlxp.manifests.spec import BuiltManifest, PyTorchJobSpec
from airflow_mlxp.manifests.unset import UNSET
from airflow_mlxp.profile import MLXP, Profile
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

if TYPE_CHECKING:
    from collections.abc import Mapping

_MASTER, _WORKER = "Master", "Worker"
_CLEAN_POD_POLICIES = ("None", "Running", "All")
_OF_THE_OPERATOR = frozenset(
    f"PET_{name}"
    for name in (
        *("NPROC_PER_NODE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "MAX_RESTARTS"),
        *("RDZV_ENDPOINT", "RDZV_BACKEND", "RDZV_ID", "RDZV_CONF", "STANDALONE"),
    )
)
"""Defaults of torchrun's flags that the operator sets (training-operator 1.9, pytorch/envvar.go); PET_TEE and others are free."""
_NPROC_WORDS = ("auto", "cpu", "gpu")


def build(spec: PyTorchJobSpec, *, namespace: str, profile: Profile = MLXP, retries: int = 0) -> BuiltManifest:
    """The PyTorchJob that the arguments and the manifest describe, with the profile's defaults where both are silent.

    ``namespace`` is the connection's: the argument's and the manifest's own come first. ``retries`` are the task's; they decide
    between starting containers again in place and leaving that to the next try (``restarts``).

    Raises:
        InvalidArgument: An argument or a field can't be; nothing else has happened.
    """
    started = common.start(spec, PYTORCHJOB.api, namespace)
    body = tree.child(started.manifest, "spec")
    replicas = _replica_specs(body, spec)
    count = sum(replica["replicas"] for replica in replicas.values())
    workers = replicas[_WORKER]["replicas"] if _WORKER in replicas else 0
    elastic = rendezvous.apply(body, spec, profile, name=started.name, workers=workers, has_master=_MASTER in replicas)
    limit = restarts.apply(replicas, spec, profile, shrinks=rendezvous.shrinks(elastic), retries=retries)
    most = count - workers + max(workers, elastic.get("maxReplicas") or 0)
    _run_policy(body, spec, profile, backoff_limit=restarts.backoff_limit(most, limit))
    trained = []
    for kind, replica in replicas.items():
        # Next to a Master the operator gives every worker an init container that waits for it.
        injected = int(kind == _WORKER and _MASTER in replicas)
        container = _training_container(replica, kind)
        _pods(replica["template"], container, spec, profile, distributed=count > 1, injected=injected)
        trained.append(container)
    _nproc_per_node(body, spec, profile, gpus=containers.gpu_count(trained[-1]))
    return BuiltManifest(
        manifest=started.manifest,
        name_prefix=started.name_prefix,
        container_restarts=limit,
        warnings=(*started.warnings, *_warnings(replicas, count, trained, elastic)),
        notes=(restarts.note(limit, elastic, retries),),
    )


def _replica_specs(body: dict[str, Any], spec: PyTorchJobSpec) -> dict[str, dict[str, Any]]:
    """``pytorchReplicaSpecs`` with a number of replicas in each, Master first, as the operator numbers them."""
    specs = tree.child(body, "pytorchReplicaSpecs")
    if unknown := [kind for kind in specs if kind not in (_MASTER, _WORKER)]:
        raise InvalidArgument("pytorchReplicaSpecs", unknown, expected="only Master and Worker, spelt so")
    if spec.workers is not None or not specs:
        if spec.workers is None:
            raise InvalidArgument("workers", None, expected="the number of worker replicas, at least 1")
        tree.child(specs, _WORKER)["replicas"] = quantity.whole(spec.workers, "workers", minimum=1)
    found = {kind: tree.child(specs, kind) for kind in (_MASTER, _WORKER) if kind in specs}
    for kind, replica in found.items():
        # The operator takes 1 for a missing number, and its webhook refuses a Master without one.
        tree.fill(replica, "replicas", 1)
        replica["replicas"] = quantity.whole(replica["replicas"], f"pytorchReplicaSpecs.{kind}.replicas", minimum=1)
    if found.get(_MASTER, {"replicas": 1})["replicas"] != 1:
        raise InvalidArgument("pytorchReplicaSpecs.Master.replicas", found[_MASTER]["replicas"], expected="1")
    return found


def _run_policy(body: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, backoff_limit: int | None) -> None:
    policy = tree.child(body, "runPolicy")
    clean = tree.one_of(spec.clean_pod_policy, "clean_pod_policy", _CLEAN_POD_POLICIES)
    tree.settle(policy, "cleanPodPolicy", clean, profile.clean_pod_policy.value)
    common.limits(policy, spec, profile, backoff_limit=backoff_limit)


def _pods(
    template: dict[str, Any],
    container: dict[str, Any],
    spec: PyTorchJobSpec,
    profile: Profile,
    *,
    distributed: bool,
    injected: int,
) -> None:
    pod.apply(template, container, spec, profile)
    if spec.shared_memory in (True, UNSET):
        volumes.fill_shared_memory(template["spec"], container, profile.shared_memory.value)
    if distributed:
        containers.add_capability(container, profile.capability.value)
    containers.fill_env(container, {**(profile.nccl_debug.value or {}), **(profile.gloo_socket_family.value or {})})
    pod.finish(template, container, profile, injected=injected)


def _training_container(replica: dict[str, Any], kind: str) -> dict[str, Any]:
    entries = tree.items(tree.child(tree.child(replica, "template"), "spec"), "containers")
    if not entries:
        entries.append({"name": PYTORCHJOB.container})
    for entry in entries:
        if entry.get("name") == PYTORCHJOB.container:
            return entry
    names = [entry.get("name") for entry in entries]
    path = f"pytorchReplicaSpecs.{kind}.template.spec.containers"
    fix = f"rename the training container to {PYTORCHJOB.container!r}"
    raise InvalidArgument(path, names, expected=f"a container named {PYTORCHJOB.container!r}", fix=fix)


def _nproc_per_node(body: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, gpus: int) -> None:
    elastic = body.get("elasticPolicy") or {}
    if spec.nproc_per_node is not None:
        # The webhook refuses a job that has both the old and the new field.
        elastic.pop("nProcPerNode", None)
        word = spec.nproc_per_node
        body["nprocPerNode"] = word if word in _NPROC_WORDS else str(quantity.whole(word, "nproc_per_node", minimum=1))
    elif "nProcPerNode" not in elastic:
        tree.fill(body, "nprocPerNode", str(gpus) if gpus else profile.nproc_per_node_without_gpus.value)


def _warnings(replicas: Mapping[str, Any], count: int, trained: list[dict[str, Any]], elastic: Mapping[str, Any]) -> list[str]:
    found = []
    if count == 1:
        found.append("A PyTorchJob with one replica: the guide recommends a Job for a single node")
    if elastic and _MASTER in replicas:
        found.append("torchrun with a Master replica: the guide recommends workers only, since rank 0 may move")
    names = {str(entry.get("name")) for container in trained for entry in container.get("env") or []}
    if taken := sorted(names & _OF_THE_OPERATOR):
        found.append(f"The training operator overwrites {', '.join(taken)}: use elastic and nproc_per_node instead")
    return found
