"""What workers of a measurement write beside their launcher: lines in a file that all of them share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.children import LIMIT_S
from harness.model import MeasurementError
from harness.processes import children_of_all

if TYPE_CHECKING:
    from harness.children import Child


def wait_for(child: Child, side: str, word: bytes, workers: int) -> None:
    """Wait until every worker has written a word.

    Raises:
        MeasurementError: They have not in time, or the launcher has ended.
    """
    deadline = time.monotonic() + LIMIT_S
    while (found := read(side).count(word)) < workers:
        if time.monotonic() > deadline or child.exit_status() is not None:
            raise MeasurementError(f"{found} of {workers} workers: {word!r}{child.last_words()}")
        time.sleep(0.02)


def agent_of(child: Child, workers: int) -> int:
    """Return the process that has the workers as its children."""
    below = children_of_all()
    found = [pid for pid in below.get(child.pid, ()) if len(below.get(pid, ())) >= workers]
    if not found:
        raise MeasurementError("no agent with that many workers")
    return found[0]


def read(path: str) -> bytes:
    """Return what is in a file."""
    with open(path, "rb") as file:
        return file.read()
