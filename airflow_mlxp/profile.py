"""Defaults of the platform as data: each value with the section of the guide that asks for it and the reason.

Another platform is ``dataclasses.replace(MLXP, ...)``; a default whose value is None adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """One value that the platform's guide asks for."""

    value: Any
    path: str
    """Where it lands, below the object; ``template`` is the pod template of the kind."""
    section: str
    """Section of the platform's guide, or the source when the guide is silent."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The defaults of one platform. A manifest's own fields and a task's arguments win over each of them."""

    job_restart_policy: Default
    job_backoff_limit: Default
    ttl_seconds_after_finished: Default
    clean_pod_policy: Default
    restart_policy: Default
    container_restarts: Default
    restart_policy_with_retries: Default
    container_restarts_with_retries: Default
    rdzv_backend: Default
    max_restarts: Default
    nproc_per_node_without_gpus: Default
    image_pull_policy: Default
    istio_annotation: Default
    zone_key: Default
    nccl_debug: Default
    debug: Default
    gloo_socket_family: Default
    capability: Default
    shared_memory: Default
    termination_message_policy: Default
    result_path: Default
    result_limit: Default
    refuses_fs_group: Default
    storage_user: Default

    def defaults(self) -> Iterator[tuple[str, Default]]:
        """Every default with its name, in order of declaration."""
        for field in fields(self):
            yield field.name, getattr(self, field.name)


MLXP = Profile(
    job_restart_policy=Default(
        value="Never",
        path="Job template.spec.restartPolicy",
        section="Run a single-node Job",
        reason="as in the sample: each failed pod stays with its log",
    ),
    job_backoff_limit=Default(
        value=1,
        path="Job spec.backoffLimit",
        section="Run a single-node Job",
        reason="as in the sample; Kubernetes would retry 6 times",
    ),
    ttl_seconds_after_finished=Default(
        value=1_814_400,
        path="Job spec.ttlSecondsAfterFinished, PyTorchJob spec.runPolicy.ttlSecondsAfterFinished",
        section="Life cycle of a Job; Run Policy",
        reason="seconds, three weeks: the number of finished jobs that are kept is limited",
    ),
    clean_pod_policy=Default(
        value="None",
        path="PyTorchJob spec.runPolicy.cleanPodPolicy",
        section="Run Policy",
        reason="logs of finished pods stay readable; what still runs after the end is stopped by the task itself",
    ),
    restart_policy=Default(
        value="OnFailure",
        path="PyTorchJob spec.pytorchReplicaSpecs.*.restartPolicy",
        section="Create a PyTorchJob",
        reason="as in the sample: without retries of the task, a failed container is started again in its pod",
    ),
    container_restarts=Default(
        value=3,
        path="limit held by the waiting task; PyTorchJob spec.runPolicy.backoffLimit is computed from it",
        section="Run Policy",
        reason="restarts of each replica; without a limit a crashing container is restarted for ever",
    ),
    restart_policy_with_retries=Default(
        value="Never",
        path="PyTorchJob spec.pytorchReplicaSpecs.*.restartPolicy",
        section="training-operator 1.9, restart policies",
        reason="the task has retries: the next try starts all replicas together, and failed pods keep their logs",
    ),
    container_restarts_with_retries=Default(
        value=0,
        path="limit held by the waiting task; PyTorchJob spec.runPolicy.backoffLimit is computed from it",
        section="training-operator 1.9, restart policies",
        reason="tries and container restarts would multiply",
    ),
    rdzv_backend=Default(
        value="c10d",
        path="PyTorchJob spec.elasticPolicy.rdzvBackend",
        section="Elastic Policy",
        reason="as in the sample; needs no service besides the workers",
    ),
    max_restarts=Default(
        value=0,
        path="PyTorchJob spec.elasticPolicy.maxRestarts",
        section="Elastic Policy",
        reason="torchrun's own default; its restarts multiply with those of containers and tries",
    ),
    nproc_per_node_without_gpus=Default(
        value="1",
        path="PyTorchJob spec.nprocPerNode",
        section="Elastic Policy",
        reason="the number of GPUs when there are any; 'auto' would start one process for each CPU core",
    ),
    image_pull_policy=Default(
        value="Always",
        path="template.spec.containers[*].imagePullPolicy",
        section="Run a single-node Job; Create a PyTorchJob",
        reason="as in the samples: a tag that was pushed again is pulled again",
    ),
    istio_annotation=Default(
        value={"sidecar.istio.io/inject": "false"},
        path="template.metadata.annotations",
        section="Create a PyTorchJob, caution",
        reason="a sidecar breaks connections between nodes and keeps a Job from completing",
    ),
    zone_key=Default(
        value="mlx.navercorp.com/zone",
        path="template.spec.nodeSelector, template.metadata.annotations",
        section="Create a PyTorchJob; InfiniBand",
        reason="one section asks for a node selector, the other for an annotation, so both are set",
    ),
    nccl_debug=Default(
        value={"NCCL_DEBUG": "INFO"},
        path="PyTorchJob template.spec.containers[pytorch].env",
        section="Debug a PyTorchJob",
        reason="NCCL says which network it uses and why a connection failed",
    ),
    debug=Default(
        value={"NCCL_DEBUG": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO"},
        path="with debug=True: template.spec.containers[*].env",
        section="Debug a PyTorchJob",
        reason="NCCL and torch.distributed say what they do; DETAIL slows training down",
    ),
    gloo_socket_family=Default(
        value={"GLOO_SOCKET_FAMILY": "AF_INET"},
        path="PyTorchJob template.spec.containers[pytorch].env",
        section="Set GLOO_SOCKET_FAMILY where IPv6 is not available",
        reason="the platform has no IPv6; trying it first uses up file descriptors",
    ),
    capability=Default(
        value="IPC_LOCK",
        path="template.spec.containers[pytorch].securityContext.capabilities.add",
        section="InfiniBand",
        reason="RDMA locks memory; set for several nodes and for infiniband=True",
    ),
    shared_memory=Default(
        value={"medium": "Memory"},
        path="template.spec.volumes[shared-memory].emptyDir, mounted at /dev/shm",
        section="Shared memory",
        reason="without sizeLimit, as the guide asks: too little shared memory kills DataLoader workers and slows NCCL",
    ),
    termination_message_policy=Default(
        value="FallbackToLogsOnError",
        path="template.spec.containers[*].terminationMessagePolicy",
        section="Kubernetes, Container.terminationMessagePolicy",
        reason="the last lines of a crash stay in the pod's status when its log is gone",
    ),
    result_path=Default(
        value="/dev/termination-log",
        path="template.spec.containers[*].env MLXP_RESULT_PATH",
        section="Kubernetes, Container.terminationMessagePath",
        reason="Kubernetes' own default: what the program writes there the kubelet puts into the pod's status",
    ),
    result_limit=Default(
        value=4096,
        path="template.spec.containers[*].env MLXP_RESULT_LIMIT",
        section="Kubernetes, terminationMessage",
        reason="bytes that a kubelet keeps of one container; all containers of a pod together may use 12288",
    ),
    refuses_fs_group=Default(
        value=True,
        path="template.spec.securityContext.fsGroup",
        section="Run a single-node Job, caution",
        reason="Kubernetes would change the owner of every file of the volume before the pod starts",
    ),
    storage_user=Default(
        value="500:500",
        path="template.spec.securityContext.runAsUser, runAsGroup: another one is warned of where claims are mounted",
        section="Run a single-node Job, caution",
        reason="the image's UID and GID on high-performance storage",
    ),
)
"""NAVER Cloud ML expert Platform; other clusters with training-operator 1.9 accept the same."""
