"""The Job controller: batch/v1 Jobs to pods and back to conditions.

Pods carry the finalizer ``batch.kubernetes.io/job-tracking`` until they are counted, so a pod that somebody deletes is never lost
from the counts. Left out: podFailurePolicy, successPolicy and backoffLimitPerIndex.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.client import JOBS, JSON_PATCH, PODS
from airflow_mlxp.local.controllers import job_pods, job_state
from airflow_mlxp.local.controllers.base import Controller

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object
    from airflow_mlxp.local.controllers.job_state import Pods, Verdict


class JobController(Controller):
    """Runs Jobs: Indexed or not, suspended or not, with backoffLimit, deadline and ttlSecondsAfterFinished."""

    resource = JOBS
    component = "job-controller"
    pod_label = "batch.kubernetes.io/job-name"

    async def reconcile(self, namespace: str, name: str) -> None:
        """One step for one Job."""
        job = await self.client.find(JOBS, namespace, name)
        await self._release_orphans(namespace, name, job)
        if job is None or job["spec"].get("managedBy") not in {None, "kubernetes.io/job-controller"}:
            return
        pods = job_state.sort_pods(job, await self.owned_pods(job))
        if job_state.finish_time(job) is not None:
            await self._release(pods.everything)
            await self._expire(job)
            return
        await self._advance(job, pods)

    async def _advance(self, job: Object, pods: Pods) -> None:
        """Delete and create pods, write the announcing status, count what ended, then the final status."""
        before = copy.deepcopy(job.get("status"))
        job["status"] = status = job.get("status") or {}
        resumed = self._start_or_suspend(job)
        verdict = job_state.verdict(job, pods)
        failure: errors.ClusterError | None = None
        if not objects.is_deleting(job):
            failure = await self._manage(job, pods, verdict)
            if pods.active and (verdict is not None or job["spec"].get("suspend")):
                pods = job_state.sort_pods(job, await self.owned_pods(job))
        if verdict is not None and job_state.condition(job, verdict.announced) is None:
            _set_condition(status, verdict.announced, "True", verdict.reason, verdict.message)
        _note_uncounted(job, pods)
        _count_active(status, pods)
        job = await self._write(job, before)
        if resumed:
            await self.events.normal(job, *resumed)
        await self._settle(job, pods, verdict)
        self._plan(job)
        if failure is not None:
            raise failure

    def _start_or_suspend(self, job: Object) -> tuple[str, str] | None:
        """Keep startTime and the condition Suspended; the event to record, if any."""
        status, suspended = job["status"], bool(job["spec"].get("suspend"))
        was = job_state.condition(job, "Suspended") is not None
        if suspended:
            status.pop("startTime", None)
            if not was:
                _set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended")
                return "Suspended", "Job suspended"
            return None
        if was:
            _set_condition(status, "Suspended", "False", "JobResumed", "Job resumed")
        status.setdefault("startTime", objects.now())
        return ("Resumed", "Job resumed") if was else None

    async def _manage(self, job: Object, pods: Pods, verdict: Verdict | None) -> errors.ClusterError | None:
        """Bring the number of active pods to what is wanted; the error of a refused pod, if any."""
        if verdict is not None or job["spec"].get("suspend"):
            await self._delete_pods(job, pods.active)
            return None
        wanted = int(job["spec"].get("parallelism", 1))
        total = job_state.completions(job)
        if total is not None:
            wanted = min(wanted, total - job_state.total_succeeded(job, pods))
        elif job_state.total_succeeded(job, pods):
            wanted = len(pods.active)
        surplus = len(pods.active) - wanted
        if surplus > 0:
            await self._delete_pods(job, pods.active[-surplus:])
            del pods.active[-surplus:]
            return None
        return await self._create_pods(job, pods, -surplus)

    async def _create_pods(self, job: Object, pods: Pods, count: int) -> errors.ClusterError | None:
        if count <= 0:
            return None
        delay = job_state.pod_backoff(pods, base=self.settings.pod_backoff, limit=self.settings.pod_backoff_max)
        if delay > 0:
            self.queue.add_after(objects.key_of(job), delay)
            return None
        for index in _free_indexes(job, pods, count):
            try:
                pod = await self.client.create(PODS, job["metadata"]["namespace"], job_pods.make_pod(job, index))
            except errors.ClusterError as error:
                await self.events.warning(job, "FailedCreate", f"Error creating: {error.message}")
                return error
            pods.active.append(pod)
            await self.events.normal(job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return None

    async def _delete_pods(self, job: Object, pods: list[Object]) -> None:
        for pod in pods:
            await self.client.delete(PODS, pod)
            await self.events.normal(job, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _settle(self, job: Object, pods: Pods, verdict: Verdict | None) -> None:
        """Take the finalizers off the counted pods, move them into the totals, and end the Job when nothing runs any more."""
        status, before = job["status"], copy.deepcopy(job["status"])
        uncounted = status.get("uncountedTerminatedPods") or {}
        counted = {*(uncounted.get("succeeded") or []), *(uncounted.get("failed") or [])}
        indexed = job_state.is_indexed(job)
        earlier = [pod for pod in pods.everything if pod["metadata"]["uid"] in counted]
        await self._release([*earlier, *pods.new_succeeded, *pods.new_failed])
        for kind in ("succeeded", "failed"):
            if uncounted.get(kind):
                status[kind] = int(status.get(kind) or 0) + len(uncounted[kind])
        if indexed and status.get("completedIndexes"):
            status["succeeded"] = len(job_state.parse_indexes(status["completedIndexes"]))
        status["uncountedTerminatedPods"] = {}
        ended = verdict is not None and pods.terminating == 0 and not pods.active
        if verdict is not None and ended:
            _set_condition(status, verdict.final, "True", verdict.reason, verdict.message)
            if verdict.final == "Complete":
                status["completionTime"] = objects.now()
        job = await self._write(job, before)
        if verdict is not None and ended:
            await self._tell_end(job, verdict)

    async def _tell_end(self, job: Object, verdict: Verdict) -> None:
        if verdict.final == "Complete":
            await self.events.normal(job, "Completed", "Job completed")
        else:
            await self.events.warning(job, verdict.reason, verdict.message)

    async def _write(self, job: Object, before: Object | None) -> Object:
        if job["status"] == before:
            return job
        return await self.client.update_status(JOBS, job)

    def _plan(self, job: Object) -> None:
        remaining = job_state.remaining_deadline(job)
        if remaining:
            self.queue.add_after(objects.key_of(job), remaining)

    async def _expire(self, job: Object) -> None:
        """ttlSecondsAfterFinished: the Job goes with its pods."""
        ttl, ended = job["spec"].get("ttlSecondsAfterFinished"), job_state.finish_time(job)
        if ttl is None or ended is None or objects.is_deleting(job):
            return
        left = ttl - objects.age(ended)
        if left > 0:
            self.queue.add_after(objects.key_of(job), left)
        else:
            await self.client.delete(JOBS, job, propagation="Foreground")

    async def _release_orphans(self, namespace: str, name: str, job: Object | None) -> None:
        """Pods of an earlier Job of this name: nobody counts them any more, so nothing may keep them."""
        uid = None if job is None else job["metadata"]["uid"]
        pods = await self.pods_named_for(namespace, name)
        # A pod that was orphaned has no controller at all.
        await self._release([pod for pod in pods if uid is None or (objects.controller_of(pod) or {}).get("uid") != uid])

    async def _release(self, pods: list[Object]) -> None:
        """Take the tracking finalizer off pods that still have it."""
        for pod in pods:
            finalizers = pod["metadata"].get("finalizers") or []
            if job_state.FINALIZER not in finalizers:
                continue
            rest = [item for item in finalizers if item != job_state.FINALIZER]
            tests = [
                {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
                {"op": "replace", "path": "/metadata/finalizers", "value": rest},
            ]
            try:
                await self.client.patch(PODS, *objects.key_of(pod), tests, content_type=JSON_PATCH)
            except (errors.NotFound, errors.Unprocessable):
                continue


def _free_indexes(job: Object, pods: Pods, count: int) -> list[int | None]:
    if not job_state.is_indexed(job):
        return [None] * count
    taken = job_state.completed_indexes(job, pods) | {job_state.index_of(pod) for pod in pods.active}
    free: list[int | None] = [index for index in range(job_state.completions(job) or 1) if index not in taken]
    return free[:count]


def _note_uncounted(job: Object, pods: Pods) -> None:
    """List the new ends in the status before their finalizers go: if we die in between, they are still counted once."""
    status = job["status"]
    uncounted = dict(status.get("uncountedTerminatedPods") or {})
    groups = {"failed": pods.new_failed}
    if job_state.is_indexed(job):
        indexes = job_state.format_indexes(job_state.completed_indexes(job, pods))
        if indexes:
            status["completedIndexes"] = indexes
            status["succeeded"] = len(job_state.parse_indexes(indexes))
    else:
        groups["succeeded"] = pods.new_succeeded
    if job["spec"].get("suspend"):
        groups.pop("failed")
    for kind, found in groups.items():
        if found:
            uncounted[kind] = [*(uncounted.get(kind) or []), *(pod["metadata"]["uid"] for pod in found)]
    status["uncountedTerminatedPods"] = uncounted


def _count_active(status: Object, pods: Pods) -> None:
    if pods.active:
        status["active"] = len(pods.active)
    else:
        status.pop("active", None)
    status["ready"], status["terminating"] = pods.ready, pods.terminating


def _set_condition(status: Object, kind: str, value: str, reason: str, message: str) -> None:
    """Replace in place or append: the list of a Job keeps its order."""
    fresh = job_state.make_condition(kind, value, reason, message)
    conditions = list(status.get("conditions") or [])
    for position, known in enumerate(conditions):
        if known["type"] == kind:
            conditions[position] = fresh
            break
    else:
        conditions.append(fresh)
    status["conditions"] = conditions
