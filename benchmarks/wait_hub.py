"""Thousands of waits in one process: requests, memory, and the delay from a change to its observer.

    python benchmarks/wait_hub.py --waits 5000

Server and observers share one process and one event loop here, so the delays are upper bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))

from airflow_mlxp import workloads
from airflow_mlxp.cluster import hub
from airflow_mlxp.models import Phase, WorkloadRef
from tests.support.watch_server import DONE, NAMESPACE, RUNNING, Cluster, a_job, a_pod, watch_server

JOB = workloads.get("Job")


async def measure(waits: int) -> None:
    cluster = Cluster()
    for number in range(waits):
        cluster.put("jobs", a_job(number, **RUNNING))
        cluster.put("pods", a_pod(number))
    delays: list[float] = []
    changed_at: dict[int, float] = {}
    ready = 0

    async def wait(number: int) -> None:
        nonlocal ready
        ref = WorkloadRef(kind="Job", namespace=NAMESPACE, name=f"job-{number}", uid=f"uid-{number}")
        async with hub.observe(client, JOB, ref) as seen:
            ready += 1
            while JOB.phase_of(seen.workload) is not Phase.SUCCEEDED:
                await seen.changed()
            delays.append(time.monotonic() - changed_at[number])

    memory = psutil.Process().memory_info().rss
    begun = time.monotonic()
    async with watch_server(cluster) as client, asyncio.TaskGroup() as group:
        for number in range(waits):
            group.create_task(wait(number))
        while ready < waits or cluster.streams < 2:  # noqa: ASYNC110  # a benchmark may look
            await asyncio.sleep(0.01)
        print(f"{waits} waits ready after {time.monotonic() - begun:.2f} s")
        print(
            f"memory: {(psutil.Process().memory_info().rss - memory) / waits / 1024:.1f} kB for each wait, its objects included"
        )
        cluster.history.clear()
        for number in range(waits):
            changed_at[number] = time.monotonic()
            cluster.put("jobs", a_job(number, **DONE))
            if number % 10 == 0:
                await asyncio.sleep(0.005)
                cluster.history[:-10] = []
    print(f"requests: {cluster.counts.total()} ({', '.join(f'{verb} {what} {n}' for (verb, what), n in cluster.counts.items())})")
    cuts = statistics.quantiles(delays, n=100)
    print(f"delay from change to observer: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waits", type=int, default=5000)
    asyncio.run(measure(parser.parse_args().waits))
