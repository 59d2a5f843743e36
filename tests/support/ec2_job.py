"""A job for instances of tests: counts steps with all ranks and commits each, until a file tells it to end, or to fail.

    planaria run ... ec2_job.py WORDS...

Rank 0 writes a line into steps.jsonl for each step, in the folder that the hosts made for the job: number, world size, and
the words as they have arrived.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from planaria import worker
from planaria.worker import ElasticState

FOLDER, WORDS = os.environ["PLANARIA_OUTPUT_DIR"], sys.argv[1:]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Ranks:
    """The highest of all ranks' numbers, by way of rank 0."""

    def __init__(self) -> None:
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if RANK:
            self._peers = [self._connected(address)]
        else:
            with socket.create_server(address) as server:
                self._peers = [server.accept()[0] for _ in range(WORLD - 1)]

    @staticmethod
    def _connected(address: tuple[str, int]) -> socket.socket:
        while True:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                time.sleep(0.02)  # rank 0 does not listen yet; nothing tells when it does

    def highest(self, number: int) -> int:
        if RANK:
            self._peers[0].sendall(bytes([number]))
            return self._received(self._peers[0])
        number = max([number, *map(self._received, self._peers)])
        for peer in self._peers:
            peer.sendall(bytes([number]))
        return number

    @staticmethod
    def _received(peer: socket.socket) -> int:
        found = peer.recv(1)
        if not found:
            sys.exit("another rank is gone")
        return found[0]


def main() -> None:
    ranks = Ranks()
    state = ElasticState(step=0)

    def step(state: ElasticState) -> float:
        if ranks.highest(os.path.exists(f"{FOLDER}/enough")):
            raise StopIteration
        if os.path.exists(f"{FOLDER}/fail"):
            sys.exit(3)
        if RANK == 0:
            with open(f"{FOLDER}/steps.jsonl", "a") as file:
                print(json.dumps([state.step, WORLD, WORDS]), file=file)
            print(f"step {state.step} of {WORLD} ranks", flush=True)
        time.sleep(0.1)  # a step takes a while
        return 0.0

    worker.train_loop(state, step, agree=ranks.highest)


if __name__ == "__main__":
    main()
