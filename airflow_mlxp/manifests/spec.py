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
    """A PersistentVolumeClaim with more than its name to say (guide, use an existing volume)."""

    claim: str
    """Name of the PersistentVolumeClaim."""
    sub_path: str = ""
    """Folder inside the volume; empty: its root."""
    read_only: bool = False


Env = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""``{"NAME": "value"}``, ``{"NAME": {"secretKeyRef": {...}}}`` (an ``EnvVarSource``), or a list as in a manifest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadSpec:
    """Arguments that both kinds take; ``container`` ones are those of the training container."""

    name: str | None = None
    """First part of the workload's name; default: the manifest's name, else the operator chooses."""
    namespace: str | None = None
    """Default: the manifest's, else the connection's."""
    manifest: Mapping[str, Any] | str | None = None
    """A manifest to start from: wire form or YAML text with one document."""
    image: str | None = None
    command: Sequence[str] | None = None
    """Replaces the image's entrypoint; without it the image's own stays."""
    args: Sequence[str] | None = None
    env: Env | None = None
    """Added to the manifest's; the same name replaces."""
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
    volumes: Mapping[str, str | Volume] = field(default_factory=dict)
    """Mount path -> name of the PersistentVolumeClaim, or a ``Volume``."""
    shared_memory: bool | Unset = UNSET
    """Shared memory at ``/dev/shm``, without sizeLimit; by default on for a PyTorchJob, off for a Job (guide, shared memory)."""
    zone: str | None = None
    """GPU zone: node selector and annotation of the pods."""
    infiniband: bool = False
    """Capability IPC_LOCK (guide, InfiniBand); several workers have it anyway."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    service_account: str | None = None
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
    suspend: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec(WorkloadSpec):
    """Arguments of a Job."""

    parallelism: int | str | None = None
    completions: int | str | None = None
    completion_mode: str | None = None
    """``Indexed`` or ``NonIndexed`` (Kubernetes' default)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PyTorchJobSpec(WorkloadSpec):
    """Arguments of a PyTorchJob."""

    workers: int | str | None = None
    """Worker replicas; required unless the manifest says it."""
    elastic: Elastic | None = None
    nproc_per_node: int | str | None = None
    """Processes that torchrun starts in each replica: a number, ``auto``, ``cpu`` or ``gpu``; default: the GPUs, or 1."""
    clean_pod_policy: str | Unset | None = UNSET
    """``None`` (default), ``Running`` or ``All``, as text (guide, Run Policy)."""
    container_restarts: int | str | Unset | None = UNSET
    """Restarts allowed to the container of each replica; None: no limit. Default 0 with retries of the task, else 3."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltManifest:
    """A manifest in wire form and what goes with it."""

    manifest: dict[str, Any]
    name_prefix: str
    """The name that the user gave, in argument or manifest; empty when neither did."""
    container_restarts: int | None
    """For the waiting task: restarts allowed to each replica; None: Kubernetes' own limit is enough, or none was wanted."""
    warnings: tuple[str, ...] = ()
    """Legal but unwise, one sentence each."""
    notes: tuple[str, ...] = ()
    """Worth a line at submit."""
