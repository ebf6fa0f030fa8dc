"""What to do about each category, with the section of the platform's guide that says so. Every text of advice stands here."""

from __future__ import annotations

_ADVICE: dict[str, str] = {
    "backoff_limit": (
        'The limit deletes the pods that it stops (guide, "Run Policy", backoffLimit): this log has what they wrote before. '
        'restart_policy="Never" makes a new pod for each start instead, and keeps the ended ones.'
    ),
    "connection_reset": (
        "Between nodes this comes from an Istio sidecar or from a peer that died first: keep the pod template's annotation "
        'sidecar.istio.io/inject: "false" (guide, "Create a PyTorchJob", caution) and look for an earlier failure elsewhere.'
    ),
    "container_restarts": "Correct what ends the container, or raise container_restarts.",
    "container_start": "Correct command, args or workingDir, or the image that should hold the program.",
    "cuda_driver": (
        "Build the image on a CUDA version that the node's NVIDIA driver supports "
        '(guide, "Use a CUDA version that is compatible with the NVIDIA driver").'
    ),
    "cuda_out_of_memory": "Use a smaller batch or model shard for each GPU; the container's memory limit is not what ran out.",
    "deadline_exceeded": 'Raise activeDeadlineSeconds, or make the run shorter (guide, "Run Policy").',
    "deleted": "Somebody or something outside this task deleted it; another try creates it anew.",
    "evicted": "The node took the pod away, the program is not to blame: try again, and set requests that hold what it uses.",
    "expired": 'Raise ttlSecondsAfterFinished so that its end can be read (guide, "Life cycle of a Job", "Run Policy").',
    "exit_code": "Read the log of this replica; the task's own retries decide about another try.",
    "failed": "Read the events and logs of the workload; the task's own retries decide about another try.",
    "forbidden": "The cluster refuses these pods: change the manifest, or ask the project's administrator for the permission.",
    "gang_pending": (
        "With gang scheduling no pod is created before all fit at once: use fewer workers or GPUs, or wait "
        '(guide, "Check the status of a PyTorchJob").'
    ),
    "image_pull": (
        "Check the image's name and tag, and give a registry secret in imagePullSecrets of the pod spec "
        '(guide, "Use an external container registry").'
    ),
    "init_failed": "Read the log of the init container; on workers init-pytorch waits for the Master's name to resolve.",
    "memlock": 'Add the capability IPC_LOCK to the container (guide, "InfiniBand").',
    "missing_object": (
        "Create it in the namespace, or correct its name: volumes come from PVCs made under Volumes "
        '(guide, "Use an existing volume"), registry secrets are made beforehand (guide, "Use an external container registry").'
    ),
    "name_too_long": 'Use a name of at most 50 characters (guide, "Length limit of a PyTorchJob\'s name").',
    "nccl": 'Set NCCL_DEBUG=INFO and TORCH_DISTRIBUTED_DEBUG=DETAIL (guide, "Debug a PyTorchJob").',
    "no_controller": (
        "The kind's controller does not run, does not watch this namespace, or leaves the object to another one (managedBy): "
        "ask the platform's administrator."
    ),
    "node_lost": "The node went away, the program is not to blame: try again.",
    "node_refused": "The node refused the pod when it arrived, the program is not to blame: try again.",
    "oom_killed": (
        "Raise memory, or use less: fewer DataLoader workers, smaller batches. Files in a memory-backed /dev/shm count as well "
        '(guide, "Shared memory").'
    ),
    "open_files": 'Set GLOO_SOCKET_FAMILY=AF_INET (guide, "Set GLOO_SOCKET_FAMILY where IPv6 is not available").',
    "partial_failure": (
        'The operator says Succeeded as soon as one worker, or the Master, is done. success_policy="any" accepts that; '
        "drain_timeout is how long the others are waited for."
    ),
    "pod_deleted": "The pod was deleted from outside; another try creates it anew.",
    "preempted": "Work of a higher priority took the place, the program is not to blame: try again.",
    "quota": 'Ask for less, or wait until other work of the namespace has ended (guide, "Check the status of a PyTorchJob").',
    "shared_memory": 'Mount a memory-backed emptyDir without sizeLimit at /dev/shm (guide, "Shared memory").',
    "start_timeout": "Look at the events of the workload and its pods, or raise start_timeout.",
    "suspended": "It is suspended: something has to resume it (a queue does so when there is room), or raise start_timeout.",
    "timeout": "Raise execution_timeout, or make the run shorter.",
    "unschedulable": "No node has room: ask for less, or wait until other work has ended.",
    "zone_missing": (
        "No node carries the labels that nodeSelector or affinity ask for: check the zone's name under GPU Resources "
        '(guide, "Create a PyTorchJob", nodeSelector mlx.navercorp.com/zone).'
    ),
}


def advice_for(category: str) -> str:
    """The advice for a category; empty for one that has none."""
    return _ADVICE.get(category, "")
