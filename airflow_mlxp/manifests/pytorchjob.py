"""``kubeflow.org/v1`` PyTorchJob: training on several nodes with torchrun (guide, run distributed training)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_mlxp import quantity
from airflow_mlxp.errors import InvalidArgument
from airflow_mlxp.manifests import common, overrides, pod, rendezvous, restarts, tree, typed, wire
from airflow_mlxp.manifests import container as containers
from airflow_mlxp.manifests.spec import SchedulingPolicy
from airflow_mlxp.profile import MLXP, Profile
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

if TYPE_CHECKING:
    from airflow_mlxp.manifests.spec import BuiltManifest, PyTorchJobSpec
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
_MANAGERS = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
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
    notes, warnings = _old_nproc_per_node(body)
    elastic = rendezvous.apply(body, spec, profile, name=started.name, workers=workers, has_master=_MASTER in replicas)
    limit = restarts.apply(replicas, spec, profile, shrinks=rendezvous.shrinks(elastic), retries=retries)
    most = count - workers + max(workers, elastic.get("maxReplicas") or 0)
    _run_policy(body, spec, profile, backoff_limit=restarts.backoff_limit(most, limit))
    for kind, replica in replicas.items():
        container = _training_container(replica, kind)
        _arguments(replica["template"], container, spec, profile, distributed=count > 1)
    _merge_master(body, spec)
    trained = []
    for kind in replicas:
        replica = body["pytorchReplicaSpecs"][kind]
        # Next to a Master the operator gives every worker an init container that waits for it.
        injected = int(kind == _WORKER and _MASTER in replicas)
        container = _training_container(replica, kind)
        pod.finish(replica["template"], container, profile, injected=injected)
        trained.append(container)
    _nproc_per_node(body, spec, profile, gpus=containers.gpu_count(trained[-1]))
    return common.finish(
        started,
        spec,
        PYTORCHJOB,
        profile,
        container_restarts=limit,
        warnings=[*warnings, *_warnings(replicas, count, trained, elastic)],
        notes=[*notes, restarts.note(limit, elastic, retries)],
    )


def _replica_specs(body: dict[str, Any], spec: PyTorchJobSpec) -> dict[str, dict[str, Any]]:
    """``pytorchReplicaSpecs`` with a number of replicas in each, Master first, as the operator numbers them."""
    specs = tree.child(body, "pytorchReplicaSpecs")
    if unknown := [kind for kind in specs if kind not in (_MASTER, _WORKER)]:
        raise InvalidArgument("pytorchReplicaSpecs", unknown, expected="only Master and Worker, spelt so")
    _wanted_master(specs, spec)
    if spec.workers is not None or not specs:
        if spec.workers is None:
            raise InvalidArgument("workers", None, expected="the number of worker replicas, at least 1")
        tree.child(specs, _WORKER)["replicas"] = quantity.whole(spec.workers, "workers", minimum=1)
    if spec.master and _MASTER in specs and not specs[_MASTER]:
        specs[_MASTER] = {"template": copy.deepcopy(tree.child(specs, _WORKER).get("template") or {})} if _WORKER in specs else {}
    found = {kind: tree.child(specs, kind) for kind in (_MASTER, _WORKER) if kind in specs}
    for kind, replica in found.items():
        # The operator takes 1 for a missing number, and its webhook refuses a Master without one.
        tree.fill(replica, "replicas", 1)
        replica["replicas"] = quantity.whole(replica["replicas"], f"pytorchReplicaSpecs.{kind}.replicas", minimum=1)
    if found.get(_MASTER, {"replicas": 1})["replicas"] != 1:
        raise InvalidArgument("pytorchReplicaSpecs.Master.replicas", found[_MASTER]["replicas"], expected="1")
    return found


def _wanted_master(specs: dict[str, Any], spec: PyTorchJobSpec) -> None:
    """Make room for a Master, or take the manifest's away, as the argument says."""
    given = spec.master
    if given is None:
        return
    if tree.is_flag(given) and not tree.flag(given, "master"):
        specs.pop(_MASTER, None)
    elif tree.is_flag(given) or isinstance(given, Mapping) or wire.is_model(given):
        tree.child(specs, _MASTER)
    else:
        raise InvalidArgument("master", given, expected="True, False or a ReplicaSpec as in a manifest")


