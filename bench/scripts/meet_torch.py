"""Let N of torch's rendezvous handlers meet: `meet_torch.py N SECONDS`. One process has the store, four have N threads.

Prints one JSON object as `meet.py` does, with `met`, how many had met when the last had, or when the seconds were over, and
`connected`, how many had a connection to the store half a minute after the fork: if not all, the others do not try.
In torch's favour: connections to the store are made before the clock starts, and of the bytes only keys and values of the
shared state count.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES = 4
HOST = "127.0.0.1"
RUN_ID = "bench"
CONNECT_S = 30.0
READY = b"ready"


class CountingStore:
    """The part of a store that the handler's backend uses, with a count of what goes over it."""

    def __init__(self, store: TCPStore) -> None:
        self._store = store
        self.total_bytes = 0
        self.answers = 0

    def get(self, key: str) -> bytes:
        value: bytes = self._store.get(key)
        self._count(len(key) + len(value))
        return value

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        value: bytes = self._store.compare_set(key, expected, desired)
        self._count(len(key) + len(expected) + len(desired) + len(value))
        return value

    def _count(self, size_bytes: int) -> None:
        self.total_bytes += size_bytes
        self.answers += 1


def main() -> int:
    """Fork, let them meet, end all of them, and print what it took."""
    count, limit_s = int(sys.argv[1]), float(sys.argv[2])
    told, tell = os.pipe()
    pids = [_fork(lambda: _serve(tell))]
    wait, go = os.pipe()
    try:
        port = int(_lines(told, 1, CONNECT_S)[0])
        pids.extend(_fork(lambda: _meet(port, count, tell, (wait, go))) for _ in range(PROCESSES))
        ready = _lines(told, count, CONNECT_S)
        began = time.monotonic()
        os.close(go)
        met = [list(map(float, line.split())) for line in _lines(told, count, limit_s if len(ready) == count else 0)]
    finally:
        store_cpu_s, *members_cpu_s = [_end(pid) for pid in pids]
    found = _sum(met, began, count, store_cpu_s, sum(members_cpu_s))
    print(json.dumps(found | {"connected": len(ready)}))
    return 0


def _serve(tell: int) -> None:
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    os.write(tell, f"{store.port}\n".encode())
    signal.pause()


def _meet(port: int, count: int, tell: int, gate: tuple[int, int]) -> None:
    wait, go = gate
    os.close(go)
    is_open = threading.Event()
    for _ in range(count // PROCESSES):
        threading.Thread(target=_agent, args=(port, count, tell, is_open), daemon=True).start()
    os.read(wait, 1)  # until the parent closes the other end
    is_open.set()
    signal.pause()


def _agent(port: int, count: int, tell: int, is_open: threading.Event) -> None:
    store = TCPStore(HOST, port, is_master=False)
    counting = CountingStore(store)
    backend = C10dRendezvousBackend(counting, RUN_ID)
    handler = DynamicRendezvousHandler.from_backend(RUN_ID, store, backend, count, count, local_addr=HOST)
    os.write(tell, READY + b"\n")
    is_open.wait()
    handler.next_rendezvous()
    os.write(tell, f"{time.monotonic()} {counting.total_bytes} {counting.answers}\n".encode())


def _fork(run: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(1)
    return pid


def _lines(source: int, count: int, limit_s: float) -> list[bytes]:
    """Return `count` lines, or those that came in time."""
    deadline, data = time.monotonic() + limit_s, b""
    while data.count(b"\n") < count and (left_s := deadline - time.monotonic()) > 0:
        if select.select([source], [], [], left_s)[0]:
            data += os.read(source, 65536)
    return data.splitlines()


def _end(pid: int) -> float:
    """Kill a child and return the CPU seconds that it has used."""
    os.kill(pid, signal.SIGKILL)
    used = os.wait4(pid, 0)[2]
    return used.ru_utime + used.ru_stime


def _sum(met: list[list[float]], began: float, count: int, store_cpu_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "met": len(met),
        "seconds": max((one[0] for one in met), default=began) - began,
        "leader_cpu_s": store_cpu_s,
        "member_cpu_ms": cpu_s * 1e3 / count,
        "bytes": sum(one[1] for one in met) / max(len(met), 1),
        "messages": max((one[2] for one in met), default=0.0),
    }


if __name__ == "__main__":
    sys.exit(main())
