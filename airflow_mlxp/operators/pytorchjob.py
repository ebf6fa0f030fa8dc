"""The operator for Kubeflow PyTorchJobs: training on several nodes with torchrun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.manifests import pytorchjob
from airflow_mlxp.manifests.spec import PyTorchJobSpec
from airflow_mlxp.manifests.unset import UNSET, Unset
from airflow_mlxp.operators.base import MLXPOperator
from airflow_mlxp.workloads.pytorchjob import PYTORCHJOB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.manifests.elastic import Elastic
    from airflow_mlxp.manifests.spec import BuiltManifest, SchedulingPolicy


class MLXPPyTorchJobOperator(MLXPOperator):
    """Run a ``kubeflow.org/v1`` PyTorchJob (guide, run distributed training).

    Args:
        workers: worker replicas; required unless the manifest says it.
        master: True: a Master replica too, of the same template; a mapping (ReplicaSpec) is merged into that; False: none.
        elastic: torchrun's rendezvous and restarts (guide, Elastic Policy).
        nproc_per_node: processes of torchrun in each replica; default: its GPUs, or 1.
        clean_pod_policy: ``"None"`` (default), ``"Running"`` or ``"All"`` (guide, Run Policy).
        container_restarts: restarts allowed to each replica, None for no limit; default 0 when the task has retries, else 3.
        scheduling_policy: gang scheduling (runPolicy.schedulingPolicy).
        managed_by: who acts on the PyTorchJob (runPolicy.managedBy).
        kwargs: see ``MLXPOperator``.
    """

    kind = PYTORCHJOB.kind
    parts = ("manifest_metadata", "manifest_policy", "manifest_master", "manifest_worker")
    template_fields: Sequence[str] = (
        *MLXPOperator.template_fields,
        "workers",
        "master",
        "elastic",
        "nproc_per_node",
        "clean_pod_policy",
        "container_restarts",
        "scheduling_policy",
        "managed_by",
        *parts,
    )

    def __init__(
        self,
        *,
        workers: int | str | None = None,
        master: bool | str | Mapping[str, Any] | None = None,
        elastic: Elastic | None = None,
        nproc_per_node: int | str | None = None,
        clean_pod_policy: str | Unset | None = UNSET,
        container_restarts: int | str | Unset | None = UNSET,
        scheduling_policy: SchedulingPolicy | Mapping[str, Any] | None = None,
        managed_by: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.workers, self.master, self.elastic, self.nproc_per_node = workers, master, elastic, nproc_per_node
        self.clean_pod_policy, self.container_restarts = clean_pod_policy, container_restarts
        self.scheduling_policy, self.managed_by = scheduling_policy, managed_by
        super().__init__(**kwargs)

    def spec_type(self) -> type[PyTorchJobSpec]:
        """The arguments of a PyTorchJob."""
        return PyTorchJobSpec

    def build(self, spec: Any, *, namespace: str) -> BuiltManifest:
        """The PyTorchJob of these arguments."""
        return pytorchjob.build(spec, namespace=namespace, retries=self.retries or 0)

    def parts_of(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Metadata, each replica spec, and the rest of the spec."""
        policy = {key: value for key, value in manifest["spec"].items() if key != "pytorchReplicaSpecs"}
        replicas = manifest["spec"]["pytorchReplicaSpecs"]
        values = (manifest["metadata"], policy, replicas.get("Master"), replicas.get("Worker"))
        return dict(zip(self.parts, values, strict=True))
