"""Follows a workload as a trigger does and keeps what it was told; what scenarios on any control plane share."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from airflow_mlxp import identity, models, workloads
from airflow_mlxp.cluster import ownership
from airflow_mlxp.cluster.follow import FollowOptions, follow
from airflow_mlxp.models import LogLines, PhaseChanged, Warned
from airflow_mlxp.workloads.base import PODS
from tests.support.objects import a_try

OWNER = a_try().ti_id


class Followed:
    """The events of one ``follow()`` so far."""

    def __init__(self):
        self.events = []

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def outcome(self):
        assert isinstance(self.events[-1], models.Finished)
        return self.events[-1].outcome

    @property
    def phases(self):
        return [event.phase for event in self.of(PhaseChanged)]

    def lines(self, replica=None):
        return [line.text for event in self.of(LogLines) if replica in {None, event.replica} for line in event.lines]

    def warnings(self):
        return [f"{event.reason}: {event.message}" for event in self.of(Warned)]


async def create(client, manifest):
    """Create a workload that try 1 owns, as it is stamped for a task."""
    kind = workloads.get(manifest["kind"])
    stamped = identity.stamp(manifest, a_try(), kind.pod_templates_of, name=manifest["metadata"]["name"])
    obj = (await client.create(kind.api, client.access.namespace, stamped)).object
    return kind, ownership.ref_of(kind, obj)


async def run(client, manifest, *, owner=OWNER, **options):
    kind, ref = await create(client, manifest)
    return await watch(client, kind, ref, owner=owner, **options)


async def watch(client, kind, ref, *, owner=OWNER, until=None, **options):
    followed = Followed()
    async with asyncio.timeout(60), aclosing(follow(client, kind, ref, owner=owner, options=FollowOptions(**options))) as events:
        async for event in events:
            followed.events.append(event)
            if until is not None and until(event):
                break
    return followed


async def current(client, ref):
    return await ownership.read(client, workloads.get(ref.kind), ref)


async def running_pods(client):
    pods = (await client.list(PODS, client.access.namespace)).items
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in {"Succeeded", "Failed"}]


async def no_pod_runs(client):
    async with asyncio.timeout(10):
        while await running_pods(client):  # noqa: ASYNC110 - the event lies behind an API
            await asyncio.sleep(0.05)
