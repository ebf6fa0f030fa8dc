"""What earlier tries of a task have left on the cluster: adopt it, delete it, or leave it (docs/decisions, one live workload)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_mlxp import identity
from airflow_mlxp.cluster import delete, failures, ownership
from airflow_mlxp.models import Phase, ReplicaPhase
from airflow_mlxp.workloads import objects
from airflow_mlxp.workloads.base import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Workload

OUTCOME_SUCCESS = "success"
"""Value of the outcome annotation after a success; otherwise the category of the diagnosis."""

_REMOVAL_SECONDS = 120.0
"""Beyond the grace period: kubelet, garbage collector and a busy API server need seconds together, a lost node never ends."""
_ATTEMPTS = 5
"""Looks at one predecessor whose owner changes under our hands."""
_ENDED_PODS = {ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED}


@dataclass(frozen=True, kw_only=True, slots=True)
class Predecessor:
    """A workload with our task label, as just read."""

    obj: dict[str, Any]
    ref: WorkloadRef
    identity: identity.WorkloadIdentity
    phase: Phase
    live: bool
    """Not finished, or some pod of it is."""


class Step(StrEnum):
    """What is done about a predecessor."""

    LEAVE = "leave"
    FOREIGN = "foreign"
    """Live, and perhaps another Airflow's: left alone, told once."""
    STALE = "stale"
    """Newer than we are: we have to stop."""
    ADOPT = "adopt"
    """Go on with it; a succeeded one is followed through its drain and gives its result."""
    DELETE = "delete"


def step_for(
    own: identity.TaskIdentity, spec_hash: str, found: Predecessor, *, known_nonces: Collection[str], may_adopt: bool
) -> Step:
    """The rule, without any I/O. ``may_adopt`` is False once we have a workload of our own."""
    other = found.identity
    if other.ti_id != own.ti_id and not identity.is_certainly_ours(own, other, known_nonces):
        return Step.FOREIGN if found.live else Step.LEAVE
    if identity.is_newer(other.ti_id, own.ti_id):
        return Step.STALE
    if may_adopt and _is_adoptable(own, spec_hash, found):
        return Step.ADOPT
    return Step.DELETE if found.live else Step.LEAVE


def _is_adoptable(own: identity.TaskIdentity, spec_hash: str, found: Predecessor) -> bool:
    other = found.identity
    if other.spec_hash != spec_hash or not identity.is_same_chain(own, other) or ownership.is_being_deleted(found.obj):
        return False
    if found.phase is Phase.SUCCEEDED:
        return other.outcome in {"", OUTCOME_SUCCESS}
    return found.live and found.phase is not Phase.FAILED


@dataclass(frozen=True, kw_only=True)
class Settler:
    """Settles the predecessors of one try."""

    client: Client
    workload: Workload
    namespace: str
    own: identity.TaskIdentity
    spec_hash: str
    known_nonces: Collection[str]
    grace_seconds: int
    report: Callable[[str], None]
    """Gets one line for each thing done."""
    told: set[str] = field(default_factory=set)
    """Uids of workloads that may be another Airflow's, told once."""

    async def settle(self, *, created: WorkloadRef | None = None) -> dict[str, Any] | None:
        """Deal with every predecessor, newest first; the adopted object, or None when there is nothing to go on with.

        ``created`` is what we have created ourselves: it is no predecessor, and nothing else is adopted.

        Raises InfrastructureFailure when a newer try has taken over, or a predecessor can't be removed in time.
        """
        adopted: dict[str, Any] | None = None
        for found in await self._predecessors():
            if created is None or found.ref.uid != created.uid:
                adopted = await self._deal_with(found, may_adopt=created is None and adopted is None) or adopted
        return adopted

    async def _predecessors(self) -> list[Predecessor]:
        selector = f"{identity.TASK_LABEL}={self.own.task_label}"
        page = await self.client.list(self.workload.api, self.namespace, label_selector=selector)
        if not page.items:
            return []
        pods = (await self.client.list(PODS, self.namespace, label_selector=selector)).items
        found = [self._predecessor(obj, pods) for obj in page.items]
        return sorted(found, key=lambda item: identity.age_key(item.identity.ti_id), reverse=True)

    def _predecessor(self, obj: dict[str, Any], pods: list[dict[str, Any]]) -> Predecessor:
        phase = self.workload.phase_of(obj)
        uid = objects.uid_of(obj)
        running = any(delete.is_owned_by(pod, uid) and objects.at(pod, "status", "phase") not in _ENDED_PODS for pod in pods)
        return Predecessor(
            obj=obj,
            ref=ownership.ref_of(self.workload, obj),
            identity=identity.WorkloadIdentity.from_object(obj),
            phase=phase,
            live=running or not phase.is_terminal,
        )

    async def _deal_with(self, found: Predecessor, *, may_adopt: bool) -> dict[str, Any] | None:
        name = f"{found.ref.kind} {found.ref.namespace}/{found.ref.name}"
        for _ in range(_ATTEMPTS):
            match step_for(self.own, self.spec_hash, found, known_nonces=self.known_nonces, may_adopt=may_adopt):
                case Step.LEAVE:
                    return None
                case Step.FOREIGN:
                    self._tell_foreign(found, name)
                    return None
                case Step.STALE:
                    raise failures.superseded(self.own.ti_id, found.identity.ti_id)
                case Step.DELETE:
                    await self._remove(found, name)
                    return None
                case Step.ADOPT:
                    if await self._adopt(found):
                        self.report(f"{name} of try {found.identity.ti_id} is {found.phase}: this try goes on with it")
                        return found.obj
            obj = await ownership.read(self.client, self.workload, found.ref)
            if obj is None:
                return None
            found = self._predecessor(obj, await delete.pods_of(self.client, self.workload, found.ref))
        raise failures.superseded(self.own.ti_id, found.identity.owner)

    def _tell_foreign(self, found: Predecessor, name: str) -> None:
        if found.ref.uid not in self.told:
            self.told.add(found.ref.uid)
            self.report(f"{name} bears this task's label but may belong to another Airflow: it is left alone")

    async def _adopt(self, found: Predecessor) -> bool:
        swapped = await ownership.swap(self.client, self.workload, found.obj, expected=found.identity.owner, new=self.own.ti_id)
        return swapped is ownership.Swap.DONE

    async def _remove(self, found: Predecessor, name: str) -> None:
        bound = self.grace_seconds + _REMOVAL_SECONDS
        deadline = asyncio.get_running_loop().time() + bound
        self.report(f"{name} of an earlier try is {found.phase}: it is deleted before anything new is created")
        outcome = await delete.fenced_delete(
            self.client,
            self.workload,
            found.ref,
            owner=None,
            by=self.own.ti_id,
            grace_seconds=self.grace_seconds,
            propagation="Foreground",
        )
        remaining = deadline - asyncio.get_running_loop().time()
        if outcome is delete.DeleteOutcome.TAKEN or not await delete.wait_until_gone(
            self.client, self.workload, found.ref, timeout=remaining
        ):
            raise failures.in_the_way(found.ref, bound)
