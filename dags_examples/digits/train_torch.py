"""Train the digits network data-parallel with torchrun, DistributedDataParallel and gloo."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from results import report
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore model and optimizer; the epoch to go on with, 0 without a checkpoint."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["epoch"])


def save_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    temporary = path.with_suffix(".tmp")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, temporary)
    temporary.replace(path)


def save_weights(path: Path, model: nn.Module) -> None:
    """Weights as plain arrays, so that evaluation needs no PyTorch."""
    first, second = model[0], model[2]
    arrays = {"w1": first.weight.T, "b1": first.bias, "w2": second.weight.T, "b2": second.bias}
    np.savez(path, **{name: array.detach().numpy() for name, array in arrays.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    print(f"rank {rank} of {world}, host rank {os.environ.get('GROUP_RANK')}, PyTorch {torch.__version__}", flush=True)

    with np.load(args.data) as data:
        images = TensorDataset(torch.from_numpy(data["x"]), torch.from_numpy(data["y"]))
    sampler: DistributedSampler = DistributedSampler(images, shuffle=True, seed=0)
    loader = DataLoader(images, batch_size=args.batch // world, sampler=sampler)

    inner = network()
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
    args.output.mkdir(parents=True, exist_ok=True)
    checkpoint = args.output / "checkpoint.pt"
    start = load_checkpoint(checkpoint, inner, optimizer)
    if start:
        print(f"rank {rank} goes on from the checkpoint of epoch {start}", flush=True)
    model = DistributedDataParallel(inner)

    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        total, right, seen = 0.0, 0, 0
        for x, y in loader:
            optimizer.zero_grad()
            scores = model(x)
            loss = nn.functional.cross_entropy(scores, y)
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x)
            right += int((scores.argmax(1) == y).sum())
            seen += len(x)
        print(f"epoch {epoch + 1}/{args.epochs} loss {total / seen:.4f} accuracy {right / seen:.4f} on {seen} images", flush=True)
        if rank == 0 and (epoch + 1) % 5 == 0:
            save_checkpoint(checkpoint, inner, optimizer, epoch + 1)

    if rank == 0:
        save_weights(args.output / "weights.npz", inner)
        report(epochs=args.epochs, world_size=world, backend="gloo", framework=f"torch {torch.__version__}")
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
