"""The operator for ``batch/v1`` Jobs: training on a single node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.manifests import job
from airflow_mlxp.manifests.spec import JobSpec
from airflow_mlxp.operators.base import MLXPOperator
from airflow_mlxp.workloads.job import JOB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.manifests.spec import BuiltManifest
    from airflow_mlxp.triggers.events import ResultShape


class MLXPJobOperator(MLXPOperator):
    """Run a Kubernetes Job (guide, run a single-node Job).

    Args:
        parallelism: pods at the same time (Job.spec.parallelism).
        completions: pods that must succeed (Job.spec.completions).
        completion_mode: ``Indexed`` or ``NonIndexed``; results of an indexed Job are a mapping by index.
        pod_failure_policy: which failures count, are ignored or end the Job (Job.spec.podFailurePolicy).
        kwargs: see ``MLXPOperator``.
    """

    kind = JOB.kind
    parts = ("manifest_metadata", "manifest_policy", "manifest_template")
    template_fields: Sequence[str] = (
        *MLXPOperator.template_fields,
        "parallelism",
        "completions",
        "completion_mode",
        "pod_failure_policy",
        *parts,
    )

    def __init__(
        self,
        *,
        parallelism: int | str | None = None,
        completions: int | str | None = None,
        completion_mode: str | None = None,
        pod_failure_policy: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.parallelism, self.completions, self.completion_mode = parallelism, completions, completion_mode
        self.pod_failure_policy = pod_failure_policy
        super().__init__(**kwargs)

    def spec_type(self) -> type[JobSpec]:
        """The arguments of a Job."""
        return JobSpec

    def build(self, spec: Any, *, namespace: str) -> BuiltManifest:
        """The Job of these arguments."""
        return job.build(spec, namespace=namespace, retries=self.retries or 0)

    def parts_of(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Metadata, pod template, and the rest of the spec."""
        policy = {key: value for key, value in manifest["spec"].items() if key != "template"}
        values = (manifest["metadata"], policy, manifest["spec"]["template"])
        return dict(zip(self.parts, values, strict=True))

    def result_shape(self, manifest: Mapping[str, Any]) -> ResultShape:
        """One result for each index of an indexed Job."""
        shape = super().result_shape(manifest)
        return "indexed" if shape == "single" and manifest["spec"].get("completionMode") == "Indexed" else shape
