"""Diagnosis: what a user reads when a workload fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mlxp import workloads
from airflow_mlxp.diagnosis import Facts, Limits, StoppedBy, diagnose, why_waiting
from airflow_mlxp.models import FailureClass, Phase
from airflow_mlxp.workloads.replicas import current_replicas, restart_counts
from airflow_mlxp.workloads.verdict import State, Verdict
from tests.support import replay
from tests.support.builders import a_condition, a_job, a_pod, a_pytorchjob, an_event, ended, running, waiting

PYTORCHJOB, JOB = workloads.get("PyTorchJob"), workloads.get("Job")
FAILED = a_condition("Failed", reason="PyTorchJobFailed", lastTransitionTime="2026-01-01T00:10:00Z")

TRACEBACK = [
    "epoch 3 loss 0.21",
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 41, in <module>',
    "    main()",
    '  File "/app/train.py", line 12, in main',
    "    raise ValueError('bad batch')",
    "ValueError: bad batch",
]
TORCHRUN = [
    "Traceback (most recent call last):",
    '  File "/usr/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "Failures:",
    "[1]:",
    "  time      : 2026-01-01_00:01:05",
    "  host      : train-worker-1",
    "  rank      : 3 (local_rank: 1)",
    "  exitcode  : 1 (pid: 81)",
    "  error_file: <N/A>",
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    "------------------------------------------------------------",
    "Root Cause (first observed failure):",
    "[0]:",
    "  time      : 2026-01-01_00:01:01",
    "  host      : train-worker-1",
    "  rank      : 2 (local_rank: 0)",
    "  exitcode  : {code} (pid: 80)",
    "  error_file: <N/A>",
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    "============================================================",
]


def torchrun(code=1):
    return [line.format(code=code) if "exitcode" in line else line for line in TORCHRUN]


def facts(*pods, obj=None, phase=Phase.FAILED, workload=PYTORCHJOB, **more):
    obj = a_pytorchjob(FAILED) if obj is None else obj
    given = {
        "workload": workload,
        "phase": phase,
        "object": obj,
        "pods": pods,
        "replicas": current_replicas(workload, obj, pods),
        "restarts": restart_counts(workload, pods),
    }
    return Facts(**(given | more))


def failed_pod(replica, code=1, *, at="2026-01-01T00:01:00Z", **more):
    return a_pod(replica, ended(code, at=at, **more), phase="Failed")


def test_a_success_has_no_diagnosis_whatever_was_warned_of():
    warned = facts(phase=Phase.SUCCEEDED, events=[an_event("FailedScheduling", "0/3 nodes are available")])
    with pytest.raises(ValueError, match="no diagnosis"):
        diagnose(warned)


def test_exception_of_the_script_is_in_the_sentence():
    found = diagnose(facts(failed_pod("worker-1"), log_tails={"worker-1": TRACEBACK}))
    assert found.sentence == "worker-1 ended with exit code 1: ValueError: bad batch"
    assert found.evidence == ('File "/app/train.py", line 12, in main', "ValueError: bad batch")
    assert (found.category, found.failure_class, found.replica, found.exit_code) == (
        "exit_code",
        FailureClass.WORKLOAD,
        "worker-1",
        1,
    )


def test_exception_is_found_under_torchruns_report():
    found = diagnose(facts(failed_pod("worker-1"), log_tails={"worker-1": [*TRACEBACK, *torchrun()]}))
    assert found.sentence == "worker-1 ended with exit code 1; rank 2 failed first: ValueError: bad batch"
    assert found.evidence[0] == "torchrun: rank 2 on host train-worker-1 failed first, exit code 1"


def test_exception_of_the_root_rank_is_told_by_its_prefix():
    mixed = [line for two in zip(TRACEBACK, TRACEBACK, strict=True) for line in (f"[rank2]: {two[0]}", f"[rank3]: {two[1]}")]
    mixed = [line.replace("bad batch", "other") if line.startswith("[rank3]") else line for line in mixed]
    found = diagnose(facts(failed_pod("worker-1"), log_tails={"worker-1": [*mixed, *torchrun()]}))
    assert found.sentence.endswith("rank 2 failed first: ValueError: bad batch")


def log(name):
    return (Path(__file__).parent.parent / "golden" / "logs" / f"{name}.txt").read_text().splitlines()


def test_real_torchrun_log_leads_to_the_script_that_raised_and_not_to_the_peer_that_noticed():
    found = diagnose(facts(failed_pod("worker-1"), log_tails={"worker-1": log("torchrun-1.13-exception")}))
    assert found.sentence == "worker-1 ended with exit code 1: ValueError: bad batch in rank 1"
    assert found.evidence == ('File "/app/train.py", line 7, in step', "ValueError: bad batch in rank 1")


def test_real_torchrun_log_of_a_killed_process():
    found = diagnose(facts(failed_pod("worker-1"), log_tails={"worker-1": log("torchrun-1.13-sigkill")}))
    assert found.sentence == "worker-1 ended with exit code 1; rank 1 failed first"
    assert found.evidence[0] == "torchrun: rank 1 on host train-worker-1 failed first, killed by SIGKILL"


def test_process_killed_under_torchrun_is_named():
    found = diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": torchrun(-9)}))
    assert found.evidence == ("torchrun: rank 2 on host train-worker-1 failed first, killed by SIGKILL",)
    assert "memory" in found.advice


def test_termination_message_stands_in_for_a_log_that_was_not_read():
    found = diagnose(facts(failed_pod("worker-0", message="\n".join(TRACEBACK))))
    assert found.sentence.endswith("ValueError: bad batch")


def test_without_an_exception_the_last_lines_are_the_evidence():
    found = diagnose(
        facts(failed_pod("worker-0", 127), log_tails={"worker-0": ["starting", "", "bash: trian: command not found"]})
    )
    assert found.sentence == "worker-0 ended with exit code 127 (the command was not found)"
    assert found.evidence == ("starting", "bash: trian: command not found")


def test_signal_is_named():
    assert diagnose(facts(failed_pod("worker-0", 139))).sentence == "worker-0 ended with exit code 139 (SIGSEGV)"


def test_replica_that_was_stopped_because_of_another_is_not_the_first():
    pods = [failed_pod("worker-0", 143, at="2026-01-01T00:00:59Z"), failed_pod("worker-1", 1, at="2026-01-01T00:01:01Z")]
    assert diagnose(facts(*pods)).replica == "worker-1"


def test_earliest_end_is_the_first():
    pods = [failed_pod("worker-0", at="2026-01-01T00:02:00Z"), failed_pod("worker-1", at="2026-01-01T00:01:00Z")]
    assert diagnose(facts(*pods)).replica == "worker-1"


def test_peer_that_only_lost_the_connection_is_not_the_first():
    lost = [*TRACEBACK[:-1], "RuntimeError: [1] Connection reset by peer"]
    found = diagnose(facts(failed_pod("worker-0"), failed_pod("worker-1"), log_tails={"worker-0": lost, "worker-1": TRACEBACK}))
    assert (found.replica, found.category) == ("worker-1", "exit_code")


def test_crash_that_was_recovered_from_is_not_the_first():
    recovered = a_pod("worker-0", {**running(), "lastState": ended(1)["state"], "restartCount": 1}, policy="OnFailure")
    assert diagnose(facts(recovered, failed_pod("worker-1", at="2026-01-01T00:09:00Z"))).replica == "worker-1"


def test_pod_that_was_replaced_is_not_the_first():
    old = a_pod("worker-0", phase="Failed", uid="old", reason="Evicted")
    new = a_pod("worker-0", ended(0), phase="Succeeded", uid="new", meta={"creationTimestamp": "2026-01-01T00:02:00Z"})
    found = diagnose(facts(old, new, failed_pod("worker-1", at="2026-01-01T00:05:00Z")))
    assert (found.replica, found.category) == ("worker-1", "exit_code")


def test_out_of_memory_names_the_limit():
    found = diagnose(facts(failed_pod("worker-1", 137, reason="OOMKilled")))
    assert (found.category, found.exit_code) == ("oom_killed", 137)
    assert found.sentence == "worker-1 was killed because it used more memory than its limit of 512Gi (OOMKilled)"
    assert "Shared memory" in found.advice


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("Evicted", "evicted"),
        ("Preempting", "preempted"),
        ("NodeLost", "node_lost"),
        ("NodeShutdown", "node_lost"),
        ("Terminated", "node_lost"),
        ("OutOfmemory", "node_refused"),
        ("OutOfnvidia.com/gpu", "node_refused"),
        ("UnexpectedAdmissionError", "node_refused"),
        ("SomethingNew", "evicted"),
    ],
)
def test_platform_ended_the_pod(reason, category):
    found = diagnose(facts(a_pod("worker-0", phase="Failed", reason=reason, message="the node was low on resource: memory")))
    assert (found.category, found.failure_class) == (category, FailureClass.INFRASTRUCTURE)
    assert reason in found.sentence
    assert "gpu-1" in found.sentence
    assert found.evidence == ("the node was low on resource: memory",)


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("PreemptionByScheduler", "preempted"),
        ("DeletionByTaintManager", "node_lost"),
        ("EvictionByEvictionAPI", "evicted"),
        ("TerminationByKubelet", "node_lost"),
    ],
)
def test_disruption_explains_a_pod_that_ended_by_its_signal(reason, category):
    pod = a_pod(
        "worker-0", ended(143), phase="Failed", conditions=[a_condition("DisruptionTarget", reason=reason, message="why")]
    )
    found = diagnose(facts(pod))
    assert (found.category, found.failure_class) == (category, FailureClass.INFRASTRUCTURE)


def test_pod_deleted_from_outside():
    meta = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    found = diagnose(facts(a_pod("worker-0", ended(143), phase="Failed", meta=meta)))
    assert (found.category, found.failure_class) == ("pod_deleted", FailureClass.INFRASTRUCTURE)


def test_init_container_that_failed():
    pod = a_pod(
        "worker-0", waiting("PodInitializing"), phase="Failed", initContainerStatuses=[{"name": "init-pytorch", **ended(1)}]
    )
    found = diagnose(facts(pod))
    assert found.category == "init_failed"
    assert found.sentence == "worker-0 did not start: its init container init-pytorch ended with exit code 1"


def test_command_that_could_not_start():
    message = 'exec: "trian": executable file not found in $PATH'
    found = diagnose(facts(failed_pod("worker-0", 128, reason="StartError", message=message)))
    assert (found.category, found.evidence) == ("container_start", (message,))


@pytest.mark.parametrize(
    ("line", "category", "section"),
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "cuda_out_of_memory", "memory limit"),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error.", "shared_memory", "Shared memory"),
        ("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", "shared_memory", "Shared memory"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", "cuda_driver", "NVIDIA driver"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "cuda_driver", "NVIDIA driver"),
        ("RuntimeError: Connection reset by peer", "connection_reset", "sidecar.istio.io/inject"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", "nccl", "NCCL_DEBUG"),
    ],
)
def test_known_patterns_of_exceptions(line, category, section):
    found = diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": [*TRACEBACK[:-1], line]}))
    assert (found.category, found.failure_class, found.evidence) == (category, FailureClass.WORKLOAD, (line,))
    assert section in found.advice


def test_memlock_is_found_in_nccls_own_lines():
    line = "train-worker-0:31 [0] misc/ibvwrap.cc:180 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"
    found = diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": [line, *TRACEBACK]}))
    assert (found.category, found.evidence) == ("memlock", (line,))
    assert "IPC_LOCK" in found.advice


def test_open_files_only_with_gloo():
    line = "OSError: [Errno 24] Too many open files"
    with_gloo = ["[W] gloo connectFullMesh", *TRACEBACK[:-1], line]
    assert diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": with_gloo})).category == "open_files"
    assert diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": with_gloo[1:]})).category == "exit_code"


def test_a_librarys_warning_is_not_the_cause_of_another_exception():
    warning = "UserWarning: CUDA initialization: Found no NVIDIA driver on your system."
    assert diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": [warning, *TRACEBACK]})).category == "exit_code"


def test_pod_of_a_job_is_named_by_its_own_name():
    pod = {
        "metadata": {"name": "prepare-x7k2p", "uid": "u", "generateName": "prepare-"},
        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "main", **ended(3)}]},
    }
    limit = a_condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit")
    found = diagnose(facts(pod, obj=a_job(limit), workload=JOB))
    assert found.sentence == "pod prepare-x7k2p ended with exit code 3"
    assert found.evidence == ("Job has reached the specified backoff limit",)


def test_backoff_limit_with_all_pods_gone():
    limit = a_condition("Failed", message="Job train has failed because it has reached the specified backoff limit")
    found = diagnose(facts(obj=a_pytorchjob(limit)))
    assert (found.category, found.failure_class) == ("backoff_limit", FailureClass.WORKLOAD)
    assert found.sentence.startswith("PyTorchJob train ended as Failed: Job train has failed")


def test_vanished_before_its_end():
    found = diagnose(facts(obj=a_pytorchjob(a_condition("Running")), phase=Phase.GONE))
    assert (found.category, found.failure_class) == ("deleted", FailureClass.INFRASTRUCTURE)
    assert found.sentence == "PyTorchJob train was deleted before it ended"


def test_vanished_after_its_end():
    found = diagnose(facts(obj=a_pytorchjob(a_condition("Succeeded")), phase=Phase.GONE))
    assert (found.category, found.failure_class) == ("expired", FailureClass.INFRASTRUCTURE)


def test_timeout_names_the_limit_and_the_state():
    running_job = a_pytorchjob(a_condition("Running"))
    pod = a_pod("worker-0", running())
    found = diagnose(facts(pod, obj=running_job, phase=Phase.RUNNING, stopped_by=StoppedBy.TIMEOUT, limits=Limits(timeout=3600)))
    assert (found.category, found.sentence) == ("timeout", "PyTorchJob train did not end within its timeout of 3600 s")
    assert found.evidence == ("worker-0: Running",)


def test_own_deadline_wins_over_the_vanished_object():
    assert diagnose(facts(phase=Phase.GONE, stopped_by=StoppedBy.TIMEOUT)).category == "timeout"


def test_manifests_deadline():
    late = a_condition("Failed", message="Job train has failed because it was active longer than specified deadline")
    assert diagnose(facts(failed_pod("worker-0", 143), obj=a_pytorchjob(late))).category == "deadline_exceeded"


def test_container_restarts_tell_what_ended_the_container():
    pod = a_pod("worker-1", {**waiting("CrashLoopBackOff", last=ended(1), restarts=3)}, policy="OnFailure")
    found = diagnose(
        facts(
            pod,
            a_pod("worker-0", running()),
            obj=a_pytorchjob(a_condition("Running")),
            phase=Phase.RUNNING,
            stopped_by=StoppedBy.CONTAINER_RESTARTS,
            limits=Limits(container_restarts=3),
            log_tails={"worker-1": TRACEBACK},
        )
    )
    assert (found.category, found.replica, found.exit_code) == ("container_restarts", "worker-1", 1)
    outer, inner = found.sentence.split(": ", 1)
    assert outer == "worker-1 needed 4 restarts, container_restarts allows 3"
    assert inner == "worker-1 ended with exit code 1: ValueError: bad batch"


def partial(**lists):
    verdict = Verdict(state=State.PARTIAL_FAILURE, **lists)
    return {"phase": Phase.SUCCEEDED, "obj": a_pytorchjob(a_condition("Succeeded")), "verdict": verdict}


def test_partial_failure_tells_the_failed_replica_and_the_exception():
    pods = [a_pod("worker-0", ended(0), phase="Succeeded"), failed_pod("worker-1")]
    found = diagnose(facts(*pods, log_tails={"worker-1": TRACEBACK}, **partial(failed=("worker-1",))))
    assert (found.category, found.replica, found.exit_code) == ("partial_failure", "worker-1", 1)
    assert found.sentence == "PyTorchJob train is Succeeded, but worker-1 ended with exit code 1: ValueError: bad batch"
    assert 'success_policy="any"' in found.advice


def test_partial_failure_tells_who_did_not_end_or_start():
    found = diagnose(facts(limits=Limits(drain_timeout=600), **partial(left=("worker-1",), missing=("worker-2",))))
    assert found.sentence == "PyTorchJob train is Succeeded, but worker-1 did not end within 600 s; worker-2 never started"


def test_partial_failure_by_eviction_is_the_platforms_fault():
    pod = a_pod("worker-1", phase="Failed", reason="Evicted")
    found = diagnose(facts(pod, **partial(failed=("worker-1",))))
    assert (found.category, found.failure_class) == ("partial_failure", FailureClass.INFRASTRUCTURE)


def waiting_facts(*pods, events=(), phase=Phase.CREATED):
    return facts(*pods, obj=a_pytorchjob(a_condition("Created")), phase=phase, events=events)


def pending(container=None, **more):
    return a_pod("worker-1", container, phase="Pending", **more)


QUOTA = (
    'Error creating: pods "train-worker-1" is forbidden: exceeded quota: normal-quota, requested: requests.nvidia.com/gpu=1, '
    "used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2"
)


@pytest.mark.parametrize(
    ("given", "category", "failure_class", "words"),
    [
        (
            waiting_facts(pending(waiting("ImagePullBackOff", 'Back-off pulling image "nope:1"'))),
            "image_pull",
            FailureClass.PERMANENT,
            "worker-1 can't get its image (ImagePullBackOff)",
        ),
        (
            waiting_facts(pending(waiting("CreateContainerConfigError", 'secret "wandb" not found'))),
            "missing_object",
            FailureClass.PERMANENT,
            "secret wandb does not exist in the namespace",
        ),
        (
            waiting_facts(
                pending(), events=[an_event("FailedMount", 'persistentvolumeclaim "mnist-data" not found', uid="worker-1-uid")]
            ),
            "missing_object",
            FailureClass.PERMANENT,
            "persistentvolumeclaim mnist-data does not exist in the namespace",
        ),
        (
            waiting_facts(events=[an_event("FailedCreatePod", QUOTA)]),
            "quota",
            FailureClass.INFRASTRUCTURE,
            "quota normal-quota does not admit all pods: requested requests.nvidia.com/gpu=1, used requests.nvidia.com/gpu=2",
        ),
        (
            waiting_facts(
                events=[an_event("FailedCreatePod", 'Error creating: pods "train-worker-0" is forbidden: violates PodSecurity')]
            ),
            "forbidden",
            FailureClass.PERMANENT,
            "the cluster refuses to create its pods",
        ),
        (
            waiting_facts(events=[an_event("FailedCreateService", "metadata.name: must be no more than 63 characters")]),
            "name_too_long",
            FailureClass.PERMANENT,
            "the workload's name is too long for its pods and services",
        ),
        (
            waiting_facts(phase=Phase.SUSPENDED),
            "suspended",
            FailureClass.INFRASTRUCTURE,
            "PyTorchJob train is suspended",
        ),
        (waiting_facts(phase=Phase.PENDING), "no_controller", FailureClass.INFRASTRUCTURE, "no controller has taken notice"),
        (waiting_facts(), "gang_pending", FailureClass.INFRASTRUCTURE, "the pods of PyTorchJob train have not been created"),
    ],
)
def test_why_it_waits(given, category, failure_class, words):
    found = why_waiting(given)
    assert (found.category, found.failure_class) == (category, failure_class)
    assert found.sentence.startswith(words)
    assert found.advice


@pytest.mark.parametrize(
    ("message", "category", "failure_class"),
    [
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "zone_missing", FailureClass.PERMANENT),
        (
            "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector.",
            "unschedulable",
            FailureClass.INFRASTRUCTURE,
        ),
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "unschedulable", FailureClass.INFRASTRUCTURE),
        ('0/3 nodes are available: persistentvolumeclaim "data" not found.', "missing_object", FailureClass.PERMANENT),
    ],
)
def test_unschedulable_is_permanent_only_when_no_node_can_ever_fit(message, category, failure_class):
    why = a_condition("PodScheduled", "False", reason="Unschedulable", message=message)
    found = why_waiting(waiting_facts(pending(conditions=[why])))
    assert (found.category, found.failure_class, found.evidence) == (category, failure_class, (message,))


@pytest.mark.parametrize(
    "event",
    [
        an_event("FailedCreateService", 'services "train-worker-0" already exists'),
        an_event("FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", uid="worker-0-uid"),
        an_event("FailedCreatePod", QUOTA.replace("worker-1", "worker-0")),
    ],
)
def test_events_that_are_over_or_harmless_are_no_cause(event):
    assert why_waiting(waiting_facts(a_pod("worker-0", running()), events=[event])) is None


def test_start_timeout_takes_the_class_of_what_held_it_up():
    given = facts(
        pending(waiting("ImagePullBackOff")),
        obj=a_pytorchjob(a_condition("Created")),
        phase=Phase.CREATED,
        stopped_by=StoppedBy.START_TIMEOUT,
        limits=Limits(start_timeout=600),
    )
    found = diagnose(given)
    assert (found.category, found.failure_class) == ("image_pull", FailureClass.PERMANENT)
    assert found.sentence == "PyTorchJob train did not start within 600 s: worker-1 can't get its image (ImagePullBackOff)"


def test_start_timeout_without_a_known_cause():
    found = diagnose(facts(pending(), phase=Phase.CREATED, stopped_by=StoppedBy.START_TIMEOUT, limits=Limits(start_timeout=5)))
    assert (found.category, found.failure_class) == ("start_timeout", FailureClass.INFRASTRUCTURE)


def test_quota_of_the_recording_is_named_while_it_waits_and_forgotten_after():
    assert why_waiting(replay.run("pytorchjob-quota-exceeded", until=3).facts()).category == "quota"
    assert why_waiting(replay.run("pytorchjob-quota-exceeded", until=8).facts()) is None


def test_image_of_the_recording():
    assert why_waiting(replay.run("pytorchjob-image-pull-backoff").facts()).category == "image_pull"


def test_evidence_is_bounded():
    long = "x" * 100_000
    found = diagnose(facts(failed_pod("worker-0"), log_tails={"worker-0": [long] * 50}))
    assert len(found.as_text()) < 4096
