"""Submit one workload for one try: settle predecessors, let the server check, create, and settle once more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_mlxp import errors, identity
from airflow_mlxp.cluster import delete, failures, ownership, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from airflow_mlxp.cluster.rest import Client
    from airflow_mlxp.models import WorkloadRef
    from airflow_mlxp.workloads.base import Workload

_NO_DRY_RUN = "does not support dry run"
_CREATES = 3
"""Creates that the server answers with 409 though no object has the name: updates of a quota's usage that met each other."""
_ANSWER_SECONDS = 1.5
"""How long a cancelled create may still be answered; a killed worker has 5 s in all, and withdrawing needs some of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """The workload that this try waits for."""

    ref: WorkloadRef
    object: dict[str, Any]
    """As the API server sent it last."""
    adopted: bool
    """An earlier try, or an earlier request of this one, has created it."""


async def submit(
    client: Client,
    *,
    workload: Workload,
    manifest: Mapping[str, Any],
    identity: identity.TaskIdentity,
    known_nonces: Collection[str] = frozenset(),
    grace_seconds: int = 30,
    report: Callable[[str], None],
) -> Submission:
    """Create the workload of one try, or go on with the one that an earlier try left running.

    ``manifest`` is stamped with ``identity`` and names its namespace; ``report`` gets one line for each thing done. Predecessors
    that can't be adopted are deleted first, with ``grace_seconds`` for their pods. A cancellation deletes what was created.

    Raises PermanentFailure when the server refuses the manifest (nothing was created) or the name is somebody else's,
    InfrastructureFailure when the server or a webhook is down, an object quota is full, a newer try has taken over or a
    predecessor can't be removed, AccessError when the credential can't be used.
    """
    settler = settle.Settler(
        client=client,
        workload=workload,
        namespace=manifest["metadata"]["namespace"],
        own=identity,
        spec_hash=_spec_hash(manifest),
        known_nonces=known_nonces,
        grace_seconds=grace_seconds,
        report=report,
    )
    return await _Submitter(client, workload, dict(manifest), identity.ti_id, grace_seconds, report).run(settler)


def _spec_hash(manifest: Mapping[str, Any]) -> str:
    return identity.WorkloadIdentity.from_object(manifest).spec_hash


@dataclass(frozen=True)
class _Submitter:
    client: Client
    workload: Workload
    manifest: dict[str, Any]
    ti_id: str
    grace_seconds: int
    report: Callable[[str], None]

    async def run(self, settler: settle.Settler) -> Submission:
        try:
            if adopted := await settler.settle():
                return self._submission(adopted, adopted=True)
            await self._dry_run()
        except (errors.ClusterError, errors.ClusterUnreachable) as error:
            raise failures.of_create(error, self.workload.kind) from error
        submission = await self._create()
        await self._settle_again(settler, submission)
        return submission

    async def _dry_run(self) -> None:
        try:
            created = await self.client.create(self.workload.api, self._namespace, self.manifest, dry_run=True)
        except errors.Conflict:
            return  # the name is taken: the create that follows finds out by whom
        except errors.BadRequest as error:
            if _NO_DRY_RUN not in error.message:
                raise
            self.report("an admission webhook of this cluster does not support dry run: the manifest is checked by its creation")
            return
        for warning in created.warnings:
            self.report(f"API server: {warning}")

    async def _create(self) -> Submission:
        """POST, with a cancellation held back until it is known what the server has made of it."""
        posting = asyncio.create_task(self._post(), name=f"create {self._name}")
        try:
            return await asyncio.shield(posting)
        except asyncio.CancelledError:
            await _to_the_end(self._withdraw(posting))
            raise
        except (errors.ClusterError, errors.ClusterUnreachable) as error:
            raise failures.of_create(error, self.workload.kind) from error

    async def _post(self) -> Submission:
        conflict: errors.Conflict | None = None
        for _ in range(_CREATES):
            try:
                created = await self.client.create(self.workload.api, self._namespace, self.manifest)
            except errors.Conflict as error:
                conflict = error
                obj = await self._existing()
                if obj is not None:
                    return self._own(obj)
            else:
                self.report(f"{self.workload.kind} {self._namespace}/{self._name} created")
                return self._submission(created.object, adopted=False)
        raise failures.of_create(conflict, self.workload.kind) if conflict else AssertionError("no attempt was made")

    async def _existing(self) -> dict[str, Any] | None:
        try:
            return await self.client.get(self.workload.api.path(self._namespace, self._name))
        except errors.NotFound:
            return None

    def _own(self, obj: dict[str, Any]) -> Submission:
        """The object under our name, when it is the one of a create whose answer was lost."""
        ref = ownership.ref_of(self.workload, obj)
        found = identity.WorkloadIdentity.from_object(obj)
        if found.ti_id != self.ti_id:
            raise failures.name_taken(ref, found.owner or found.ti_id)
        if ownership.is_being_deleted(obj):
            raise failures.withdrawn(ref)
        self.report(f"{ref.kind} {ref.namespace}/{ref.name} was created by an earlier request of this try: it goes on with it")
        return self._submission(obj, adopted=True)

    async def _settle_again(self, settler: settle.Settler, submission: Submission) -> None:
        """Another try may have submitted between our first look and our create: whoever is older gives way."""
        try:
            await settler.settle(created=submission.ref)
        except asyncio.CancelledError:
            await _to_the_end(self._delete(submission.ref))
            raise
        except errors.WorkloadError:
            await self._delete(submission.ref)
            raise
        except (errors.ClusterError, errors.ClusterUnreachable) as error:
            self.report(f"the second look for other workloads of this task failed: {error}")

    async def _withdraw(self, posting: asyncio.Task[Submission]) -> None:
        """Delete what a cancelled create has made, or may have made."""
        done, _ = await asyncio.wait([posting], timeout=_ANSWER_SECONDS)
        if done and posting.exception() is None:
            await self._delete(posting.result().ref)
            return
        posting.cancel()
        try:
            obj = await self._existing()
        except errors.MLXPError as error:
            self.report(f"it is not known whether {self.workload.kind} {self._namespace}/{self._name} was created: {error}")
            return
        if obj is not None and identity.WorkloadIdentity.from_object(obj).ti_id == self.ti_id:
            await self._delete(ownership.ref_of(self.workload, obj))

    async def _delete(self, ref: WorkloadRef) -> None:
        try:
            outcome = await delete.fenced_delete(
                self.client, self.workload, ref, owner=self.ti_id, by=self.ti_id, grace_seconds=self.grace_seconds
            )
        except errors.MLXPError as error:
            self.report(f"{ref.kind} {ref.namespace}/{ref.name} could not be deleted: {error}")
        else:
            self.report(f"{ref.kind} {ref.namespace}/{ref.name}: {outcome}")

    def _submission(self, obj: dict[str, Any], *, adopted: bool) -> Submission:
        return Submission(ref=ownership.ref_of(self.workload, obj), object=obj, adopted=adopted)

    @property
    def _namespace(self) -> str:
        return str(self.manifest["metadata"]["namespace"])

    @property
    def _name(self) -> str:
        return str(self.manifest["metadata"]["name"])


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish a piece of cleaning up although we are cancelled, and cancelled again."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                return
