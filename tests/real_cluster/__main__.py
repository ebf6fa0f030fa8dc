"""``python -m tests.real_cluster``: a control plane to look at with kubectl, until ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.real_cluster import build
from tests.real_cluster.cluster import ClusterSettings, RealCluster


async def main() -> None:
    """Start it, say where it is, and stop it when a signal comes, be it during the start."""
    ourselves = asyncio.current_task()
    assert ourselves is not None, "this runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ourselves.cancel)
    with tempfile.TemporaryDirectory(prefix="airflow-mlxp-real-") as name:
        started = time.monotonic()
        async with RealCluster(ClusterSettings(folder=Path(name, "cluster"), volumes=("demo-data",))) as cluster:
            _say(f"ready after {time.monotonic() - started:.1f} s; stop with ctrl-C")
            _say(f"export KUBECONFIG={cluster.settings.folder / 'admin.kubeconfig'}")
            await asyncio.Event().wait()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for whoever started it


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    build.build_all()
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main())
