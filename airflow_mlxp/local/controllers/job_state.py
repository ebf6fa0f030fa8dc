"""What a batch/v1 Job and its pods amount to: pure readings that the Job controller decides by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mlxp.local import objects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_mlxp.local.client import Object

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"

_BACKOFF = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = ("DeadlineExceeded", "Job was active longer than specified deadline")
_COMPLETED = ("CompletionsReached", "Reached expected number of succeeded pods")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the Job ends: the condition that announces it, the one that ends it, and both's reason and message."""

    announced: str
    final: str
    reason: str
    message: str


@dataclass(slots=True)
class Pods:
    """The Job's pods by what they mean for it. ``new_*`` are finished and in no count yet."""

    active: list[Object] = field(default_factory=list)
    terminating: int = 0
    ready: int = 0
    new_succeeded: list[Object] = field(default_factory=list)
    new_failed: list[Object] = field(default_factory=list)
    everything: list[Object] = field(default_factory=list)


def condition(job: Object, kind: str) -> Object | None:
    """The condition of the Job when it is True."""
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((item for item in conditions if item["type"] == kind and item["status"] == "True"), None)


def finish_time(job: Object) -> str | None:
    """When the Job ended: the transition of Complete or Failed."""
    ended = condition(job, "Complete") or condition(job, "Failed")
    return None if ended is None else str(ended["lastTransitionTime"])


def completions(job: Object) -> int | None:
    """``spec.completions``; None is a work queue: one success ends it. Neither it nor parallelism given means 1."""
    spec = job["spec"]
    if spec.get("completions") is not None:
        return int(spec["completions"])
    return None if spec.get("parallelism") is not None else 1


def is_indexed(job: Object) -> bool:
    """``spec.completionMode`` is Indexed."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Object) -> int:
    """Completion index of a pod of an Indexed Job."""
    return int(pod["metadata"]["annotations"][INDEX])


def sort_pods(job: Object, pods: Iterable[Object]) -> Pods:
    """Sort by meaning; a pod that is being deleted counts as failed, as with podReplacementPolicy TerminatingOrFailed."""
    uncounted = (job.get("status") or {}).get("uncountedTerminatedPods") or {}
    known = {*(uncounted.get("succeeded") or []), *(uncounted.get("failed") or [])}
    found = Pods(everything=list(pods))
    for pod in found.everything:
        metadata = pod["metadata"]
        terminal = objects.is_terminal(pod)
        fresh = FINALIZER in (metadata.get("finalizers") or []) and metadata["uid"] not in known
        if objects.is_deleting(pod) and not terminal:
            found.terminating += 1
        if objects.phase(pod) == "Succeeded":
            found.new_succeeded += [pod] if fresh else []
        elif terminal or objects.is_deleting(pod):
            found.new_failed += [pod] if fresh else []
        else:
            found.active.append(pod)
            found.ready += objects.is_ready(pod)
    return found


def total_failed(job: Object, pods: Pods) -> int:
    """Failed pods so far, counted and not yet counted."""
    status = job.get("status") or {}
    return int(status.get("failed") or 0) + len(_uncounted(job, "failed")) + len(pods.new_failed)


def total_succeeded(job: Object, pods: Pods) -> int:
    """Succeeded pods, or succeeded indexes of an Indexed Job, so far."""
    if is_indexed(job):
        return len(completed_indexes(job, pods))
    status = job.get("status") or {}
    return int(status.get("succeeded") or 0) + len(_uncounted(job, "succeeded")) + len(pods.new_succeeded)


def completed_indexes(job: Object, pods: Pods) -> set[int]:
    """Indexes with a success: those in the status and those of succeeded pods."""
    done = parse_indexes((job.get("status") or {}).get("completedIndexes") or "")
    return done | {index_of(pod) for pod in pods.everything if objects.phase(pod) == "Succeeded"}


def parse_indexes(text: str) -> set[int]:
    """``completedIndexes``: ``0-2,5`` is {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """``completedIndexes`` of a set of indexes."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def verdict(job: Object, pods: Pods) -> Verdict | None:
    """How the Job ends, or None while it goes on. An announced end stays."""
    target = condition(job, "FailureTarget")
    if target is not None:
        return Verdict("FailureTarget", "Failed", target["reason"], target["message"])
    if condition(job, "SuccessCriteriaMet") is not None or _succeeded(job, pods):
        return Verdict("SuccessCriteriaMet", "Complete", *_COMPLETED)
    if pods.new_failed and total_failed(job, pods) > int(job["spec"].get("backoffLimit", 6)):
        return Verdict("FailureTarget", "Failed", *_BACKOFF)
    if _restarted_too_often(job, pods):
        return Verdict("FailureTarget", "Failed", *_BACKOFF)
    if remaining_deadline(job) == 0.0:
        return Verdict("FailureTarget", "Failed", *_DEADLINE)
    return None


def remaining_deadline(job: Object) -> float | None:
    """Seconds left of activeDeadlineSeconds, at least 0; None without a deadline, before the start and while suspended."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit is None or started is None or job["spec"].get("suspend"):
        return None
    return float(max(0.0, limit - objects.age(started)))


def pod_backoff(pods: Pods, *, base: float, limit: float) -> float:
    """Seconds until the next pod may be made: ``base`` doubled for each failure since the last success."""
    succeeded = [_finished(pod) for pod in pods.everything if objects.phase(pod) == "Succeeded"]
    since = max(succeeded, default="")
    failures = [_finished(pod) for pod in pods.everything if objects.phase(pod) == "Failed" and _finished(pod) >= since]
    if not failures:
        return 0.0
    delay = float(min(base * 2 ** (len(failures) - 1), limit))
    return max(0.0, delay - objects.age(max(failures)))


def make_condition(kind: str, status: str, reason: str, message: str) -> Object:
    """A ``JobCondition`` of now."""
    moment = objects.now()
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def _uncounted(job: Object, kind: str) -> list[Any]:
    uncounted = (job.get("status") or {}).get("uncountedTerminatedPods") or {}
    return list(uncounted.get(kind) or [])


def _succeeded(job: Object, pods: Pods) -> bool:
    wanted, succeeded = completions(job), total_succeeded(job, pods)
    if wanted is None:
        return succeeded > 0 and not pods.active
    return succeeded >= wanted


def _restarted_too_often(job: Object, pods: Pods) -> bool:
    """The limit under OnFailure: the sum of the restarts of running and pending pods."""
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    limit = int(job["spec"].get("backoffLimit", 6))
    restarts = sum(objects.restart_count(pod) for pod in pods.active)
    return restarts > 0 if limit == 0 else restarts >= limit


def _finished(pod: Object) -> str:
    states = [status.get("state") or {} for status in objects.container_statuses(pod)]
    ended = [state.get("terminated", {}).get("finishedAt") or "" for state in states]
    return max(ended, default="") or str(pod["metadata"]["creationTimestamp"])
