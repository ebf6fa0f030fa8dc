"""What one waiter sees of its workload. The hub fills it, ``follow()`` reads it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from airflow_mlxp.models import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_mlxp.cluster.source import Source
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Workload

MAX_REMOVED_PODS = 1024
"""Removed pods kept as evidence, newest first to stay: a workload whose pods are evicted for weeks must not fill the memory."""
MAX_EVENTS = 256
"""Warning events kept, newest first to stay; repetitions only raise the ``count`` of one event."""

_SETTLED_POD_PHASES = {"Running", "Succeeded", "Failed"}


class Observation:
    """The present state of a workload, its pods and its warnings. The objects are shared: read them, don't change them."""

    def __init__(self, kind: Workload, ref: WorkloadRef) -> None:
        self.kind, self.ref = kind, ref
        self.workload: dict[str, Any] | None = None
        """None: gone, or another uid under the name."""
        self.pods: dict[str, dict[str, Any]] = {}
        """By pod uid; owned by the workload's uid."""
        self.removed_pods: OrderedDict[str, dict[str, Any]] = OrderedDict()
        """Last object of deleted pods, by uid, oldest first: their end is evidence. At most ``MAX_REMOVED_PODS``."""
        self.sources: list[Source] = []
        """The sources that it lives from, for the hub."""
        self.event_source: Source | None = None
        """Set while warnings are wanted, for the hub."""
        self.told = False
        """Whether a watch has said anything of the workload: what a direct read brings is older then."""
        self.is_begun = False
        """Whether the present state is known."""
        self._events: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._unsettled: set[str] = set()
        self._phase = Phase.GONE
        self._news = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def events(self) -> Sequence[Mapping[str, Any]]:
        """Warning events about the workload and its pods: newest state of each, latest news last."""
        return tuple(self._events.values())

    @property
    def interrupted(self) -> str:
        """Why the watch of the workload or its pods is down at present, or empty."""
        return "; ".join(dict.fromkeys(filter(None, (source.interrupted for source in self.sources))))

    @property
    def events_error(self) -> str:
        """Why its warnings can't be read, or empty: that fails nobody."""
        return str(self.event_source.error or "") if self.event_source else ""

    @property
    def wants_events(self) -> bool:
        """Whether warnings can say why it does not run, or why it has failed."""
        if self._phase is Phase.FAILED:
            return True
        if self._phase.is_terminal:
            return False
        return self._phase is not Phase.RUNNING or not self.pods or bool(self._unsettled)

    async def changed(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109  # a plain number is the contract
        """Wait for news: True when something has changed since the last call, False after ``timeout`` seconds without.

        Raises:
            errors.MLXPError: the watch has ended for good: the role no longer allows it, or the credential is refused.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return False
        if self._error is not None:
            raise self._error.with_traceback(None)
        self._news.clear()
        return True

    async def events_known(self, limit: float) -> bool:
        """Wait at most ``limit`` seconds until the warnings of a workload that doesn't run are read; False: they are not.

        For the diagnosis of a failure that came before the list of events.
        """
        if self.event_source is None:
            return not self.wants_events
        try:
            await self.event_source.listed(limit)
        except Exception:  # noqa: BLE001  # why it is not known is told by ``events_error``
            return False
        return True

    def begin(self) -> None:
        """The present state is known: only what comes now is news."""
        self.is_begun = True
        if self._error is None:
            self._news.clear()

    def take_workload(self, obj: dict[str, Any] | None) -> None:
        """The workload has changed; None: it is gone."""
        self.workload = obj
        self._phase = self.kind.phase_of(obj)
        self.wake()

    def take_pod(self, uid: str, pod: dict[str, Any]) -> None:
        """A pod of the workload is there or has changed."""
        self.pods[uid] = pod
        if _pod_phase(pod) in _SETTLED_POD_PHASES:
            self._unsettled.discard(uid)
        else:
            self._unsettled.add(uid)
        self.wake()

    def take_removed_pod(self, uid: str, pod: dict[str, Any] | None) -> None:
        """A pod of the workload is gone; ``pod`` is its last object, if it came with the news."""
        last = self.pods.pop(uid, None)
        self._unsettled.discard(uid)
        if (evidence := pod or last) is not None:
            _keep_newest(self.removed_pods, uid, evidence, MAX_REMOVED_PODS)
            self.wake()

    def take_event(self, uid: str, event: dict[str, Any]) -> None:
        """A Warning event about the workload or one of its pods."""
        if self._events.get(uid) != event:
            _keep_newest(self._events, uid, event, MAX_EVENTS)
            self.wake()

    def fail(self, error: BaseException) -> None:
        """Nothing more will be told; ``changed`` raises from now on."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """There is news."""
        self._news.set()


def _pod_phase(pod: Mapping[str, Any]) -> object:
    status = pod.get("status")
    return status.get("phase") if isinstance(status, dict) else None


def _keep_newest(kept: OrderedDict[str, dict[str, Any]], uid: str, obj: dict[str, Any], limit: int) -> None:
    kept[uid] = obj
    kept.move_to_end(uid)
    if len(kept) > limit:
        kept.popitem(last=False)
