"""One watch, many waits: all waits of a process for the same access and namespace share their lists and watches.

``observe`` is the way in. Workloads that carry our task label share one list+watch per kind and one of pods; others are
watched by name. Warning events are watched only while some workload is not running yet or has failed.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp import errors
from airflow_mlxp.cluster import rules, watch
from airflow_mlxp.cluster.observation import Observation
from airflow_mlxp.cluster.source import Source
from airflow_mlxp.identity import TASK_LABEL
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import EVENTS, PODS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Api, Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class HubLimits:
    """Waits of a hub, in seconds."""

    first_list: float = 300.0
    """How long ``observe`` waits for the first list: long enough for the restart of a control plane."""
    event_linger: float = 30.0
    """How long the watch of events stays open unused: phases flap while pods are restarted."""
    watch: watch.WatchLimits = watch.DEFAULT_LIMITS


DEFAULT_LIMITS = HubLimits()

_HUBS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], Hub]] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def observe(
    client: Client, workload: Workload, ref: WorkloadRef, *, limits: HubLimits = DEFAULT_LIMITS
) -> AsyncIterator[Observation]:
    """Watch one workload together with all others of this event loop, access and namespace.

    On entry the present state is known; ``Observation.changed`` tells of news. ``limits`` are those of the first observer.

    Raises:
        errors.ClusterError: list or watch is refused, here or later by ``changed``.
        errors.ClusterUnreachable: the first list did not come within ``limits.first_list``.
    """
    hub = _hub_of(client, ref.namespace, limits)
    observation = Observation(workload, ref)
    hub.users += 1
    try:
        await hub.join(observation)
        yield observation
    finally:
        hub.users -= 1
        hub.leave(observation)
        if not hub.users:
            await _close(hub)


def _hub_of(client: Client, namespace: str, limits: HubLimits) -> Hub:
    hubs = _HUBS.setdefault(asyncio.get_running_loop(), {})
    key = (client.access.key, namespace)
    if key not in hubs:
        hubs[key] = Hub(client, namespace, limits)
    return hubs[key]


async def _close(hub: Hub) -> None:
    hubs = _HUBS[asyncio.get_running_loop()]
    for key in [key for key, value in hubs.items() if value is hub]:
        del hubs[key]
    # The last observer may leave because it is cancelled; what is open has to be closed all the same.
    await asyncio.shield(hub.spawn(hub.close(), "close the shared watches"))


def _twin(client: Client) -> Client:
    """A client of the hub's own: observers close theirs when they leave, and the sources outlive them."""
    from airflow_mlxp.cluster.rest import Client

    return Client(client.access, settings=client._settings)  # noqa: SLF001  # the same bounds for the same server


