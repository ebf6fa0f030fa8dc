"""Binds pods to this node when there is no kube-scheduler: it checks zone, claims and extended resources (GPUs).

CPU and memory requests are not counted: a manifest that asks for 64 CPUs on the cluster has to run on a laptop too.
"""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal
from typing import TYPE_CHECKING

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.agent import quantity
from airflow_mlxp.local.client import CLAIMS, NODES, PODS
from airflow_mlxp.local.events import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_mlxp.local.client import Client, Object
    from airflow_mlxp.local.settings import AgentSettings

log = logging.getLogger(__name__)

ZONE = "mlx.navercorp.com/zone"

_NOT_COUNTED = ("cpu", "memory", "ephemeral-storage")
_RETRY = 1.0
"""Seconds between two looks at pods that don't fit, for changes that send no event (a claim that now exists)."""


class Scheduler:
    """Tries every unbound pod again whenever something changes."""

    def __init__(
        self, client: Client, settings: AgentSettings, labels: dict[str, str], pods: Callable[[], Iterable[Object]]
    ) -> None:
        self._client, self._settings, self._labels, self._pods = client, settings, labels, pods
        self._events = EventRecorder(client, "default-scheduler")
        self._kick = asyncio.Event()
        self._told: dict[str, str] = {}
        self._bound: set[str] = set()

    def kick(self) -> None:
        """Something changed: try now."""
        self._kick.set()

    async def run(self) -> None:
        """Bind until cancelled."""
        while True:
            self._kick.clear()
            try:
                await self._try_all()
            except (errors.ClusterError, aiohttp.ClientError) as error:
                log.info("scheduling: %s", error)
            try:
                async with asyncio.timeout(_RETRY if self._told else None):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _try_all(self) -> None:
        self._bound &= {pod["metadata"]["uid"] for pod in self._pods()}
        waiting = [pod for pod in self._pods() if self._is_unbound(pod)]
        self._told = {uid: why for uid, why in self._told.items() if any(pod["metadata"]["uid"] == uid for pod in waiting)}
        for pod in sorted(waiting, key=lambda item: str(item["metadata"]["creationTimestamp"])):
            why = await self._misfit(pod)
            if why is None:
                await self._bind(pod)
            elif self._told.get(pod["metadata"]["uid"]) != why:
                self._told[pod["metadata"]["uid"]] = why
                await self._refuse(pod, why)

    def _is_unbound(self, pod: Object) -> bool:
        uid = pod["metadata"]["uid"]
        bound = pod["spec"].get("nodeName") or uid in self._bound
        return not bound and not objects.is_terminal(pod) and not objects.is_deleting(pod)

    async def _misfit(self, pod: Object) -> str | None:
        """Why the pod can't run here, in the scheduler's words; None when it can."""
        hopeless = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        node = await self._client.get(NODES, "", self._settings.node_name)
        if (why := _closed(node, pod)) is not None:
            return f"0/1 nodes are available: 1 node(s) {why}. {hopeless}"
        selector = pod["spec"].get("nodeSelector") or {}
        if not all(self._has_label(key, value) for key, value in selector.items()):
            return f"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. {hopeless}"
        for volume in pod["spec"].get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim and await self._client.find(CLAIMS, pod["metadata"]["namespace"], claim) is None:
                return f'0/1 nodes are available: persistentvolumeclaim "{claim}" not found. {hopeless}'
        for name, wanted in extended_requests(pod).items():
            if wanted > self._free(name):
                preempt = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
                return f"0/1 nodes are available: 1 Insufficient {name}. {preempt}"
        return None

    def _has_label(self, key: str, value: str) -> bool:
        if key == ZONE:
            return not self._settings.zones or value in self._settings.zones
        return self._labels.get(key) == value

    def _free(self, name: str) -> Decimal:
        total = Decimal(self._settings.gpus if name == "nvidia.com/gpu" else 0)
        here = (pod for pod in self._pods() if not self._is_unbound(pod) and not objects.is_terminal(pod))
        return total - sum((extended_requests(pod).get(name, Decimal(0)) for pod in here), Decimal(0))

    async def _bind(self, pod: Object) -> None:
        namespace, name = objects.key_of(pod)
        node = self._settings.node_name
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod["metadata"]["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(PODS, namespace, body, name=name, subresource="binding")
        except (errors.NotFound, errors.Conflict):
            return
        # The watch will say so soon; until then the next pod must not be given the same GPUs.
        self._bound.add(pod["metadata"]["uid"])
        self._told.pop(pod["metadata"]["uid"], None)
        await self._events.normal(pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")

    async def _refuse(self, pod: Object, why: str) -> None:
        condition: Object = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        condition |= {"lastProbeTime": None, "lastTransitionTime": objects.now()}
        try:
            await self._client.patch(PODS, *objects.key_of(pod), {"status": {"conditions": [condition]}}, subresource="status")
        except errors.NotFound:
            return
        await self._events.warning(pod, "FailedScheduling", why)


def _closed(node: Object, pod: Object) -> str | None:
    """Why the node takes no such pod (``kubectl cordon`` and ``taint``)."""
    if node["spec"].get("unschedulable"):
        return "were unschedulable"
    for taint in node["spec"].get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not _tolerated(pod, taint):
            return f"had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return None


def _tolerated(pod: Object, taint: Object) -> bool:
    for toleration in pod["spec"].get("tolerations") or []:
        anything = toleration.get("operator") == "Exists"
        value = anything or toleration.get("value", "") == taint.get("value", "")
        key = toleration.get("key") == taint["key"] or (anything and not toleration.get("key"))
        if key and value and toleration.get("effect") in {None, "", taint["effect"]}:
            return True
    return False


def extended_requests(pod: Object) -> dict[str, Decimal]:
    """What the pod asks for beside CPU and memory; an extended resource's limit is its request."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        for name, amount in wanted.items():
            if name not in _NOT_COUNTED and not name.startswith("hugepages-"):
                total[name] = total.get(name, Decimal(0)) + quantity.parse(amount)
    return total
