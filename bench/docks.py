"""How fast a part goes from one agent's memory to another's over loopback, and how long the loop is away meanwhile.

    <venv>/bin/python bench/docks.py [MIB] [ROUNDS]

Two processes, each with a dock, with and without a token; `inside` is an agent that talks to itself. Prints the best and the
median of the rounds in GB/s, the processor's seconds per GiB at both ends, and the longest turn of either loop, as processor
time and as a gap between two looks at the clock that are to be 2 ms apart (what else the machine did is in that one).
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING

from planaria.agent.dock import Dock
from planaria.base.loop import Loop
from planaria.base.net import Listener
from planaria.rendezvous.links import Links
from planaria.rendezvous.security import Security

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_EVERY_S = 0.002


class Watched(Loop):
    """A loop that knows its longest turn."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_s = self.gap_s = 0.0
        self.looked_at = self.now()

    def run_once(self, timeout_s: float | None = None) -> None:
        before = time.thread_time()
        super().run_once(timeout_s)
        self.longest_s = max(self.longest_s, time.thread_time() - before)

    def look(self) -> None:
        now = self.now()
        self.gap_s, self.looked_at = max(self.gap_s, now - self.looked_at), now
        self.call_later(LOOK_EVERY_S, self.look)

    def begin(self) -> None:
        self.longest_s = self.gap_s = 0.0
        self.looked_at = self.now()


class Keep:
    """A host with one part, which is verified as soon as it is there."""

    def __init__(self, part: memoryview) -> None:
        self.part = part

    def attended(self, *_: object) -> None:
        pass

    def offered(self, _round: int, _header: object, size_bytes: int) -> memoryview:
        return self.part[:size_bytes]

    def arrived(self, _round: int, _header: object, tell: Callable[[str], object]) -> None:
        tell("")

    def dropped(self, _round: int, _header: object, why: str) -> None:
        raise RuntimeError(why)

    def wanted(self, _round: int, _header: object) -> tuple[memoryview, Callable[[], None]]:
        return self.part, lambda: None


def memory(size_bytes: int) -> memoryview:
    found = memoryview(mmap.mmap(-1, size_bytes))
    found[::4096] = b"x" * len(found[::4096])  # every page is there before the clock runs
    return found


def agent(token: bytes | None, size_bytes: int) -> tuple[Watched, Dock, str]:
    loop = Watched()
    links = Links(loop, Security(token=token), lambda _: None, print, lambda *_: None)
    listener = Listener(loop, ("127.0.0.1", 0), links.take, token=token)
    address = f"127.0.0.1:{listener.port}"
    dock = Dock(loop, links.security, "run", Keep(memory(size_bytes)), links.complaints, address)
    links.on_guest = dock.guest
    loop.look()
    return loop, dock, address


def serve(token: bytes | None, size_bytes: int, out: int, end: int) -> None:
    """Be the other agent until `end` says something."""
    loop, _dock, address = agent(token, size_bytes)
    loop.on_readable(end, loop.stop)
    os.write(out, address.encode().ljust(64))
    loop.begin()
    used = time.process_time()
    loop.run()
    os.write(out, json.dumps([time.process_time() - used, loop.longest_s, loop.gap_s]).encode())


def measure(token: bytes | None, size_bytes: int, what: str) -> tuple[float, ...]:
    (their_out, out), (end, our_end) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        serve(token, size_bytes, out, end)
        os._exit(0)
    loop, dock, own = agent(token, size_bytes)
    part, address = memory(size_bytes), os.read(their_out, 64).decode().strip()
    done: list[str] = []

    def finish(why: str) -> None:
        done.append(why)
        loop.stop()

    loop.begin()
    began, used = time.perf_counter(), time.process_time()
    if what == "fetch":
        dock.fetch(address, 1, "part", lambda _: part, finish)
    else:
        dock.store(own if what == "inside" else address, 1, "part", part, finish)
    loop.run()
    took, used = time.perf_counter() - began, time.process_time() - used
    os.write(our_end, b"x")
    theirs = json.loads(os.read(their_out, 1000))
    os.waitpid(pid, 0)
    for descriptor in (their_out, out, end, our_end):
        os.close(descriptor)
    if done != [""]:
        raise RuntimeError(done[0])
    return took, used, theirs[0], max(loop.longest_s, theirs[1]), max(loop.gap_s, theirs[2])


def main() -> None:
    mib, rounds = map(int, (sys.argv[1:] + ["1024", "5"][len(sys.argv) - 1 :])[:2])
    size_bytes = mib << 20
    for token in (None, b"secret"):
        for what in ("store", "fetch", "inside"):
            found = [measure(token, size_bytes, what) for _ in range(rounds)]
            speeds = sorted(size_bytes / one[0] / 1e9 for one in found)
            ours, theirs = (statistics.median(one[index] for one in found) / mib * 1024 for index in (1, 2))
            longest, gap = (statistics.median(one[index] for one in found) * 1e3 for index in (3, 4))
            print(
                f"{what:6} {'token' if token else 'bare':5}  {speeds[-1]:.2f} GB/s at best, {speeds[rounds // 2]:.2f} median;"
                f" processor {ours:.2f} + {theirs:.2f} s per GiB; longest turn {longest:.1f} ms, gap {gap:.1f} ms"
            )


if __name__ == "__main__":
    main()