class Hub:
    """The shared sources of one access and namespace, and who observes which workload."""

    def __init__(self, client: Client, namespace: str, limits: HubLimits) -> None:
        self._client = _twin(client)
        self._namespace, self._limits = namespace, limits
        self.users = 0
        self.by_uid: dict[str, set[Observation]] = {}
        """Observations by uid of their workload."""
        self._subjects: dict[str, str] = {}
        """Uid and ``kind/name`` of everything that belongs to an observed workload, to the workload's uid."""
        self._sources: dict[tuple[Api, str, str], Source] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._linger: asyncio.TimerHandle | None = None

    def spawn(self, coroutine: Any, name: str) -> asyncio.Task[None]:
        """Run something of the hub's own, outside the log context of the task that happens to need it."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name=name, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End every source and connection."""
        if self._linger is not None:
            self._linger.cancel()
        own = asyncio.current_task()
        ending = [task for task in self._tasks if task is not own] + [source.task for source in self._sources.values()]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._client.aclose()

    async def join(self, observation: Observation) -> None:
        """Subscribe, and fill in the present state."""
        ref, kind = observation.ref, observation.kind
        self.by_uid.setdefault(ref.uid, set()).add(observation)
        self._subjects.update({ref.uid: ref.uid, f"{ref.kind}/{ref.name}": ref.uid})
        await self._subscribe(observation, label=TASK_LABEL)
        if not observation.told:
            obj = await self._read(observation)
            if obj is not None and TASK_LABEL not in objects.labels_of(obj):
                await self._subscribe(observation, name=ref.name, label=kind.pod_selector(ref.name))
            elif obj is not None and not observation.told:
                observation.take_workload(obj)
        if ref.uid in observation.sources[1].dropped:
            await self._read_pods(observation)
        observation.begin()
        self._update_events(observation)

    async def _subscribe(self, observation: Observation, *, label: str, name: str = "") -> None:
        """Take part in the list+watch of the workload's kind and of pods; of one name and its pods if there is a name."""
        kind, uid, former = observation.kind, observation.ref.uid, observation.sources
        field_selector = f"metadata.name={name}" if name else ""
        workloads = self._acquire(kind.api, "" if name else label, field_selector, rules.WorkloadRules(self.by_uid, kind))
        pods = self._acquire(PODS, label, "", rules.PodRules(self.by_uid))
        observation.sources = [workloads, pods]
        for source in observation.sources:
            source.observers.add(observation)
        for source in former:
            self._release(source, observation)
        for source in observation.sources:
            await source.listed(self._limits.first_list)
        if uid in workloads.objects:
            self.on_object(workloads, uid, workloads.objects[uid])
        for pod_uid, pod in list(pods.by_key.get(uid, {}).items()):
            self._attach_pod(observation, pod_uid, pod)

    async def _read(self, observation: Observation) -> dict[str, Any] | None:
        """The workload itself: the shared list may be older than its creation, and has no objects without our label."""
        ref = observation.ref
        try:
            obj = await self._client.get(observation.kind.api.path(ref.namespace, ref.name))
        except errors.NotFound:
            return None
        return obj if objects.uid_of(obj) == ref.uid else None

    async def _read_pods(self, observation: Observation) -> None:
        """Ended pods that were dropped because nobody waited for their workload."""
        ref = observation.ref
        page = await self._client.list(PODS, ref.namespace, label_selector=observation.kind.pod_selector(ref.name))
        for pod in page.items:
            uid = objects.uid_of(pod)
            if ref.uid in rules.owners_of(pod) and uid not in observation.pods and uid not in observation.removed_pods:
                self._attach_pod(observation, uid, pod)

    def leave(self, observation: Observation) -> None:
        """Unsubscribe; sources that nobody needs end."""
        uid = observation.ref.uid
        others = self.by_uid.get(uid, set())
        others.discard(observation)
        if not others:
            self.by_uid.pop(uid, None)
            self._forget(observation)
        for source in filter(None, (*observation.sources, observation.event_source)):
            self._release(source, observation)

    def _forget(self, observation: Observation) -> None:
        """Drop what only this observation wanted: names, and objects that have ended."""
        ref = observation.ref
        pods = {**observation.removed_pods, **observation.pods}
        for key in (ref.uid, f"{ref.kind}/{ref.name}", *pods, *(f"Pod/{objects.name_of(pod)}" for pod in pods.values())):
            if self._subjects.get(key) == ref.uid:
                del self._subjects[key]
        for source in observation.sources:
            source.review([ref.uid, *pods])

    def _acquire(self, api: Api, label_selector: str, field_selector: str, rule: rules.Rules) -> Source:
        key = (api, label_selector, field_selector)
        source = self._sources.get(key)
        if source is None or (source.error is not None and api is not EVENTS):
            query = watch.Query(
                client=self._client,
                api=api,
                namespace=self._namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            source = self._sources[key] = Source(query, rules=rule, listener=self, limits=self._limits.watch)
        return source

    def _release(self, source: Source, observation: Observation) -> None:
        source.observers.discard(observation)
        if source is observation.event_source:
            observation.event_source = None
            if self._linger is not None:
                self._linger.cancel()
            self._linger = asyncio.get_running_loop().call_later(self._limits.event_linger, self._end_if_unused, source)
        else:
            self._end_if_unused(source)

    def _end_if_unused(self, source: Source) -> None:
        if source.observers:
            return
        for key in [key for key, value in self._sources.items() if value is source]:
            del self._sources[key]
        if not source.task.done():
            source.task.cancel()
            self._tasks.add(source.task)
            source.task.add_done_callback(self._tasks.discard)

    def _update_events(self, observation: Observation) -> None:
        if not observation.is_begun:
            return
        if observation.wants_events and observation.event_source is None:
            source = self._acquire(EVENTS, "", "type=Warning", rules.EVENT_RULES)
            source.observers.add(observation)
            observation.event_source = source
            pods = (key for uid, pod in observation.pods.items() for key in (uid, f"Pod/{objects.name_of(pod)}"))
            self._replay_events(observation, (observation.ref.uid, f"{observation.ref.kind}/{observation.ref.name}", *pods))
        elif not observation.wants_events and observation.event_source is not None:
            self._release(observation.event_source, observation)

    def _replay_events(self, observation: Observation, subjects: Iterable[str]) -> None:
        if observation.event_source is not None:
            for subject in subjects:
                for uid, event in observation.event_source.by_key.get(subject, {}).items():
                    observation.take_event(uid, event)

    def _attach_pod(self, observation: Observation, uid: str, pod: dict[str, Any]) -> None:
        subjects = (uid, f"Pod/{objects.name_of(pod)}")
        is_new = uid not in observation.pods
        self._subjects.update(dict.fromkeys(subjects, observation.ref.uid))
        observation.take_pod(uid, pod)
        if is_new:
            self._replay_events(observation, subjects)

    def on_object(self, source: Source, uid: str, obj: dict[str, Any]) -> None:
        """Pass an object on to the observations of its workload (``Listener``)."""
        if source.api is EVENTS:
            for subject in rules.EVENT_RULES.keys_of(obj):
                for observation in self.by_uid.get(self._subjects.get(subject, ""), ()):
                    observation.take_event(uid, obj)
            return
        owners = rules.owners_of(obj) if source.api is PODS else (uid,)
        for observation in [seen for owner in owners for seen in self.by_uid.get(owner, ())]:
            if source.api is PODS:
                self._attach_pod(observation, uid, obj)
            else:
                observation.told = True
                observation.take_workload(obj)
            self._update_events(observation)

    def on_removed(self, source: Source, uid: str, obj: dict[str, Any] | None) -> None:
        """Pass the end of an object on (``Listener``). An event that expires is no news."""
        if source.api is EVENTS:
            return
        for observation in list(self.by_uid.get(self._subjects.get(uid, ""), ())):
            if source.api is PODS:
                observation.take_removed_pod(uid, obj)
            else:
                observation.told = True
                observation.take_workload(None)
            self._update_events(observation)

    def on_listed(self, source: Source, uids: set[str]) -> None:
        """Find what ended unseen though the source never held it: it was read directly (``Listener``)."""
        for observation in list(source.observers):
            if source.api is PODS:
                for uid in observation.pods.keys() - uids:
                    observation.take_removed_pod(uid, None)
            elif source.api is not EVENTS and observation.workload is not None and observation.ref.uid not in uids:
                # Either it is gone, or the list was under way when it was created.
                self.spawn(self._verify(observation), f"look for {observation.ref.name}")

    def on_state(self, source: Source) -> None:
        """Tell of an interruption or of the end of a source (``Listener``). Events that can't be read fail nobody."""
        for observation in list(source.observers):
            if source.error is not None and source in observation.sources:
                observation.fail(source.error)
            else:
                observation.wake()

    async def _verify(self, observation: Observation) -> None:
        """Take a workload for gone only when the server says so, however long it takes to say."""
        while observation in self.by_uid.get(observation.ref.uid, ()) and not observation.told:
            try:
                obj = await self._read(observation)
            except errors.MLXPError:
                await asyncio.sleep(self._limits.watch.longest_delay)
                continue
            if obj is None:
                observation.take_workload(None)
                self._update_events(observation)
            return
