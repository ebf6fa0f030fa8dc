"""The node: registers itself, keeps its lease, and has a worker for each pod that is bound to it."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import aiohttp
import psutil

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.agent import process
from airflow_mlxp.local.agent.context import NodeContext
from airflow_mlxp.local.agent.endpoint import LogEndpoint
from airflow_mlxp.local.agent.names import JOB_LABEL, PortTable
from airflow_mlxp.local.agent.pod import PodWorker
from airflow_mlxp.local.agent.scheduler import Scheduler
from airflow_mlxp.local.agent.volumes import VolumeFolders
from airflow_mlxp.local.client import LEASES, NODES, PODS
from airflow_mlxp.local.events import EventRecorder
from airflow_mlxp.local.informer import Informer

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_mlxp.local.agent.container import Container
    from airflow_mlxp.local.client import Client, Object
    from airflow_mlxp.local.images import ImageTable
    from airflow_mlxp.local.settings import AgentSettings

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"


class NodeAgent:
    """Runs the pods of one node. ``folder`` holds logs, scratch folders and records of processes."""

    def __init__(self, client: Client, *, folder: Path, settings: AgentSettings, images: ImageTable) -> None:
        self._client, self._settings, self._folder = client, settings, folder
        name = settings.node_name
        self._labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        }
        self._node = NodeContext(
            client=client,
            settings=settings,
            images=images,
            folder=folder,
            events=EventRecorder(client, "kubelet", host=name),
            ports=PortTable(),
            volumes=VolumeFolders(client, folder / "volumes", settings.volumes),
        )
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._informer = Informer(client, PODS, self._on_pod)
        self._scheduler = Scheduler(client, settings, self._labels, lambda: list(self._informer.objects.values()))
        self._endpoint = LogEndpoint(self._find_container, settings.client_ca or client.ca_pem)
        self._registered = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled; then every process of every pod is killed and the statuses are left as they are."""
        await asyncio.to_thread(self._clear_leftovers)
        await self._endpoint.start()
        try:
            await self._register()
            self._registered.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informer.run(), name="agent informer")
                group.create_task(self._renew_lease(), name="agent lease")
                if self._settings.bind_pods:
                    group.create_task(self._scheduler.run(), name="scheduler")
        finally:
            await self._stop_workers()
            await self._endpoint.stop()
            self._node.aliases.close()

    def _clear_leftovers(self) -> None:
        """What an agent that died has left: its containers, their logs and scratch folders."""
        killed = process.kill_leftovers(self._folder / "processes")
        if killed:
            log.warning("killed containers left by an earlier agent: %s", killed)
        for name in ("logs", "pods"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    async def ready(self) -> None:
        """Wait until the node is registered and pods are watched."""
        await self._registered.wait()
        await self._informer.synced.wait()

    def _find_container(self, namespace: str, pod: str, container: str) -> Container | None:
        for worker, _ in self._workers.values():
            if objects.key_of(worker.context.pod) == (namespace, pod):
                return worker.container(container)
        return None

    def _on_pod(self, pod: Object, deleted: bool) -> None:
        self._scheduler.kick()
        uid = pod["metadata"]["uid"]
        known = self._workers.get(uid)
        if known is not None:
            worker, task = known
            if deleted:
                # Somebody forced it: nothing may go on running.
                worker.context.stopping.set()
                task.cancel()
            else:
                worker.update(pod)
        elif not deleted and pod["spec"].get("nodeName") == self._settings.node_name:
            self._start(pod)

    def _start(self, pod: Object) -> None:
        worker = PodWorker(self._node, pod)
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        task = asyncio.get_running_loop().create_task(worker.run(), name=f"pod {name}")
        self._workers[uid] = (worker, task)
        task.add_done_callback(lambda done: self._forget(uid, pod, done))
        worker.update(pod)

    def _forget(self, uid: str, pod: Object, task: asyncio.Task[None]) -> None:
        self._workers.pop(uid, None)
        if not task.cancelled() and task.exception() is not None:
            log.error("pod %s", pod["metadata"]["name"], exc_info=task.exception())
        job, namespace = (pod["metadata"].get("labels") or {}).get(JOB_LABEL), pod["metadata"]["namespace"]
        others = (worker.context.pod["metadata"] for worker, _ in self._workers.values())
        same = any(item["namespace"] == namespace and (item.get("labels") or {}).get(JOB_LABEL) == job for item in others)
        if job is not None and not same:
            self._node.ports.forget(namespace, job)

    async def _stop_workers(self) -> None:
        tasks = [task for _, task in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _register(self) -> None:
        """Create or take over the Node and report it Ready."""
        name = self._settings.node_name
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": self._labels}, "spec": {}}
        try:
            await self._client.create(NODES, "", body)
        except errors.Conflict:
            log.info("node %s exists already", name)
        await self._client.patch(NODES, "", name, {"status": self._status()}, subresource="status")

    def _status(self) -> Object:
        capacity = {
            "cpu": str(os.cpu_count() or 1),
            "memory": f"{psutil.virtual_memory().total // 1024}Ki",
            "pods": "110",
        } | ({"nvidia.com/gpu": str(self._settings.gpus)} if self._settings.gpus else {})
        moment = objects.now()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "node agent is posting ready status"}
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{**ready, "lastHeartbeatTime": moment, "lastTransitionTime": moment}],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self._settings.node_name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._endpoint.port}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": platform.release(),
                "osImage": platform.platform(),
                "containerRuntimeVersion": "processes://1",
                "kubeletVersion": "airflow-mlxp",
                "kubeProxyVersion": "",
                "operatingSystem": platform.system().lower(),
                "architecture": self._labels["kubernetes.io/arch"],
            },
        }

    async def _renew_lease(self) -> None:
        name = self._settings.node_name
        while True:
            spec = {
                "holderIdentity": name,
                "leaseDurationSeconds": 40,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
            try:
                await self._write_lease(name, spec)
            except (errors.ClusterError, aiohttp.ClientError) as error:
                log.info("lease: %s", error)
            await asyncio.sleep(self._settings.lease_interval)

    async def _write_lease(self, name: str, spec: Object) -> None:
        try:
            await self._client.patch(LEASES, LEASE_NAMESPACE, name, {"spec": spec})
        except errors.NotFound:
            body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": name}, "spec": spec}
            await self._client.create(LEASES, LEASE_NAMESPACE, body)
