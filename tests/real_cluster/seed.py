"""The objects that a cluster has before anybody uses it: namespaces, what the training operator needs, users and roles."""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any

import yaml

from airflow_mlxp import errors
from airflow_mlxp.local.client import CLAIMS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS, Client, Object, Resource
from tests.real_cluster.commands import OPERATOR_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real_cluster.commands import ControlPlane

_RBAC = "rbac.authorization.k8s.io"
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
ROLES = Resource(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = Resource(_RBAC, "v1", "clusterroles", "ClusterRole")
CLUSTER_ROLE_BINDINGS = Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding")
WEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")

USER = "airflow"
"""Service account of each project that the product's tests run as."""
USER_RULES: list[Object] = [
    {
        "apiGroups": ["batch", "kubeflow.org"],
        "resources": ["jobs", "pytorchjobs"],
        "verbs": ["create", "get", "list", "watch", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
]
_OPERATOR = "training-operator"
_WEBHOOK_NAME = "validator.training-operator.kubeflow.org"
_TOKEN_SECONDS = 24 * 3600


async def create(client: Client, resource: Resource, namespace: str, name: str, **parts: Any) -> None:
    """Create an object unless it is there."""
    metadata = {"name": name, **parts.pop("metadata", {})}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
    with contextlib.suppress(errors.Conflict):
        await client.create(resource, namespace, body)


async def service_account_token(client: Client, namespace: str, name: str) -> str:
    """A token of a service account (TokenRequest), good for a day."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": _TOKEN_SECONDS}}
    answer = await client.create(SERVICE_ACCOUNTS, namespace, body, name=name, subresource="token")
    return str(answer["status"]["token"])


async def install_operator(client: Client, plane: ControlPlane) -> None:
    """CRD, roles and webhook from the operator's module, and the kubeconfig of its service account."""
    await create(client, NAMESPACES, "", OPERATOR_NAMESPACE)
    await create(client, SERVICE_ACCOUNTS, OPERATOR_NAMESPACE, _OPERATOR)
    for crd in _manifests(plane, "crds/kubeflow.org_pytorchjobs.yaml"):
        await client.create(CRDS, "", crd)
    for role in _manifests(plane, "rbac/role.yaml"):
        await client.create(CLUSTER_ROLES, "", role)
    for binding in _manifests(plane, "rbac/cluster-role-binding.yaml"):
        binding["subjects"][0]["namespace"] = OPERATOR_NAMESPACE
        await client.create(CLUSTER_ROLE_BINDINGS, "", binding)
    pairs = {"ca": plane.webhook_authority.pair, "tls": plane.webhook_pair}
    data = {f"{name}.crt": pair.certificate for name, pair in pairs.items()}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    await create(client, SECRETS, OPERATOR_NAMESPACE, f"{_OPERATOR}-webhook-cert", data=encoded)
    for configuration in _manifests(plane, "webhook/manifests.yaml"):
        await client.create(WEBHOOKS, "", _on_loopback(configuration, plane, encoded["ca.crt"]))
    plane.write_kubeconfig("training-operator.kubeconfig", await service_account_token(client, OPERATOR_NAMESPACE, _OPERATOR))


async def make_project(client: Client, name: str, *, volumes: tuple[str, ...] = ()) -> str:
    """A namespace ``p-<name>`` with the user's service account, its role and volume claims; the user's token."""
    namespace = f"p-{name}"
    await create(client, NAMESPACES, "", namespace)
    await create(client, SERVICE_ACCOUNTS, namespace, USER)
    await create(client, ROLES, namespace, USER, rules=USER_RULES)
    subjects = [{"kind": "ServiceAccount", "name": USER, "namespace": namespace}]
    reference = {"apiGroup": _RBAC, "kind": "Role", "name": USER}
    await create(client, ROLE_BINDINGS, namespace, USER, subjects=subjects, roleRef=reference)
    for volume in volumes:
        await make_claim(client, namespace, volume)
    return await service_account_token(client, namespace, USER)


async def make_claim(client: Client, namespace: str, name: str) -> None:
    """A volume claim and the volume that it is bound to; the node agent keeps its data in a folder."""
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claim = {"namespace": namespace, "name": name}
    volume = {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}, "claimRef": claim}
    await create(client, VOLUMES, "", f"{namespace}-{name}", spec=volume)
    spec = {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{namespace}-{name}"}
    await create(client, CLAIMS, namespace, name, spec=spec)


def _manifests(plane: ControlPlane, path: str) -> Iterator[Object]:
    """The objects in a file of the operator's module."""
    text = (plane.operator.folder / "manifests" / "base" / path).read_text(encoding="utf-8")
    return (document for document in yaml.safe_load_all(text) if document)


def _on_loopback(configuration: Object, plane: ControlPlane, ca: str) -> Object:
    """The webhook configuration for an operator without Service: its PyTorchJob part alone, called by URL."""
    kept = [webhook for webhook in configuration["webhooks"] if "pytorchjob" in webhook["name"]]
    for webhook in kept:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{plane.port('webhook')}{path}", "caBundle": ca}
    return {**configuration, "metadata": {"name": _WEBHOOK_NAME}, "webhooks": kept}
