"""Commit a state into two inherited memory files until killed: python committer.py FD FD SIZE DIE_AT.

It goes on from what it finds there, and tells each commit that is sealed. With DIE_AT it dies by SIGKILL at the n-th call of a
function that changes the snapshot, in the midst of copying, digesting or sealing; with 0 whoever started it ends it.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from planaria.contract import snapshot as snapshots
from planaria.worker import arrays
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

COMMITS = 4
PIECES = 3


def deadly(function: Callable[..., Any], die_at: int, passed: list[int]) -> Callable[..., Any]:
    """Return the function with a death before it and one after it."""

    def point() -> None:
        passed[0] += 1
        if passed[0] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(*args: Any) -> Any:
        point()
        found = function(*args)
        point()
        return found

    return wrapped


def main() -> None:
    first, second, size, die_at = (int(word) for word in sys.argv[1:])
    passed = [0]
    for module, name in (
        (arrays, "_copy_numpy"),
        (snapshots, "_digest"),
        (snapshots, "unseal"),
        (snapshots, "seal"),
        (snapshots, "_header"),
    ):
        setattr(module, name, deadly(getattr(module, name), die_at, passed))
    slots = [memoryview(mmap.mmap(fd, 0)) for fd in (first, second)]
    pieces = {f"piece{number}": np.zeros(size, np.uint8) for number in range(PIECES)}
    state = ElasticState(vault=LocalVault(slots=slots), step=0, **pieces)
    restored = state.restore()
    print("restored", restored.generation if restored else 0, flush=True)
    passed[0] = 0
    count = 0
    while die_at or count < 10**9:
        state.step += 1
        count += 1
        for number in range(PIECES):
            getattr(state, f"piece{number}")[:] = (state.step + number) % 251
        state.commit(wait="node")
        print(state.step, flush=True)
        if die_at and count == COMMITS:
            print("points", passed[0], flush=True)
            return


if __name__ == "__main__":
    main()
