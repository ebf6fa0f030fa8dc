"""The description of one workload kind. Everything that differs between kinds is declared here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_mlxp.models import Condition, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Where a kind lives in the Kubernetes API."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """``batch/v1``; ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str, name: str = "") -> str:
        """URL path of the collection, or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        collection = f"{root}/namespaces/{namespace}/{self.plural}"
        return f"{collection}/{name}" if name else collection


PODS = Api(group="", version="v1", plural="pods", kind="Pod")
EVENTS = Api(group="", version="v1", plural="events", kind="Event")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRule:
    """When a workload whose phase is Succeeded has really succeeded (design: the operator's condition is not sufficient)."""

    condition_is_sufficient: bool
    """True for a Job: its Complete condition says that every pod it needs has ended with 0."""
    replicas: int
    """Replicas asked for in all."""
    min_replicas: int
    """Replicas that must end with 0; less than ``replicas`` only for an elastic workload with minReplicas < maxReplicas."""
    removes_running_pods: bool
    """Whether the controller itself removes running pods at the end (cleanPodPolicy All or Running): no failure then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One kind. All functions are pure and total: they never raise on an object that a server could send."""

    api: Api
    container: str
    """Name of the training container that our manifests write."""
    phase_of: Callable[[Mapping[str, Any] | None], Phase]
    """Phase of an object as the API server sent it; None (gone) gives ``Phase.GONE``."""
    condition_of: Callable[[Mapping[str, Any]], Condition | None]
    """The condition that decides the phase: its reason and message are for people."""
    replicas_of: Callable[[Mapping[str, Any]], tuple[str, ...]]
    """Names of the replicas that the spec asks for, in log order; empty when pods have no stable names (non-indexed Job)."""
    replica_of: Callable[[Mapping[str, Any]], str]
    """Replica name of a pod."""
    pod_selector: Callable[[str], str]
    """Label selector of the pods of the workload with this name; match ownerReferences' uid besides."""
    training_container_of: Callable[[Mapping[str, Any]], str]
    """Name of the training container in a pod of this kind."""
    completion_of: Callable[[Mapping[str, Any]], CompletionRule]
    """The completion rule of an object's spec."""
    pod_templates_of: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], ...]]
    """The pod templates in the spec, in log order, by reference: a manifest under construction is changed through them."""
    is_suspended: Callable[[Mapping[str, Any]], bool]
    """Whether the spec asks for suspension."""

    @property
    def kind(self) -> str:
        """``Job``, ``PyTorchJob``."""
        return self.api.kind
