"""Defaults that the API server writes into pods, Jobs and a few others, and those of the PyTorchJob CRD.

They are those of ``SetDefaults_*`` in kube-apiserver and of its admission plugins ServiceAccount, DefaultTolerationSeconds
and Priority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mlxp.local.server.resources import CLAIMS, JOBS, NAMESPACES, PODS, PYTORCH_JOBS, SECRETS, SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_mlxp.local.server.resources import Resource

_MAX_INT32 = 2**31 - 1
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_UNREADY = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
)


def apply(resource: Resource, data: dict[str, Any]) -> None:
    """Write the defaults of the resource into the object."""
    if setter := _SETTERS.get(resource):
        setter(data)


def containers_of(pod_spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Init containers, then containers."""
    for name in ("initContainers", "containers"):
        yield from (container for container in pod_spec.get(name) or () if isinstance(container, dict))


def _pod(pod: dict[str, Any]) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for container in containers_of(spec):
        _requests_follow_limits(container)
    _pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    tolerated = {toleration.get("key") for toleration in tolerations if toleration.get("effect") in {None, "NoExecute"}}
    tolerations.extend(dict(toleration) for toleration in _UNREADY if not {None, toleration["key"]} & tolerated)


def _requests_follow_limits(container: dict[str, Any]) -> None:
    resources = container.get("resources")
    if isinstance(resources, dict) and resources.get("limits"):
        requests = resources.setdefault("requests", {})
        for name, quantity in resources["limits"].items():
            requests.setdefault(name, quantity)


def _pod_spec(spec: dict[str, Any]) -> None:
    for container in containers_of(spec):
        _container(container)
    for volume in spec.get("volumes") or ():
        _volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def _container(container: dict[str, Any]) -> None:
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if isinstance(source.get("fieldRef"), dict):
            source["fieldRef"].setdefault("apiVersion", "v1")
    for probe in (container[name] for name in _PROBES if isinstance(container.get(name), dict)):
        _probe(probe)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", "Always" if _is_latest(container.get("image") or "") else "IfNotPresent")


def _is_latest(image: str) -> bool:
    """Whether the image names no tag and no digest, or the tag ``latest``."""
    if "@" in image:
        return False
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag in {"", "latest"}


def _probe(probe: dict[str, Any]) -> None:
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")
    for name, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(name, value)


def _volume(volume: dict[str, Any]) -> None:
    for source in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", 0o644)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}


def _job(job: dict[str, Any]) -> None:
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _unless_given(spec, "parallelism", 1)
    _unless_given(spec, "backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32)
    _unless_given(spec, "manualSelector", False)  # noqa: FBT003  the default of a field
    _unless_given(spec, "completionMode", "NonIndexed")
    _unless_given(spec, "suspend", False)  # noqa: FBT003  the default of a field
    _unless_given(spec, "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        _pod_spec(template["spec"])


def _unless_given(spec: dict[str, Any], name: str, value: object) -> None:
    if spec.get(name) is None:
        spec[name] = value


def add_job_identity(job: dict[str, Any]) -> None:
    """Selector and labels by which a Job finds its pods, made from its uid; ``manualSelector`` switches them off."""
    spec, metadata = job["spec"], job["metadata"]
    template = spec.setdefault("template", {})
    template_metadata = template.get("metadata") or {}
    template["metadata"] = template_metadata
    if not spec["manualSelector"]:
        labels = template_metadata.get("labels") or {}
        template_metadata["labels"] = labels
        for prefix in ("batch.kubernetes.io/", ""):
            labels[f"{prefix}controller-uid"] = metadata["uid"]
            labels[f"{prefix}job-name"] = metadata.get("name", "")
        selector = spec.get("selector") or {}
        spec["selector"] = selector
        matched = selector.get("matchLabels") or {}
        selector["matchLabels"] = {**matched, "batch.kubernetes.io/controller-uid": metadata["uid"]}
    if not metadata.get("labels") and template_metadata.get("labels"):
        metadata["labels"] = dict(template_metadata["labels"])


def _service(service: dict[str, Any]) -> None:
    spec = service.get("spec")
    if not isinstance(spec, dict):
        return
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec.get("clusterIP") == "None":
        spec["clusterIPs"] = ["None"]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("internalTrafficPolicy", "Cluster")


def _secret(secret: dict[str, Any]) -> None:
    secret.setdefault("type", "Opaque")


def _namespace(namespace: dict[str, Any]) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _claim(claim: dict[str, Any]) -> None:
    if isinstance(claim.get("spec"), dict):
        claim["spec"].setdefault("volumeMode", "Filesystem")


def _pytorchjob(job: dict[str, Any]) -> None:
    """The CRD's own defaults; those of the operator are never stored."""
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return
    if isinstance(spec.get("runPolicy"), dict):
        spec["runPolicy"].setdefault("suspend", False)
    for replica in (spec.get("pytorchReplicaSpecs") or {}).values():
        for container in containers_of((replica.get("template") or {}).get("spec") or {}):
            for port in container.get("ports") or ():
                port.setdefault("protocol", "TCP")


_SETTERS: dict[Resource, Callable[[dict[str, Any]], None]] = {
    PODS: _pod,
    JOBS: _job,
    SERVICES: _service,
    SECRETS: _secret,
    NAMESPACES: _namespace,
    CLAIMS: _claim,
    PYTORCH_JOBS: _pytorchjob,
}
