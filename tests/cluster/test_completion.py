"""Lines that were too many to be carried live are read at the end, each once; what can't be read is told."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from airflow_mlxp.cluster import access, finish
from airflow_mlxp.cluster.completion import complete
from airflow_mlxp.cluster.follow import FollowOptions, follow
from airflow_mlxp.cluster.rest import Client
from airflow_mlxp.models import Finished, LogLines
from tests.support.following import OWNER, create
from tests.support.platform import a_job, running_platform

pytestmark = pytest.mark.platform
COUNT = 60_000


async def test_lines_left_by_a_slow_reader_are_completed_each_once(tmp_path, monkeypatch):
    monkeypatch.setattr(finish, "_LOG_GRACE", 0.2)
    async with (
        running_platform(tmp_path / "platform") as platform,
        Client(access.from_kubeconfig(path=str(platform.kubeconfig))) as client,
    ):
        kind, ref = await create(client, a_job("chatty", f"seq {COUNT}"))
        lines, outcome = [], None
        async with aclosing(follow(client, kind, ref, owner=OWNER, options=FollowOptions())) as events:
            async for event in events:
                if isinstance(event, LogLines):
                    lines += [line.text for line in event.lines]
                    await asyncio.sleep(0.05)  # a triggerer whose channel is full
                elif isinstance(event, Finished):
                    outcome = event.outcome
        assert outcome.succeeded
        (gap,) = outcome.log_gaps
        assert gap.is_open
        assert len(lines) < COUNT

        def write(batch):
            lines.extend(line.text for line in batch.lines)

        assert await complete(client, ref.namespace, gap, seconds=30, write=write) == ()
        assert lines == [str(number) for number in range(1, COUNT + 1)]

        (missing,) = await complete(client, ref.namespace, replace(gap, pod_uid="another"), seconds=30, write=write)
        assert not missing.is_open
        assert "deleted" in missing.reason
