"""Train a small network with NumPy alone, on any number of workers. Kill whatever you like: it goes on at the same step.

    planaria run --standalone --nproc-per-node=2 --max-restarts=100 examples/numpy/main.py

No torch anywhere: gradients are summed by rank 0 over a socket at MASTER_ADDR and MASTER_PORT, which is all that a process
group does. What ranks want after a step travels the same way, so that all of them stop at the same one. The last line has a
checksum of the weights, the same however often the run was interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from planaria import worker
from planaria.worker import ElasticState
from planaria.worker.data import ElasticSampler

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES, HIDDEN, CLASSES = 32, 64, 10
RATE = 0.05
PATIENCE_S = 60.0


class Ranks:
    """Sums over all ranks, by way of rank 0."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._peers: list[socket.socket] = []
        if world_size == 1:
            return
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank:
            self._peers = [self._connect(address)]
            self._peers[0].sendall(struct.pack("<i", rank))
            return
        with socket.create_server(address, backlog=world_size) as server:
            server.settimeout(PATIENCE_S)
            met = {}
            while len(met) < world_size - 1:
                peer, _ = server.accept()
                peer.settimeout(PATIENCE_S)
                met[struct.unpack("<i", _receive(peer, 4))[0]] = peer
            self._peers = [met[other] for other in sorted(met)]  # always in one order: sums of floats depend on it

    @staticmethod
    def _connect(address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection(address, timeout=PATIENCE_S)
            except ConnectionRefusedError:  # rank 0 is not there yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def sum(self, value: np.ndarray) -> np.ndarray:
        """Return the sum of every rank's value, bit by bit the same on each."""
        if self._rank:
            self._peers[0].sendall(value.tobytes())
            return np.frombuffer(_receive(self._peers[0], value.nbytes)).reshape(value.shape)
        total = value.copy()
        for peer in self._peers:
            total += np.frombuffer(_receive(peer, value.nbytes)).reshape(value.shape)
        for peer in self._peers:
            peer.sendall(total.tobytes())
        return total

    def highest(self, wish: int) -> int:
        """Return the highest of every rank's numbers: how `train_loop` agrees on where to stop."""
        counts = np.zeros(3)
        counts[wish] = 1.0
        return int(np.flatnonzero(self.sum(counts))[-1])


def _receive(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        chunk = peer.recv(size - len(found))
        if not chunk:
            sys.exit("another rank is gone")
        found += chunk
    return found


def generated(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and the class of each: which of ten random directions it lies in."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(samples, FEATURES))
    return points, (points @ rng.normal(size=(FEATURES, CLASSES))).argmax(1)


def gradients(weights: list[np.ndarray], points: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the summed loss of a batch, and its gradients end to end."""
    first, second = weights
    hidden = np.maximum(points @ first, 0.0)
    scores = hidden @ second
    scores -= scores.max(1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(chances[rows, labels]).sum()
    chances[rows, labels] -= 1.0
    back = chances @ second.T * (hidden > 0)
    return float(loss), np.concatenate([(points.T @ back).ravel(), (hidden.T @ chances).ravel()])


def at_least(least: float) -> Callable[[str], float]:
    """Return how to read a number that is not lower, a whole one where `least` is: argparse says in a sentence if it is not."""
    wanted = f"a {'whole ' if isinstance(least, int) else ''}number from {least} on"

    def number(text: str) -> float:
        try:
            found = type(least)(text)
        except ValueError:
            found = -1
        if not least <= found < float("inf"):
            raise argparse.ArgumentTypeError(f"expects {wanted}, got {text!r}")
        return found

    return number


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="a small network, NumPy alone")
    parser.add_argument("--epochs", type=at_least(1), default=4)
    parser.add_argument("--batch-size", type=at_least(1), default=16, help="samples of a rank in a step")
    parser.add_argument("--samples", type=at_least(1), default=2000)
    parser.add_argument("--print-freq", type=at_least(1), default=20)
    parser.add_argument(
        "--step-seconds", type=at_least(0.0), default=0.0, help="make each step take longer, to watch it"
    )
    return parser.parse_args()


def main() -> None:
    """Train; rank 0 tells how it goes."""
    args = arguments()
    points, labels = generated(args.samples)
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(FEATURES, HIDDEN)) / 6, rng.normal(size=(HIDDEN, CLASSES)) / 8]

    worker.join()  # a standby has come to here before it is needed
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    ranks = Ranks(rank, world_size)
    sampler = ElasticSampler(args.samples, args.batch_size, seed=7)
    speeds = [np.zeros_like(one) for one in weights]
    state = ElasticState(weights=weights, speeds=speeds, sampler=sampler, step=0)
    epochs = sampler.epochs(args.epochs)
    batches = (batch for _ in epochs for batch in sampler.count())

    def step(state: ElasticState) -> float:
        batch = next(batches)
        loss, found = gradients(state.weights, points[batch], labels[batch])
        total = ranks.sum(np.append(found, loss)) / sampler.portion.of
        at = 0
        for number, weight in enumerate(state.weights):
            speed = 0.9 * state.speeds[number] + total[at : at + weight.size].reshape(weight.shape)
            state.speeds[number] = speed
            state.weights[number] = weight - RATE * speed
            at += weight.size
        time.sleep(args.step_seconds)
        if rank == 0 and state.step % args.print_freq == 0:
            print(f"epoch: {sampler.epoch}, iteration: {state.step}, loss: {total[-1]:.4f}", flush=True)
        return float(total[-1])

    worker.train_loop(state, step, agree=ranks.highest)
    if rank == 0:
        checksum = hashlib.sha256(b"".join(one.tobytes() for one in state.weights)).hexdigest()[:16]
        guessed = (np.maximum(points @ state.weights[0], 0.0) @ state.weights[1]).argmax(1)
        print(
            f"finished after step {state.step}: {np.mean(guessed == labels):.1%} right, weights {checksum}", flush=True
        )


if __name__ == "__main__":
    main()
