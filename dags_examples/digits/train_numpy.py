"""Train the digits network data-parallel with NumPy: the workers average their gradients over TCP.

The workers meet at ``PET_RDZV_ENDPOINT``, as torchrun's do: the one that can listen there is rank 0, the others connect to it.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from results import report

Weights = dict[str, np.ndarray]
TIMEOUT = 120.0
"""Seconds until a worker gives up on the others."""


class Group:
    """The workers of one training. Rank 0 adds up what all send and sends the sum back."""

    def __init__(self, rank: int, world: int, peers: list[socket.socket]) -> None:
        self.rank, self.world, self._peers = rank, world, peers

    def average(self, vector: np.ndarray) -> np.ndarray:
        """Mean of the workers' vectors, the same on each of them."""
        vector = vector.astype(np.float64)
        if self.rank == 0:
            total = vector + sum((_receive(peer) for peer in self._peers), np.zeros_like(vector))
            mean = total / self.world
            for peer in self._peers:
                _send(peer, mean)
            return mean
        for peer in self._peers:
            _send(peer, vector)
            return _receive(peer)
        return vector


def _send(peer: socket.socket, vector: np.ndarray) -> None:
    payload = vector.tobytes()
    peer.sendall(struct.pack("!q", len(payload)) + payload)


def _receive(peer: socket.socket) -> np.ndarray:
    (length,) = struct.unpack("!q", _read(peer, 8))
    return np.frombuffer(_read(peer, length), dtype=np.float64).copy()


def _read(peer: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = peer.recv(length - len(parts))
        if not part:
            raise ConnectionError("another worker has gone")
        parts += part
    return bytes(parts)


@contextmanager
def join(endpoint: str, world: int) -> Iterator[Group]:
    """Meet the other workers; rank 0 is the one that can listen at ``endpoint``."""
    host, _, port = endpoint.rpartition(":")
    address = (host, int(port))
    peers: list[socket.socket] = []
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(address)
                listener.listen(world)
            except OSError:
                rank = _connect(address, peers)
            else:
                rank = 0
                listener.settimeout(TIMEOUT)
                for number in range(1, world):
                    peer, _ = listener.accept()
                    peers.append(peer)
                    peer.settimeout(TIMEOUT)
                    peer.sendall(struct.pack("!q", number))
        yield Group(rank, world, peers)
    finally:
        for peer in peers:
            peer.close()


def _connect(address: tuple[str, int], peers: list[socket.socket]) -> int:
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            peer = socket.create_connection(address, timeout=TIMEOUT)
            break
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    peers.append(peer)
    (rank,) = struct.unpack("!q", _read(peer, 8))
    return int(rank)


def new_weights() -> Weights:
    random = np.random.default_rng(0)
    return {
        "w1": random.normal(0, np.sqrt(2 / 64), (64, 64)),
        "b1": np.zeros(64),
        "w2": random.normal(0, np.sqrt(2 / 64), (64, 10)),
        "b2": np.zeros(10),
    }


def gradients(weights: Weights, x: np.ndarray, y: np.ndarray) -> tuple[Weights, float, int]:
    """Gradients of the cross entropy, its sum, and how many images were right."""
    before = x @ weights["w1"] + weights["b1"]
    hidden = np.maximum(before, 0)
    scores = hidden @ weights["w2"] + weights["b2"]
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = float(-np.log(chances[rows, y] + 1e-12).sum())
    right = int((chances.argmax(axis=1) == y).sum())
    chances[rows, y] -= 1
    chances /= len(y)
    back = (chances @ weights["w2"].T) * (before > 0)
    return {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ chances, "b2": chances.sum(0)}, loss, right


def train(group: Group, x: np.ndarray, y: np.ndarray, *, epochs: int, batch: int) -> Weights:
    """Stochastic gradient descent with momentum; each worker sees its own share of each batch."""
    weights = new_weights()
    speed = {name: np.zeros_like(value) for name, value in weights.items()}
    share = batch // group.world
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(y))
        steps = len(y) // batch
        total, right = 0.0, 0
        for step in range(steps):
            begin = step * batch + group.rank * share
            mine = order[begin : begin + share]
            own, loss, good = gradients(weights, x[mine], y[mine])
            mean = group.average(np.concatenate([own[name].ravel() for name in weights]))
            position = 0
            for name, value in weights.items():
                part = mean[position : position + value.size].reshape(value.shape)
                position += value.size
                speed[name] = 0.9 * speed[name] - 0.1 * part
                weights[name] = value + speed[name]
            total, right = total + loss, right + good
        seen = steps * share
        print(f"epoch {epoch + 1}/{epochs} loss {total / seen:.4f} accuracy {right / seen:.4f} on {seen} images", flush=True)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    world = int(os.environ["PET_NNODES"].split(":")[0])
    with np.load(args.data) as data:
        x, y = data["x"].astype(np.float64), data["y"]
    with join(os.environ["PET_RDZV_ENDPOINT"], world) as group:
        print(f"rank {group.rank} of {group.world}, NumPy {np.__version__}", flush=True)
        weights = train(group, x, y, epochs=args.epochs, batch=args.batch)
        if group.rank == 0:
            args.output.mkdir(parents=True, exist_ok=True)
            np.savez(args.output / "weights.npz", **weights)
            report(epochs=args.epochs, world_size=group.world, backend="tcp", framework=f"numpy {np.__version__}")
        group.average(np.zeros(1))  # nobody leaves before the weights are written


if __name__ == "__main__":
    main()
