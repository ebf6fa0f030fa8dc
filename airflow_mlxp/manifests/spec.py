"""Typed arguments of the operators. Templates are rendered by then; numbers may still be text (``"2"``).

What is given wins over the manifest and the profile. Where ``UNSET`` is the default, None removes what they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mlxp.manifests.unset import UNSET, Unset

if TYPE_CHECKING:
    from airflow_mlxp.manifests.elastic import Elastic
    from airflow_mlxp.quantity import Quantity


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """What is mounted at a path, with more than a claim's name to say (guide, use an existing volume). Exactly one source."""

    claim: str = ""
    """Name of a PersistentVolumeClaim."""
    secret: str = ""
    """Name of a Secret: each of its keys is a file."""
    config_map: str = ""
    """Name of a ConfigMap: each of its keys is a file."""
    empty_dir: bool | str = False
    """True: an empty folder that lives as long as the pod; text such as ``"50Gi"`` limits its size."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Any other volume source as in a manifest, such as ``{"nfs": {...}}``; ``hostPath`` is refused."""
    sub_path: str = ""
    """Folder inside the volume; empty: its root."""
    read_only: bool | str = False
    items: Mapping[str, str] = field(default_factory=dict)
    """Of a Secret or ConfigMap: only these keys, each as a file of the given name."""
    default_mode: int | None = None
    """Of a Secret or ConfigMap: permissions of its files; Kubernetes' default 0o644."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulingPolicy:
    """``runPolicy.schedulingPolicy`` of a PyTorchJob, for gang scheduling (training-operator). None leaves its default."""

    min_available: int | str | None = None
    """Pods that start together; default: all."""
    queue: str | None = None
    """Queue of the gang scheduler; default ``default``."""
    min_resources: Mapping[str, Quantity] | None = None
    """Resources that the group needs; default: what its pods request."""
    priority_class: str | None = None
    schedule_timeout_seconds: int | str | None = None
    """Seconds after which the group gives up waiting."""


Env = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""``{"NAME": "value"}``, ``{"NAME": {"secretKeyRef": {...}}}`` (an ``EnvVarSource``), or a list as in a manifest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSpec:
    """Arguments that both kinds take; ``container`` ones are those of the training container."""

    name: str | None = None
    """First part of the workload's name; default: the manifest's name, else the operator chooses. ``"exact"``: the workload has
    exactly the manifest's name, so that only one can exist at a time."""
    namespace: str | None = None
    """Default: the manifest's, else the connection's."""
    manifest: Mapping[str, Any] | str | None = None
    """A manifest to start from: wire form, an object of the ``kubernetes`` package, or YAML or JSON text of one document."""
    overrides: Mapping[str, Any] | None = None
    """Strategic merge patch over the result of everything else: lists of the pod templates merge by Kubernetes' own keys,
    ``null`` removes a field, ``{"$patch": "delete", "name": ...}`` an element."""
    image: str | None = None
    command: Sequence[str] | None = None
    """Replaces the image's entrypoint; without it the image's own stays."""
    args: Sequence[str] | None = None
    env: Env | None = None
    """Added to the manifest's; the same name replaces."""
    env_from: Sequence[Mapping[str, Any]] = ()
    """Whole Secrets or ConfigMaps as environment: ``[{"secretRef": {"name": "wandb"}}]`` (Container.envFrom)."""
    debug: bool | str = False
    """Verbose NCCL and torch.distributed (guide, debug a PyTorchJob)."""
    cpu: Quantity | None = None
    """Cores as limit, and so as request."""
    memory: Quantity | None = None
    """Bytes or text such as ``"16Gi"``, as limit and request."""
    gpus: int | str | None = None
    """``nvidia.com/gpu`` of each replica."""
    working_dir: str | None = None
    image_pull_policy: str | Unset | None = UNSET
    """``Always`` by default (guide's samples)."""
    image_pull_secrets: Sequence[str] = ()
    """Names of docker-registry secrets (guide, external registry)."""
    volumes: Mapping[str, str | Volume | Mapping[str, Any]] = field(default_factory=dict)
    """Mount path -> name of a PersistentVolumeClaim, a ``Volume``, or a volume source as in a manifest."""
    shared_memory: bool | str | Unset | None = UNSET
    """Shared memory at ``/dev/shm``, without sizeLimit; by default on for a PyTorchJob, off for a Job (guide, shared memory).
    Text such as ``"64Gi"`` is its sizeLimit; False takes it away."""
    zone: str | None = None
    """GPU zone: node selector and annotation of the pods."""
    infiniband: bool | str = False
    """Capability IPC_LOCK (guide, InfiniBand); several workers have it anyway."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] | None = None
    """PodSpec.affinity; replaces the manifest's."""
    priority_class: str | None = None
    """PodSpec.priorityClassName."""
    queue_name: str | None = None
    """Kueue LocalQueue that admits the workload (label ``kueue.x-k8s.io/queue-name``)."""
    service_account: str | None = None
    security_context: Mapping[str, Any] | None = None
    """Container.securityContext, merged into the manifest's."""
    pod_security_context: Mapping[str, Any] | None = None
    """PodSpec.securityContext, merged into the manifest's; the guide forbids ``fsGroup``."""
    run_as: int | str | None = None
    """UID of the containers, or ``"uid:gid"``; high-performance storage wants ``"500:500"`` (guide, run a single-node Job)."""
    ports: Sequence[int | str | Mapping[str, Any]] = ()
    """Ports of the training container: numbers, or ContainerPorts as in a manifest."""
    init_containers: Sequence[Mapping[str, Any]] = ()
    """Containers that run to their end before the training starts (PodSpec.initContainers)."""
    sidecars: Sequence[Mapping[str, Any]] = ()
    """Containers that run beside the training and are stopped after it: init containers with ``restartPolicy: Always``
    (Kubernetes 1.29 and later)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the object and its pods."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the object and its pods."""
    restart_policy: str | Unset = UNSET
    """``Never`` or ``OnFailure``; a PyTorchJob also takes ``Always`` and ``ExitCode``. Default: see the profile."""
    ttl_seconds_after_finished: int | str | Unset | None = UNSET
    """Seconds that a finished workload and its pods are kept; default three weeks (guide, life cycle). None: for ever."""
    backoff_limit: int | str | Unset | None = UNSET
    """Job: retries of failed pods, default 1. PyTorchJob: container restarts of all replicas together, computed by default."""
    active_deadline_seconds: int | str | None = None
    """Seconds after which Kubernetes stops the workload as failed; no limit by default."""
    grace_seconds: int | str | None = None
    """Seconds between SIGTERM and SIGKILL when the pods are stopped (``terminationGracePeriodSeconds``): time to write a
    checkpoint. Default: the manifest's, else Kubernetes' 30."""
    suspend: bool | str = False
    """Create the workload, but start no pods until somebody (Kueue, kubectl) resumes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec(WorkloadSpec):
    """Arguments of a Job."""

    parallelism: int | str | None = None
    completions: int | str | None = None
    completion_mode: str | None = None
    """``Indexed`` or ``NonIndexed`` (Kubernetes' default)."""
    pod_failure_policy: Mapping[str, Any] | None = None
    """Job.spec.podFailurePolicy: which failures count, are ignored or end the Job; needs restart policy ``Never``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PyTorchJobSpec(WorkloadSpec):
    """Arguments of a PyTorchJob."""

    workers: int | str | None = None
    """Worker replicas; required unless the manifest or ``master`` says enough."""
    master: bool | str | Mapping[str, Any] | None = None
    """True: also a Master replica, of the same template as the workers. A mapping (ReplicaSpec) is merged into that. False: none.
    The guide advises against one with torchrun."""
    elastic: Elastic | None = None
    nproc_per_node: int | str | None = None
    """Processes that torchrun starts in each replica: a number, ``auto``, ``cpu`` or ``gpu``; default: the GPUs, or 1."""
    clean_pod_policy: str | Unset | None = UNSET
    """``None`` (default), ``Running`` or ``All``, as text (guide, Run Policy)."""
    container_restarts: int | str | Unset | None = UNSET
    """Restarts allowed to the container of each replica; None: no limit. Default 0 with retries of the task, else 3."""
    scheduling_policy: SchedulingPolicy | Mapping[str, Any] | None = None
    """Gang scheduling (runPolicy.schedulingPolicy)."""
    managed_by: str | None = None
    """``kubeflow.org/training-operator`` or ``kueue.x-k8s.io/multikueue`` (runPolicy.managedBy)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltManifest:
    """A manifest in wire form and what goes with it."""

    manifest: dict[str, Any]
    name_prefix: str
    """The name that the user gave, in argument or manifest; empty when neither did."""
    exact_name: bool
    """Whether the workload must have exactly that name."""
    container_restarts: int | None
    """For the waiting task: restarts allowed to each replica; None: Kubernetes' own limit is enough, or none was wanted."""
    warnings: tuple[str, ...] = ()
    """Legal but unwise, one sentence each."""
    notes: tuple[str, ...] = ()
    """Worth a line at submit."""
