"""The table of resources that the server knows. Everything that differs between them is declared here."""

from __future__ import annotations

from dataclasses import dataclass

SELECTABLE_METADATA = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One resource of the API: a kind and how it is stored and served."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    """Whether a CustomResourceDefinition serves it: no strategic merge patch, updates need a resourceVersion."""
    status: bool = False
    """Whether ``status`` is a subresource: then writes to the object leave it alone, and the reverse."""
    generation: bool = False
    """Whether ``metadata.generation`` counts changes of the spec."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    """Subresources besides ``status``."""
    selectable: tuple[str, ...] = ()
    """Fields that a field selector may name besides name and namespace."""
    orphans_by_default: bool = False
    """Whether a delete without propagationPolicy orphans the dependents (batch/v1 Job, for compatibility)."""
    returns_deleted: bool = False
    """Whether DELETE answers with the object instead of a Status."""
    create_only: bool = False
    """Whether the resource is only a question (SelfSubjectAccessReview): nothing is stored."""
    dns_name: str = "subdomain"
    """The rule for names: ``subdomain`` (RFC 1123), ``label`` (RFC 1123) or ``label1035``."""

    @property
    def api_version(self) -> str:
        """``batch/v1``; ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """URL path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def verbs(self) -> list[str]:
        """The verbs as discovery lists them."""
        if self.create_only:
            return ["create"]
        return ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)

NAMESPACES = Resource(
    group="",
    version="v1",
    plural="namespaces",
    singular="namespace",
    kind="Namespace",
    namespaced=False,
    status=True,
    short_names=("ns",),
    selectable=("status.phase",),
    dns_name="label",
)
CONNECTIONS = ("attach", "exec", "portforward")
"""Subresources of pods that open a stream into a container."""
PODS = Resource(
    group="",
    version="v1",
    plural="pods",
    singular="pod",
    kind="Pod",
    status=True,
    generation=True,
    short_names=("po",),
    categories=("all",),
    subresources=("log", "binding", *CONNECTIONS),
    selectable=_POD_FIELDS,
    returns_deleted=True,
)
SERVICES = Resource(
    group="",
    version="v1",
    plural="services",
    singular="service",
    kind="Service",
    status=True,
    short_names=("svc",),
    categories=("all",),
    returns_deleted=True,
    dns_name="label1035",
)
EVENTS = Resource(
    group="", version="v1", plural="events", singular="event", kind="Event", short_names=("ev",), selectable=_EVENT_FIELDS
)
NODES = Resource(
    group="",
    version="v1",
    plural="nodes",
    singular="node",
    kind="Node",
    namespaced=False,
    status=True,
    short_names=("no",),
    selectable=("spec.unschedulable",),
)
SECRETS = Resource(group="", version="v1", plural="secrets", singular="secret", kind="Secret", selectable=("type",))
CONFIG_MAPS = Resource(
    group="", version="v1", plural="configmaps", singular="configmap", kind="ConfigMap", short_names=("cm",)
)  # fmt: skip
CLAIMS = Resource(
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    singular="persistentvolumeclaim",
    kind="PersistentVolumeClaim",
    status=True,
    short_names=("pvc",),
    returns_deleted=True,
)
QUOTAS = Resource(
    group="",
    version="v1",
    plural="resourcequotas",
    singular="resourcequota",
    kind="ResourceQuota",
    status=True,
    short_names=("quota",),
    returns_deleted=True,
)
SERVICE_ACCOUNTS = Resource(
    group="",
    version="v1",
    plural="serviceaccounts",
    singular="serviceaccount",
    kind="ServiceAccount",
    short_names=("sa",),
    returns_deleted=True,
)
JOBS = Resource(
    group="batch",
    version="v1",
    plural="jobs",
    singular="job",
    kind="Job",
    status=True,
    generation=True,
    categories=("all",),
    selectable=("status.successful",),
    orphans_by_default=True,
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", singular="lease", kind="Lease")
PYTORCH_JOBS = Resource(
    group="kubeflow.org",
    version="v1",
    plural="pytorchjobs",
    singular="pytorchjob",
    kind="PyTorchJob",
    custom=True,
    status=True,
    generation=True,
)
ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    singular="selfsubjectaccessreview",
    kind="SelfSubjectAccessReview",
    namespaced=False,
    create_only=True,
)
RULES_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectrulesreviews",
    singular="selfsubjectrulesreview",
    kind="SelfSubjectRulesReview",
    namespaced=False,
    create_only=True,
)
USER_REVIEWS = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="selfsubjectreviews",
    singular="selfsubjectreview",
    kind="SelfSubjectReview",
    namespaced=False,
    create_only=True,
)

RESOURCES: tuple[Resource, ...] = (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    CLAIMS,
    PODS,
    QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    JOBS,
    LEASES,
    PYTORCH_JOBS,
    ACCESS_REVIEWS,
    RULES_REVIEWS,
    USER_REVIEWS,
)

BUILT_IN_GROUPS = frozenset(r.group for r in RESOURCES if not r.custom)
"""API groups that are no custom resource's."""
BY_PATH: dict[tuple[str, str, str], Resource] = {(r.group, r.version, r.plural): r for r in RESOURCES}
BY_KIND: dict[tuple[str, str], Resource] = {(r.api_version, r.kind): r for r in RESOURCES}
GROUP_VERSIONS: tuple[tuple[str, str], ...] = tuple(dict.fromkeys((r.group, r.version) for r in RESOURCES))
