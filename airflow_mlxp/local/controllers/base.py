"""What both controllers share: informers that fill a work queue, workers that empty it, pods and their events."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import aiohttp

from airflow_mlxp import errors
from airflow_mlxp.local import objects
from airflow_mlxp.local.client import PODS
from airflow_mlxp.local.controllers.queue import WorkQueue
from airflow_mlxp.local.events import EventRecorder
from airflow_mlxp.local.informer import Informer

if TYPE_CHECKING:
    from airflow_mlxp.local.client import Client, Object, Resource
    from airflow_mlxp.local.settings import ControllerSettings

log = logging.getLogger(__name__)

WORKERS = 4
"""Keys reconciled at the same time; each is a few calls to a server on the same machine."""


class Controller(ABC):
    """Brings the world to what objects of one resource ask for.

    The informers only say that something changed: ``reconcile`` reads the object and its pods afresh, because a cache that lags
    behind our own writes would create a pod twice.
    """

    resource: ClassVar[Resource]
    component: ClassVar[str]
    """Name in the events' ``source.component``."""

    pod_label: ClassVar[str]
    """Label of pods that holds the name of their owner."""

    def __init__(self, client: Client, settings: ControllerSettings) -> None:
        self.client, self.settings = client, settings
        self.queue = WorkQueue(settings)
        self.events = EventRecorder(client, self.component)
        self._informers = (Informer(client, self.resource, self._on_owner), Informer(client, PODS, self._on_pod))

    @abstractmethod
    async def reconcile(self, namespace: str, name: str) -> None:
        """One step towards the wanted state; called again after each change."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self._informers:
                    group.create_task(informer.run(), name=f"{self.component} informer")
                for informer in self._informers:
                    await informer.synced.wait()
                for number in range(WORKERS):
                    group.create_task(self._work(), name=f"{self.component} {number}")
        finally:
            self.queue.close()

    async def ready(self) -> None:
        """Wait until the first lists are in."""
        for informer in self._informers:
            await informer.synced.wait()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self.reconcile(*key)
            except (errors.Conflict, errors.NotFound):
                self.queue.retry(key)
            except (errors.ClusterError, aiohttp.ClientError) as error:
                log.info("%s %s/%s: %s", self.component, *key, error)
                self.queue.retry(key)
            except Exception:
                # A fault in one object must not stop the others.
                log.exception("%s %s/%s", self.component, *key)
                self.queue.retry(key)
            else:
                self.queue.forget(key)
            finally:
                self.queue.done(key)

    def _on_owner(self, obj: Object, deleted: bool) -> None:  # noqa: ARG002 - the informer's handler
        self.queue.add(objects.key_of(obj))

    def _on_pod(self, pod: Object, deleted: bool) -> None:  # noqa: ARG002 - the informer's handler
        owner = objects.controller_of(pod)
        if owner is not None and (owner["apiVersion"], owner["kind"]) == (self.resource.api_version, self.resource.kind):
            self.queue.add((pod["metadata"]["namespace"], owner["name"]))

    async def pods_named_for(self, namespace: str, name: str) -> list[Object]:
        """Pods that carry the owner's name, whoever controls them."""
        answer = await self.client.list(PODS, namespace, selector=f"{self.pod_label}={name}")
        return list(answer["items"])

    async def owned_pods(self, owner: Object) -> list[Object]:
        """Pods that this very owner (by uid) controls."""
        pods = await self.pods_named_for(*objects.key_of(owner))
        return [pod for pod in pods if (objects.controller_of(pod) or {}).get("uid") == owner["metadata"]["uid"]]
