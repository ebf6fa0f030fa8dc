"""``Elastic``: what a user says about torchrun's rendezvous and restarts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Elastic:
    """``spec.elasticPolicy`` of a PyTorchJob (guide, Elastic Policy). What is None keeps the manifest's value or the default.

    The training operator passes each field to torchrun as an environment variable, so that ``torchrun train.py`` needs no flags.
    """

    min_replicas: int | str | None = None
    """Fewest workers that train; default: ``workers``. Less than ``max_replicas``: training goes on without lost workers."""
    max_replicas: int | str | None = None
    """Most workers; default: ``workers``."""
    max_restarts: int | str | None = None
    """How often torchrun starts its processes again inside running containers (PET_MAX_RESTARTS); default 0."""
    rdzv_backend: str | None = None
    """``c10d`` (default), ``etcd`` or ``etcd-v2``."""
    rdzv_id: str | None = None
    """Default: the workload's name."""
    rdzv_host: str | None = None
    """Default: the first worker."""
    rdzv_port: int | str | None = None
    """Default 23456, or the port ``pytorchjob-port`` of the container (training-operator)."""
    rdzv_conf: Mapping[str, str | int] = field(default_factory=dict)
    """Further settings of the backend, such as ``{"timeout": 900}``."""
    standalone: bool | str = False
    """A rendezvous of its own for each worker, for training on a single node (PET_STANDALONE)."""
    metrics: Sequence[Mapping[str, Any]] = ()
    """``autoscaling/v2`` MetricSpecs: the operator makes a HorizontalPodAutoscaler, which changes the number of workers."""
