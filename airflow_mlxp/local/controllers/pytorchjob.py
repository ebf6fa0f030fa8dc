"""The PyTorchJob controller: what the Kubeflow training operator v1.9 does, faults that users meet included.

So: a limit counts the restarts of all running pods together, a deadline is only looked at when something else happens, no status
is written while a pod is refused, Succeeded comes with the first worker when there is an elasticPolicy, and what still runs after
an end is left to cleanPodPolicy. Left out: gang scheduling, the HPA of elasticPolicy.metrics, the init container of workers.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.client import PODS, PYTORCHJOBS, SERVICES
from airflow_mlxp.local.controllers import pytorchjob_pods, pytorchjob_status
from airflow_mlxp.local.controllers.base import Controller

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Object

_NO_EXIT_CODE = 0xBEEF
"""What the operator takes for the exit code of a pod without a container status: it counts as retryable."""

_FIRST_RETRYABLE = 128


class PyTorchJobController(Controller):
    """Runs PyTorchJobs."""

    resource = PYTORCHJOBS
    component = "pytorchjob-controller"
    pod_label = pytorchjob_pods.JOB_NAME

    async def reconcile(self, namespace: str, name: str) -> None:
        """One step for one PyTorchJob."""
        job = await self.client.find(PYTORCHJOBS, namespace, name)
        if job is None or objects.is_deleting(job):
            return
        if _run_policy(job).get("managedBy") not in {None, "kubeflow.org/training-operator"}:
            return
        before = copy.deepcopy(job.get("status"))
        job["status"] = status = job.get("status") or {}
        if not status.get("conditions"):
            message = f"PyTorchJob {name} is created."
            pytorchjob_status.set_condition(status, "Created", message, moment=job["metadata"]["creationTimestamp"])
        pods = await self.owned_pods(job)
        events = await self._step(job, pods)
        if events is None:
            return
        if status != before:
            await self.client.update_status(PYTORCHJOBS, job)
        for kind, reason, message in events:
            await (self.events.warning if kind == "Warning" else self.events.normal)(job, reason, message)

    async def _step(self, job: Object, pods: list[Object]) -> list[tuple[str, str, str]] | None:
        """Act, and change the status in memory; the events that belong to the change, or None when the job is gone."""
        status = job["status"]
        if pytorchjob_status.is_finished(status):
            return None if await self._clean_up(job, pods) else []
        if _run_policy(job).get("suspend"):
            return await self._suspend(job, pods)
        events = self._resume(job)
        active = [pod for pod in pods if not objects.is_terminal(pod) and not objects.is_deleting(pod)]
        await self._mirror_trouble(job, active)
        specs = pytorchjob_pods.replica_specs(job)
        message = self._limit_reached(job, specs, pods, active)
        if message is not None:
            if self.settings.training_operator == "1.9.3":
                await self._delete_replicas(job, pods)
            else:
                await self._clean_pods(job, pods)
            return [*events, pytorchjob_status.fail(status, message)]
        await self._reconcile_replicas(job, specs, pods)
        status.setdefault("startTime", objects.now())
        return [*events, *pytorchjob_status.judge(job, status, specs)]

    async def _suspend(self, job: Object, pods: list[Object]) -> list[tuple[str, str, str]]:
        status = job["status"]
        await self._delete_replicas(job, pods)
        for counts in (status.get("replicaStatuses") or {}).values():
            counts.pop("active", None)
        message = f"PyTorchJob {job['metadata']['name']} is suspended."
        if pytorchjob_status.is_true(status, "Running"):
            pytorchjob_status.set_condition(status, "Running", message, value="False", reason="PyTorchJobSuspended")
        if pytorchjob_status.is_true(status, "Suspended"):
            return []
        pytorchjob_status.set_condition(status, "Suspended", message)
        return [("Normal", "PyTorchJobSuspended", message)]

    def _resume(self, job: Object) -> list[tuple[str, str, str]]:
        status = job["status"]
        if not pytorchjob_status.is_true(status, "Suspended"):
            return []
        message = f"PyTorchJob {job['metadata']['name']} is resumed."
        pytorchjob_status.set_condition(status, "Suspended", message, value="False", reason="PyTorchJobResumed")
        status["startTime"] = objects.now()
        return [("Normal", "PyTorchJobResumed", message)]

    def _limit_reached(self, job: Object, specs: dict[str, Object], pods: list[Object], active: list[Object]) -> str | None:
        policy, name = _run_policy(job), job["metadata"]["name"]
        if policy.get("backoffLimit") is not None and _past_backoff(job, specs, pods, active):
            return f"Job {name} has failed because it has reached the specified backoff limit"
        deadline, started = policy.get("activeDeadlineSeconds"), job["status"].get("startTime")
        if deadline is not None and started is not None and objects.age(started) >= deadline:
            return f"Job {name} has failed because it was active longer than specified deadline"
        return None

    async def _reconcile_replicas(self, job: Object, specs: dict[str, Object], pods: list[Object]) -> None:
        services = await self._owned_services(job)
        counts = job["status"].setdefault("replicaStatuses", {})
        for kind, spec in specs.items():
            mine = [pod for pod in pods if pod["metadata"]["labels"].get(pytorchjob_pods.REPLICA_TYPE) == kind.lower()]
            counts[kind] = {"selector": pytorchjob_status.selector(job, kind)}
            by_index = {int(pod["metadata"]["labels"][pytorchjob_pods.REPLICA_INDEX]): pod for pod in mine}
            for index in sorted({*range(spec["replicas"]), *by_index}):
                if index not in by_index:
                    await self._create_pod(job, specs, kind, index)
                else:
                    await self._look_at(job, kind, spec, index, by_index[index])
            counts[kind] |= pytorchjob_status.count(mine)
            for index in range(spec["replicas"]):
                if pytorchjob_pods.replica_name(job, kind, index) not in services:
                    await self._create_service(job, specs, kind, index)

    async def _look_at(self, job: Object, kind: str, spec: Object, index: int, pod: Object) -> None:
        """One existing pod: out of range, failed for good, or failed and to be replaced."""
        if index >= spec["replicas"]:
            await self._delete_pod(job, pod)
        exit_code = _exit_code(pod)
        if exit_code is not None:
            namespace, name = objects.key_of(pod)
            await self.events.normal(job, "ExitedWithCode", f"Pod: {namespace}.{name} exited with code {exit_code}")
        if objects.phase(pod) != "Failed" or spec["restartPolicy"] == "Never":
            return
        job_name, code = job["metadata"]["name"], _NO_EXIT_CODE if exit_code is None else exit_code
        if spec["restartPolicy"] == "ExitCode" and code < _FIRST_RETRYABLE:
            message = f'job "{job_name}" is failing because "{kind}" replica(s) failed.'
            await self.events.warning(job, "PyTorchJobFailed", message)
            # The operator sets no completionTime here: such a job is never deleted by its TTL.
            pytorchjob_status.set_condition(job["status"], "Failed", message)
            return
        await self._delete_pod(job, pod)
        message = f"job {job_name} is restarting because {kind} replica(s) failed."
        await self.events.warning(job, "PyTorchJobRestarting", message)
        pytorchjob_status.set_condition(job["status"], "Restarting", message)

    async def _create_pod(self, job: Object, specs: dict[str, Object], kind: str, index: int) -> None:
        pod = pytorchjob_pods.make_pod(job, specs, kind, index)
        if specs[kind]["template"]["spec"].get("restartPolicy"):
            message = "Restart policy in pod template will be overwritten by restart policy in replica spec"
            await self.events.warning(job, "SetPodTemplateRestartPolicy", message)
        try:
            await self.client.create(PODS, job["metadata"]["namespace"], pod)
        except errors.ClusterError as error:
            await self.events.warning(job, "FailedCreatePod", f"Error creating: {error.message}")
            raise
        await self.events.normal(job, "SuccessfulCreatePod", f"Created pod: {pod['metadata']['name']}")

    async def _create_service(self, job: Object, specs: dict[str, Object], kind: str, index: int) -> None:
        service = pytorchjob_pods.make_service(job, specs, kind, index)
        try:
            await self.client.create(SERVICES, job["metadata"]["namespace"], service)
        except errors.ClusterError as error:
            await self.events.warning(job, "FailedCreateService", f"Error creating: {error.message}")
            raise
        await self.events.normal(job, "SuccessfulCreateService", f"Created service: {service['metadata']['name']}")

    async def _mirror_trouble(self, job: Object, pods: list[Object]) -> None:
        """Warn about the pods' troubles on the job, each with the pod's own reason."""
        for pod in pods:
            for reason, message in _troubles(pod):
                await self.events.warning(job, reason, message)

    async def _clean_up(self, job: Object, pods: list[Object]) -> bool:
        """After the end: pods by cleanPodPolicy, active replicas count as succeeded, the job by its TTL; whether it is gone."""
        await self._clean_pods(job, pods)
        if pytorchjob_status.is_true(job["status"], "Succeeded"):
            for counts in job["status"]["replicaStatuses"].values():
                active = counts.pop("active", 0)
                if active:
                    counts["succeeded"] = active + int(counts.get("succeeded") or 0)
        ttl, ended = _run_policy(job).get("ttlSecondsAfterFinished"), job["status"].get("completionTime")
        if ttl is None or ended is None:
            return False
        left = ttl - objects.age(ended)
        if left > 0:
            self.queue.add_after(objects.key_of(job), left)
            return False
        await self.client.delete(PYTORCHJOBS, job)
        await self.events.normal(job, "SuccessfulDeletePod", f"Deleted job: {job['metadata']['name']}")
        return True

    async def _clean_pods(self, job: Object, pods: list[Object]) -> None:
        policy = _run_policy(job).get("cleanPodPolicy") or "None"
        if policy == "All":
            await self._delete_replicas(job, pods)
        elif policy == "Running":
            await self._delete_replicas(job, [pod for pod in pods if objects.phase(pod) in {"Running", "Pending"}])

    async def _delete_replicas(self, job: Object, pods: list[Object]) -> None:
        """Delete pods, each with the service of its name."""
        services = await self._owned_services(job) if pods else {}
        for pod in pods:
            await self._delete_pod(job, pod)
            service = services.get(pod["metadata"]["name"])
            if service is not None:
                await self.client.delete(SERVICES, service)
                await self.events.normal(job, "SuccessfulDeleteService", f"Deleted service: {service['metadata']['name']}")

    async def _delete_pod(self, job: Object, pod: Object) -> None:
        if not objects.is_deleting(pod):
            await self.client.delete(PODS, pod)
            await self.events.normal(job, "SuccessfulDeletePod", f"Deleted pod: {pod['metadata']['name']}")

    async def _owned_services(self, job: Object) -> dict[str, Object]:
        selector = f"{pytorchjob_pods.JOB_NAME}={job['metadata']['name']}"
        answer = await self.client.list(SERVICES, job["metadata"]["namespace"], selector=selector)
        uid = job["metadata"]["uid"]
        return {
            item["metadata"]["name"]: item for item in answer["items"] if (objects.controller_of(item) or {}).get("uid") == uid
        }


def _run_policy(job: Object) -> Object:
    return dict(job["spec"].get("runPolicy") or {})


def _past_backoff(job: Object, specs: dict[str, Object], pods: list[Object], active: list[Object]) -> bool:
    """The operator's two rules: a new failure under limit 0, and the sum of restarts over all running pods."""
    limit = int(job["spec"]["runPolicy"]["backoffLimit"])
    failed = sum(objects.phase(pod) == "Failed" for pod in pods)
    known = sum(int(counts.get("failed") or 0) for counts in (job["status"].get("replicaStatuses") or {}).values())
    if failed > known and len(active) != sum(spec["replicas"] for spec in specs.values()) and limit < 1:
        return True
    counted = {kind.lower() for kind, spec in specs.items() if spec["restartPolicy"] != "Never"}
    restarts = sum(
        objects.restart_count(pod)
        for pod in pods
        if objects.phase(pod) == "Running" and pod["metadata"]["labels"].get(pytorchjob_pods.REPLICA_TYPE) in counted
    )
    return restarts > 0 if limit == 0 else restarts >= limit


def _exit_code(pod: Object) -> int | None:
    for status in objects.container_statuses(pod):
        terminated = (status.get("state") or {}).get("terminated")
        if status["name"] == pytorchjob_pods.CONTAINER and terminated is not None:
            return int(terminated["exitCode"])
    return None


def _troubles(pod: Object) -> list[tuple[str, str]]:
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    containers = status.get("containerStatuses") or []
    found = []
    for item in [*containers, *(status.get("initContainerStatuses") or [])] if containers else []:
        state = item.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated and terminated["exitCode"] != 0:
            text = f"exitCode: {terminated['exitCode']} terminated message: {terminated.get('message', '')}"
            found.append((terminated.get("reason") or "Error", f"Error pod {name} container {item['name']} {text}"))
        if waiting and waiting.get("message"):
            found.append((waiting["reason"], f"Error pod {name} container {item['name']} waiting message: {waiting['message']}"))
    conditions = sorted(status.get("conditions") or [], key=lambda item: str(item.get("lastTransitionTime") or ""))
    if not containers and conditions and conditions[-1]["status"] != "True":
        last = conditions[-1]
        found.append((last.get("reason") or "Error", f"Error pod {name} condition message: {last.get('message', '')}"))
    return found