def _merge_master(body: dict[str, Any], spec: PyTorchJobSpec) -> None:
    """Merge a ReplicaSpec given for the Master into what it has in common with the workers."""
    if spec.master is None or tree.is_flag(spec.master):
        return
    specs = body["pytorchReplicaSpecs"]
    given = typed.mapping(spec.master, "KubeflowOrgV1ReplicaSpec", "master", kind=PYTORCHJOB.kind, partial=True)
    if given.get("replicas", 1) != 1:
        raise InvalidArgument("master.replicas", given["replicas"], expected="1")
    specs[_MASTER] = overrides.merge(specs[_MASTER], given, "master")


def _run_policy(body: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, backoff_limit: int | None) -> None:
    policy = tree.child(body, "runPolicy")
    clean = tree.one_of(spec.clean_pod_policy, "clean_pod_policy", _CLEAN_POD_POLICIES)
    tree.settle(policy, "cleanPodPolicy", clean, profile.clean_pod_policy.value)
    common.limits(policy, spec, profile, backoff_limit=backoff_limit)
    if spec.scheduling_policy is not None:
        policy["schedulingPolicy"] = _scheduling_policy(spec.scheduling_policy)
    tree.put(policy, "managedBy", tree.one_of(spec.managed_by, "managed_by", _MANAGERS))


def _scheduling_policy(given: SchedulingPolicy | Mapping[str, Any]) -> dict[str, Any]:
    argument = "scheduling_policy"
    if isinstance(given, SchedulingPolicy):
        numbers = {"minAvailable": given.min_available, "scheduleTimeoutSeconds": given.schedule_timeout_seconds}
        others = {"queue": given.queue, "minResources": given.min_resources, "priorityClass": given.priority_class}
        whole = {
            key: quantity.whole(value, f"{argument}.{key}", minimum=1) for key, value in numbers.items() if value is not None
        }
        given = whole | {key: value for key, value in others.items() if value is not None}
    return typed.mapping(given, "KubeflowOrgV1SchedulingPolicy", argument, kind=PYTORCHJOB.kind)


def _arguments(
    template: dict[str, Any], container: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, distributed: bool
) -> None:
    pod.apply(template, container, spec, profile, kind=PYTORCHJOB.kind, shared_memory=True)
    if distributed:
        containers.add_capability(container, profile.capability.value)
    containers.fill_env(container, {**(profile.nccl_debug.value or {}), **(profile.gloo_socket_family.value or {})})


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


def _old_nproc_per_node(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Bring ``elasticPolicy.nProcPerNode`` to the place that replaces it; what there is to note and to warn of."""
    elastic = body.get("elasticPolicy")
    if not isinstance(elastic, dict) or elastic.get("nProcPerNode") is None:
        return [], []
    old = str(elastic.pop("nProcPerNode"))
    new = body.get("nprocPerNode")
    if new is None:
        body["nprocPerNode"] = old
        return [f"elasticPolicy.nProcPerNode is deprecated: sent as spec.nprocPerNode: {old!r}"], []
    said = f"elasticPolicy.nProcPerNode {old} is left out: the training operator refuses it beside spec.nprocPerNode {new!r}"
    return [], [said]


def _nproc_per_node(body: dict[str, Any], spec: PyTorchJobSpec, profile: Profile, *, gpus: int) -> None:
    word = spec.nproc_per_node
    if word is not None:
        body["nprocPerNode"] = word if word in _NPROC_WORDS else str(quantity.whole(word, "nproc_per_node", minimum=1))
    elif isinstance(body.get("nprocPerNode"), int):
        body["nprocPerNode"] = str(body["nprocPerNode"])
    tree.fill(body, "nprocPerNode", str(gpus) if gpus else profile.nproc_per_node_without_gpus.value)


def _warnings(replicas: Mapping[str, Any], count: int, trained: list[dict[str, Any]], elastic: Mapping[str, Any]) -> list[str]:
    found = []
    if count == 1:
        found.append("A PyTorchJob with one replica: the guide recommends a Job for a single node")
    if _MASTER in replicas and (elastic or any(_runs_torchrun(container) for container in trained)):
        found.append("torchrun with a Master replica: the guide recommends workers only, since rank 0 may move")
    names = {str(entry.get("name")) for container in trained for entry in container.get("env") or []}
    if taken := sorted(names & _OF_THE_OPERATOR):
        found.append(f"The training operator overwrites {', '.join(taken)}: use elastic and nproc_per_node instead")
    return found


def _runs_torchrun(container: Mapping[str, Any]) -> bool:
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    return any("torchrun" in str(word) or "torch.distributed.run" in str(word) for word in words)
