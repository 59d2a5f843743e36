"""A rendezvous in a shared folder, for a fixed number of nodes: small enough to read, honest about what it cannot do.

    <endpoint>/<run id>/round-0/members     one line for each node, in order of arrival: the line number is its rank
    <endpoint>/<run id>/round-0/store/      a file for each key of the round's store
    <endpoint>/<run id>/closed              the run is over

A round is complete when `min_nodes` have come. Who goes on to the next one is seen waiting there by all others. Nobody notices
a node that dies without a word: that takes leases, and a protocol such as planaria's own.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from planaria.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

LOOK_AGAIN_S = 0.02


def get_creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return what makes a handler; the entry point names this function."""
    return FolderRendezvous


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let nobody else change the folder meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class FolderStore:
    """As much of torch's Store as agents use."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / quote(key, safe="")

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key; readers see all of it or nothing."""
        draft = self._folder / f".{os.getpid()}-{time.monotonic_ns()}"
        draft.write_bytes(value.encode() if isinstance(value, str) else value)
        draft.replace(self._path(key))

    def get(self, key: str) -> bytes:
        """Return the value of a key, once somebody has written it."""
        deadline = time.monotonic() + self._timeout_s
        while not self.check([key]):
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody has written {key}")
            time.sleep(LOOK_AGAIN_S)
        return self._path(key).read_bytes()

    def add(self, key: str, amount: int) -> int:
        """Add to a number and return it."""
        with locked(self._folder):
            total = amount + (int(self.get(key)) if self.check([key]) else 0)
            self.set(key, str(total))
            return total

    def check(self, keys: list[str]) -> bool:
        """Tell whether all keys are there."""
        return all(self._path(key).exists() for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of some keys."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        """Write some keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


class FolderRendezvous(RendezvousHandler):
    """Meets in `params.endpoint`, a folder that every node can write to."""

    def __init__(self, params: RendezvousParameters) -> None:
        self._params = params
        self._folder = Path(params.endpoint) / params.run_id
        self._timeout_s = float(params.get("timeout", 60))
        self._round = -1

    def get_backend(self) -> str:
        """Return the name of the entry point."""
        return "folder"

    @property
    def use_agent_store(self) -> bool:
        """Tell that rank 0 makes a store for the workers: they cannot use this one."""
        return False

    def next_rendezvous(self) -> RendezvousInfo:
        """Come to the next round, and wait for the others."""
        deadline = time.monotonic() + self._timeout_s
        if self.is_closed():
            raise RendezvousClosedError(f"the run {self._params.run_id} is over")
        self._round, rank = self._join()
        while len(members := self._members(self._round)) < self._params.min_nodes:
            if time.monotonic() > deadline:
                raise RendezvousTimeoutError(f"only {len(members)} of {self._params.min_nodes} nodes came")
            time.sleep(LOOK_AGAIN_S)
        store = FolderStore(self._folder / f"round-{self._round}" / "store", self._timeout_s)
        place = RendezvousStoreInfo.build(rank, store, self._params.local_addr)
        return RendezvousInfo(store, rank, self._params.min_nodes, place)

    def _join(self) -> tuple[int, int]:
        """Add this node to the first round after its last one that is not full yet."""
        with locked(self._folder):
            number = self._round + 1
            while len(self._members(number)) >= self._params.min_nodes:
                number += 1
            folder = self._folder / f"round-{number}"
            folder.mkdir(exist_ok=True)
            with open(folder / "members", "a") as members:
                members.write(f"{os.uname().nodename} {os.getpid()}\n")
            return number, len(self._members(number)) - 1

    def _members(self, number: int) -> list[str]:
        path = self._folder / f"round-{number}" / "members"
        return path.read_text().splitlines() if path.exists() else []

    def num_nodes_waiting(self) -> int:
        """Return how many have gone on to the round after ours."""
        return len(self._members(self._round + 1))

    def is_closed(self) -> bool:
        """Tell whether somebody said that the run is over."""
        return (self._folder / "closed").exists()

    def set_closed(self) -> None:
        """Say that the run is over."""
        (self._folder / "closed").touch()

    def get_run_id(self) -> str:
        """Return the run's name."""
        return self._params.run_id

    def shutdown(self) -> bool:
        """Say that the run is over; there is nothing to let go of."""
        self.set_closed()
        return True
