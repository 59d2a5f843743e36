"""Processes that die by SIGKILL at a chosen point of our own code, when a test orders it.

    python mortal.py PLACE run ...       the launcher, whose agent watches PLACE
    mortal.watch(PLACE, PARTS)           the same for a worker, from its own program

A point is a call of a function of the watched modules, or its return: `agent/errands.py Push._next call`. Points that were
passed are added to the file PLACE.points, so that a test knows what there is. An order is the file PLACE.order: the first byte
says whether there is one, then come the point and how often it may be passed before it is deadly.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import planaria

if TYPE_CHECKING:
    from types import FrameType

AGENT_PARTS = (
    *(f"agent/{name}.py" for name in ("keeper", "beginners", "chores", "slots", "stock", "disk")),
    *(f"agent/{name}.py" for name in ("council", "delegate", "errands", "guests", "hall")),
    *(f"agent/{name}.py" for name in ("seals", "tally", "holdings", "disk_wait", "last_writing")),
    *(f"agent/{name}.py" for name in ("dock", "berth", "cargo", "line")),
    *(f"base/{name}.py" for name in ("stream", "filling")),
    *(f"archive/{name}.py" for name in ("shelf", "writer", "plan")),
)
WORKER_PARTS = (
    *(
        f"worker/{name}.py"
        for name in ("state", "tenancy", "agent_vault", "capture", "parts", "arrays", "restoration", "claims")
    ),
    "contract/snapshot.py",
)
DEVICE_PARTS = (
    *WORKER_PARTS,
    *(f"worker/{name}.py" for name in ("flight", "runway", "upload", "readiness", "vault")),
)
COLLECTIVE_PARTS = {
    "sharded": tuple(f"worker/{name}.py" for name in ("sharded", "saving", "storage", "bundle", "exchange")),
    "synced": tuple(f"worker/{name}.py" for name in ("state", "exchange", "restoration", "vault", "synced")),
}
"""By the kind of `collective.py`."""
ORDER_BYTES = 4096


def give(place: str, point: str, passes: int) -> None:
    """Order a death. The process may not have begun yet."""
    text = f"{passes} {point}\0".encode()
    assert len(text) < ORDER_BYTES
    draft = f"{place}.draft"
    with open(draft, "wb") as file:
        file.write(b"\0" + text.ljust(ORDER_BYTES - 1, b"\0"))
    if not os.path.exists(f"{place}.order"):
        os.rename(draft, f"{place}.order")
    with open(f"{place}.order", "r+b") as file:
        file.seek(1)
        file.write(text)
        file.flush()
        file.seek(0)
        file.write(b"\1")  # last: whoever sees it reads a whole order


def take_back(place: str) -> None:
    """Let whoever comes next live."""
    with open(f"{place}.order", "r+b") as file:
        file.write(b"\0")


def points(place: str) -> list[str]:
    """Return the points that a process has passed."""
    try:
        with open(f"{place}.points") as file:
            return [*dict.fromkeys(line[:-1] for line in file if line.endswith("\n"))]
    except FileNotFoundError:
        return []


class _Watch:
    """Looks at every call in this process."""

    def __init__(self, place: str, parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._known: dict[object, str] = {}  # a code object's point, empty for those that do not matter
        self._passed: set[str] = set()
        self._fd = os.open(f"{place}.points", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        descriptor = os.open(f"{place}.order", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(descriptor).st_size < ORDER_BYTES:
            os.ftruncate(descriptor, ORDER_BYTES)
        self._order = mmap.mmap(descriptor, ORDER_BYTES)
        os.close(descriptor)
        self._left: dict[str, int] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        name = self._known.get(code)
        if name is None:
            name = self._known[code] = self._name(code.co_filename, code.co_qualname)
        if name:
            self._pass(f"{name} {event}")

    def _name(self, path: str, function: str) -> str:
        _, found, part = path.rpartition("/planaria/")
        return f"{part} {function}" if found and part in self._parts and function != "<module>" else ""

    def _pass(self, point: str) -> None:
        if point not in self._passed:
            self._passed.add(point)
            os.write(self._fd, f"{point}\n".encode())
        if self._order[0]:
            passes, _, wanted = self._order[1:].split(b"\0", 1)[0].decode().partition(" ")
            if wanted == point:
                self._left[point] = self._left.get(point, int(passes)) - 1
                if self._left[point] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)


def watch(place: str, parts: tuple[str, ...]) -> None:
    """Be mortal from now on, in all threads that begin later, too."""
    room = os.path.dirname(planaria.__file__)
    gone = [part for part in parts if not os.path.exists(os.path.join(room, part))]
    assert not gone, f"no such module: {gone}; nobody would die there"
    found = _Watch(place, parts)
    threading.setprofile(found)
    sys.setprofile(found)


def main() -> None:
    place = sys.argv.pop(1)
    from planaria.__main__ import main as launch

    watch(place, AGENT_PARTS)
    launch()


if __name__ == "__main__":
    main()
