"""Write commits to a directory, and die by SIGKILL at the n-th point that is passed.

    python commit_writer.py DIR ROUND FIRST LAST DIE_AT

Every complete commit is told on stdout. With DIE_AT 0 it does not die, and tells how many points there were.
"""

from __future__ import annotations

import os
import signal
import sys

from snapshot_maker import sealed

from planaria.archive import shelf as shelves
from planaria.archive.plan import Written
from planaria.archive.shelf import Shelf

CHUNK_BYTES = 4099  # so that files are cut at odd places
WORLD_SIZE = 2


def main() -> None:
    directory, (round_, first, last, die_at) = sys.argv[1], (int(word) for word in sys.argv[2:])
    shelves.CHUNK_BYTES = CHUNK_BYTES
    passed = 0

    def at(_point: str) -> None:
        nonlocal passed
        passed += 1
        if passed == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    shelf = Shelf(directory, keep=1, at=at)
    for generation in range(first, last + 1):
        for rank in range(WORLD_SIZE):
            outcome = shelf.write(*sealed(generation, rank, WORLD_SIZE, round_=round_))
            assert isinstance(outcome, Written), outcome
        assert outcome.complete
        print(generation, flush=True)
    print(f"points {passed}", flush=True)


if __name__ == "__main__":
    main()
