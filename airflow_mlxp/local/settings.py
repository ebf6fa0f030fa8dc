"""Times and versions of the embedded platform: each value with its unit and what the real platform has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerSettings:
    """What the Job and PyTorchJob controllers can be told."""

    pod_backoff: float = 1.0
    """Seconds until a Job replaces its first failed pod; doubled for each further one. Kubernetes: 10 s."""

    pod_backoff_max: float = 60.0
    """Upper bound of ``pod_backoff`` in seconds. Kubernetes: 600 s."""

    training_operator: Literal["1.9.3", "1.9.4"] = "1.9.4"
    """1.9.3 deletes all pods of a PyTorchJob before it sets Failed for a limit; 1.9.4 does what cleanPodPolicy says."""

    retry_backoff: float = 0.05
    """Seconds until a reconcile that failed is repeated; doubled each time, as client-go's work queue does."""

    retry_backoff_max: float = 30.0
    """Upper bound of ``retry_backoff`` in seconds. The training operator: 1000 s; freed quota should show sooner here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What the node agent can be told."""

    node_name: str = "local"
    """Name of the Node object."""

    gpus: int = 0
    """``nvidia.com/gpu`` of the node. Nothing is checked on the machine: it is what pods are scheduled against."""

    zones: tuple[str, ...] = ()
    """Values of ``mlx.navercorp.com/zone`` that the node belongs to; empty: every zone."""

    volumes: Mapping[str, Path] = field(default_factory=dict)
    """Folder of a PersistentVolumeClaim by its name; every other claim gets a folder under the agent's directory."""

    client_ca: str = ""
    """PEM of the authority whose client certificates may read logs; empty: that of the API server. Beside a real
    kube-apiserver: the one that signed its ``--kubelet-client-certificate`` (the kubelet's ``clientCAFile``)."""

    bind_pods: bool = True
    """Whether the agent binds pods itself. False beside a real kube-scheduler."""

    restart_backoff: float = 1.0
    """Seconds before the second restart of a container (the first is immediate); doubled each time. The kubelet: 10 s."""

    restart_backoff_max: float = 30.0
    """Upper bound of ``restart_backoff`` in seconds. The kubelet: 300 s."""

    image_pull_backoff: float = 2.0
    """Seconds between two tries to pull an image; doubled each time up to ``restart_backoff_max``. The kubelet: 10 s."""

    config_retry: float = 1.0
    """Seconds between two looks for a missing Secret, ConfigMap or claim. The kubelet: about 10 s."""

    memory_interval: float = 0.25
    """Seconds between two samples of the memory of a container that has a limit."""

    lease_interval: float = 10.0
    """Seconds between two renewals of the node's Lease, as the kubelet."""

    drain_timeout: float = 2.0
    """Seconds that output may still come after the processes of a container are dead, before its pipes are given up."""
