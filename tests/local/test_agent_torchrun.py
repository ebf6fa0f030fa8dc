"""A real data-parallel training with torchrun, where the system's Python has PyTorch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from airflow_mlxp.local.client import PYTORCHJOBS
from airflow_mlxp.local.images import Image, ImageTable
from tests.support.platform import a_pytorchjob, has, log_of, running_platform, until

SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(2, 1))
loss = model(torch.full((4, 2), float(dist.get_rank() + 1))).sum()
loss.backward()
print("rank", dist.get_rank(), "of", dist.get_world_size(), "gradient", model.module.weight.grad[0, 0].item(), flush=True)
dist.destroy_process_group()
"""


def has_torch():
    python = "/usr/bin/python3"
    if not Path(python).exists() or shutil.which("torchrun", path="/usr/bin") is None:
        return False
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_torch(), reason="needs torchrun of the system's Python (Debian: python3-torch)")
async def test_two_workers_average_their_gradients(tmp_path):
    # Debian's torchrun 1.13 fails on Python 3.11 without these two.
    torch = Image(
        name="registry.example/torch:*", path=(Path("/usr/bin"),), env={"PET_REDIRECTS": "1", "PET_TEE": "1"}, clean_env=True
    )
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    async with running_platform(tmp_path / "platform", images=ImageTable([torch])) as platform:
        job = a_pytorchjob(
            "train",
            elasticPolicy={"rdzvId": "r", "rdzvBackend": "c10d", "minReplicas": 2, "maxReplicas": 2},
            nprocPerNode="1",
            container={"image": "registry.example/torch:1", "command": ["torchrun", str(script)]},
        )
        await platform.client.create(PYTORCHJOBS, platform.namespace, job)
        await until(platform, PYTORCHJOBS, "train", has("Succeeded"), seconds=120)
        logs = [await log_of(platform, f"train-worker-{index}", follow="true") for index in (0, 1)]
    assert sorted(
        line.split("gradient")[0].split("]:")[-1] for log in logs for line in log.splitlines() if "gradient" in line
    ) == [
        "rank 0 of 2 ",
        "rank 1 of 2 ",
    ]
    assert all("gradient 6.0" in log for log in logs)
