"""Files and command lines of the components of one control plane; everything listens on free ports of the loopback interface."""

from __future__ import annotations

import base64
import json
import random
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

from tests.real_cluster import build
from tests.real_cluster.authority import Authority, Pair, key_pem, new_key, write_private
from tests.real_cluster.process import Component

CLUSTER_CA = "airflow-mlxp-test-ca"
OPERATOR_NAMESPACE = "kubeflow"
OPERATOR_SERVICE = "training-operator"

_MOUNTED = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")  # a constant of the operator
"""The operator waits until this file exists and never reads it: its webhook takes the one under TMPDIR, which is ours alone."""
_PORTS = range(10_000, 20_000)
"""Below the ports that the node agent gives to pods and those that the system gives to clients."""
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
_CONTROLLERS_OFF = (
    # Pods have loopback addresses: these would write warnings about them into the stream of events.
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    # These want a cloud or a network.
    "node-ipam-controller",
    "node-route-controller",
    "service-lb-controller",
    "cloud-node-lifecycle-controller",
)
_ADMIN, _CONTROLLER_MANAGER, _SCHEDULER = "admin", "system:kube-controller-manager", "system:kube-scheduler"


@dataclass(slots=True)
class ControlPlane:
    """What the components of one control plane share. ``folder`` holds data, keys, kubeconfigs and logs."""

    folder: Path
    operator: build.Module
    """The training operator's version."""
    authority: Authority = field(default_factory=lambda: Authority.new(CLUSTER_CA))
    webhook_authority: Authority = field(default_factory=lambda: Authority.new("training-operator-ca"))
    webhook_pair: Pair = field(init=False)
    """What the operator's webhook serves with."""
    tokens: dict[str, str] = field(
        default_factory=lambda: {user: secrets.token_hex(16) for user in (_ADMIN, _CONTROLLER_MANAGER, _SCHEDULER)}
    )
    """Bearer token by user; those of service accounts come from the API server."""
    _ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        host = f"{OPERATOR_SERVICE}.{OPERATOR_NAMESPACE}.svc"
        self.webhook_pair = self.webhook_authority.issue(OPERATOR_SERVICE, hosts=(host,))

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.port('kube-apiserver')}"

    @property
    def ca_pem(self) -> str:
        """Certificate of the authority that signed the API server's."""
        return self.authority.pair.certificate.decode()

    @property
    def admin_token(self) -> str:
        """Token of a user who may do everything."""
        return self.tokens[_ADMIN]

    @property
    def audit_log(self) -> Path:
        """One JSON line for each answered request."""
        return self.folder / "logs" / "audit.jsonl"

    def port(self, name: str) -> int:
        """The port of one listener, chosen at the first call."""
        if name not in self._ports:
            self._ports[name] = _free_port(set(self._ports.values()))
        return self._ports[name]

    def write_files(self) -> None:
        """Keys, certificates, tokens and policies that the command lines name."""
        (self.folder / "logs").mkdir(parents=True)
        keys = self.folder / "keys"
        keys.mkdir(mode=0o700)
        self.authority.pair.write(keys, "ca")
        self.authority.issue("kube-apiserver", hosts=("localhost", "kubernetes.default.svc")).write(keys, "server")
        self.authority.issue("kube-apiserver-etcd-client", hosts=("localhost",)).write(keys, "etcd")
        self.authority.issue("kube-apiserver-kubelet-client").write(keys, "kubelet-client")
        write_private(keys / "service-accounts.key", key_pem(new_key()))
        rows = [f'{token},{user},{user},"{"system:masters" if user == _ADMIN else ""}"' for user, token in self.tokens.items()]
        (keys / "tokens.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        (self.folder / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY), encoding="utf-8")
        self.write_kubeconfig("controller-manager.kubeconfig", self.tokens[_CONTROLLER_MANAGER])
        self.write_kubeconfig("scheduler.kubeconfig", self.tokens[_SCHEDULER])

    def write_kubeconfig(self, name: str, token: str, *, namespace: str = "default") -> Path:
        """A kubeconfig, readable by its owner only."""
        cluster = {"server": self.server, "certificate-authority-data": base64.b64encode(self.ca_pem.encode()).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user", "namespace": namespace}}],
            "current-context": "real",
        }
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=1), encoding="utf-8")
        return path

    def etcd(self) -> Component:
        """The store. Nothing is written through to the disk: the data is worth nothing after a crash."""
        client, peer = (f"https://127.0.0.1:{self.port(name)}" for name in ("etcd", "etcd-peer"))
        keys = self.folder / "keys"
        flags = {"cert-file": "etcd.crt", "key-file": "etcd.key", "trusted-ca-file": "ca.crt"}
        return self._component(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *(f"--{kind}{flag}={keys / name}" for kind in ("", "peer-") for flag, name in flags.items()),
            "--client-cert-auth",
            "--peer-client-cert-auth",
            "--unsafe-no-fsync",
        )

    def kube_apiserver(self) -> Component:
        """The API server: RBAC, audit log, and a client certificate for the node agent's log endpoint."""
        keys = self.folder / "keys"
        return self._component(
            "kube-apiserver",
            f"--etcd-servers=https://127.0.0.1:{self.port('etcd')}",
            f"--etcd-cafile={keys / 'ca.crt'}",
            f"--etcd-certfile={keys / 'etcd.crt'}",
            f"--etcd-keyfile={keys / 'etcd.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port('kube-apiserver')}",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--cert-dir={keys}",
            f"--client-ca-file={keys / 'ca.crt'}",
            f"--token-auth-file={keys / 'tokens.csv'}",
            f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
            f"--kubelet-client-key={keys / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'service-accounts.key'}",
            f"--service-account-signing-key-file={keys / 'service-accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self.folder / 'audit-policy.json'}",
            f"--audit-log-path={self.audit_log}",
        )

    def kube_controller_manager(self) -> Component:
        """Jobs, garbage collection, quotas, TTLs, volume claims, each controller with its own service account."""
        keys = self.folder / "keys"
        return self._component(
            "kube-controller-manager",
            f"--kubeconfig={self.folder / 'controller-manager.kubeconfig'}",
            f"--service-account-private-key-file={keys / 'service-accounts.key'}",
            f"--root-ca-file={keys / 'ca.crt'}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            "--pvclaimbinder-sync-period=1s",
            f"--controllers=*,{','.join(f'-{name}' for name in _CONTROLLERS_OFF)}",
        )

    def kube_scheduler(self) -> Component:
        """Binds the pods."""
        kubeconfig = self.folder / "scheduler.kubeconfig"
        return self._component("kube-scheduler", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")

    def training_operator(self) -> Component:
        """Kubeflow's operator, for PyTorchJobs only, with its validating webhook."""
        temporary = self.folder / "training-operator"
        serving = temporary / "k8s-webhook-server" / "serving-certs"
        serving.mkdir(parents=True, mode=0o700)
        self.webhook_pair.write(serving, "tls")
        _MOUNTED.parent.mkdir(parents=True, exist_ok=True)
        _MOUNTED.touch()
        return self._component(
            "training-operator",
            f"--kubeconfig={self.folder / 'training-operator.kubeconfig'}",
            "--enable-scheme=pytorchjob",
            f"--webhook-server-port={self.port('webhook')}",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            MY_POD_NAMESPACE=OPERATOR_NAMESPACE,
            TMPDIR=str(temporary),
        )

    def _component(self, name: str, *arguments: str, **env: str) -> Component:
        modules = (build.ETCD, build.KUBERNETES, self.operator)
        program = next(str(module.folder / name) for module in modules if name in module.programs)
        return Component(name, (program, *arguments), logs=self.folder / "logs", env=env)


def _free_port(taken: set[int]) -> int:
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in taken:
            return port
