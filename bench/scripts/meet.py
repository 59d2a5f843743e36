"""Let N agents meet: `meet.py N`, or `meet.py N HOST:PORT PID` with the etcd that is there and has that process.

One process is the leader's, the other all the others', with the drivers that are shipped.

Every agent has a listener and connections of its own; hands start nothing. Prints one JSON object: how long from the others'
first step until the last agent was told to start its workers, what the leader's process and the others spent, and what went
over the sockets. The others are told that the endpoint is another host's, as it would be for them. With etcd every agent has
the shipped client, with threads and connections of its own, and the leader leads before the others begin.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
from typing import NamedTuple

from planaria.agent.settings import Meeting
from planaria.base.loop import Loop
from planaria.rendezvous.addresses import OUTWARD, Routes
from planaria.rendezvous.model import Settings, WorkersStopped
from planaria.rendezvous.opening import open_driver
from planaria.store.api import Where
from planaria.store.backends import open_store

PATIENCE_S = 20.0  # several times what the slowest of the goals allows
_CPU_OF_PROCESS = 2  # CPUCLOCK_SCHED of the kernel: nanoseconds, where /proc/PID/stat has ticks of 10 ms
_SENT_AND_RECEIVED = 120  # where `struct tcp_info` has tcpi_bytes_acked and tcpi_bytes_received


class Etcd(NamedTuple):
    """The etcd of a run, a process of this machine."""

    endpoint: str
    pid: int

    def cpu_s(self) -> float:
        return time.clock_gettime((~self.pid << 3) | _CPU_OF_PROCESS)

    def bytes_with(self) -> int:
        """Return what went over the connections of this process to etcd, those that are open; the kernel counts."""
        host, _, port = self.endpoint.rpartition(":")
        total = 0
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):  # not connected, or closed meanwhile
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    continue
                with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as one:
                    if one.getpeername() == (host, int(port)):
                        told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                        total += sum(struct.unpack_from("QQ", told, _SENT_AND_RECEIVED))
        return total


class Elsewhere:
    """A network to which no address belongs."""

    def source_towards(self, _address: str) -> None:
        return None

    def interfaces(self) -> tuple[str, ...]:
        return ()


class Hands:
    """Counts starts."""

    started = 0
    last_at = 0.0
    driver: object

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def start(self, _place: object) -> None:
        Hands.started += 1
        Hands.last_at = time.monotonic()

    def stop(self, _round: int, _reason: str, _grace_s: float) -> None:
        self.driver.post(WorkersStopped(20000))

    def kill(self, _reason: str) -> None:
        self.driver.post(WorkersStopped(20000))

    def fence(self, _deadline: float | None) -> None:
        pass

    def end(self, ended: object) -> None:
        raise SystemExit(f"the run ended: {ended}")

    def say(self, _text: str, _passing: bool) -> None:
        pass


def main() -> int:
    """Fork, let them meet, and print what it took."""
    count, etcd = int(sys.argv[1]), Etcd(sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 2 else None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address = next(filter(None, map(Routes().source_towards, OUTWARD)), "127.0.0.1")
    told, tell = os.pipe()
    ready, get_ready = os.pipe()
    leader = os.fork()
    if leader == 0:
        os.close(told)
        os.close(get_ready)
        _lead(_meeting(address, "0", count, etcd), tell, ready)
        os._exit(0)
    os.close(tell)
    try:
        with os.fdopen(told, "r") as lines:
            port = lines.readline().strip()
            if not port:
                raise SystemExit("the leader has ended before it led")
            began, found = _members(_meeting(address, port, count, etcd), etcd, get_ready)
            leader_last_at, leader_cpu_s = json.loads(lines.readline())
    finally:
        os.kill(leader, signal.SIGKILL)  # it has said all it had to say, or never will
        os.waitpid(leader, 0)
    found |= {"seconds": max(Hands.last_at, leader_last_at) - began, "leader_cpu_s": leader_cpu_s}
    print(json.dumps(found))
    return 0


def _lead(meeting: Meeting, tell: int, ready: int) -> None:
    loop = Loop()
    spent = time.process_time()
    hands = _agent(loop, meeting, 0, Routes())
    hands.driver.begin()
    if meeting.backend == "etcd":  # else one of the others may be the first there
        _turn(loop, lambda: hands.driver.snapshot().is_leading)
        spent = time.process_time()  # to import etcd's client costs more than to meet
    os.write(tell, f"{hands.driver.settings.address.rpartition(':')[2]}\n".encode())
    left: list[bool] = []
    loop.on_readable(ready, lambda: (loop.forget(ready), left.append(True)))
    _turn(loop, lambda: Hands.started == 1 and left)
    spent = time.process_time() - spent
    os.write(tell, (json.dumps([Hands.last_at, spent]) + "\n").encode())


def _members(meeting: Meeting, etcd: Etcd | None, get_ready: int) -> tuple[float, dict[str, float]]:
    loop = Loop()
    count = meeting.max_nodes - 1
    agents = [_agent(loop, meeting, number, Elsewhere()) for number in range(1, count + 1)]
    etcd_spent = etcd.cpu_s() if etcd is not None else 0.0
    began, spent = time.monotonic(), time.process_time()
    for agent in agents:
        agent.driver.begin()
    _turn(loop, lambda: Hands.started == count)
    spent = time.process_time() - spent
    of_etcd = {}
    if etcd is not None:
        of_etcd = {"etcd_cpu_s": etcd.cpu_s() - etcd_spent, "etcd_bytes": etcd.bytes_with() / count}
    traffic = [agent.driver.snapshot().traffic for agent in agents]
    os.close(get_ready)
    return began, {
        "member_cpu_ms": spent * 1e3 / count,
        "bytes": sum(one.bytes_in + one.bytes_out for one in traffic) / count,
        "messages": max(one.messages_in for one in traffic),
        **of_etcd,
    }


def _agent(loop: Loop, meeting: Meeting, number: int, network: object) -> Hands:
    hands = Hands(loop)
    draft = Settings("", "", "", 1, run_id=meeting.run_id, min_nodes=meeting.min_nodes, max_nodes=meeting.max_nodes)
    random = number.to_bytes(4, "big")
    store = (lambda: open_store("etcd", loop, Where(meeting.endpoints))) if meeting.backend == "etcd" else None
    hands.driver = open_driver(loop, meeting, hands, draft, hostname="n", random=random, store=store, network=network)
    return hands


def _meeting(address: str, port: str, count: int, etcd: Etcd | None) -> Meeting:
    if etcd is not None:
        return Meeting("etcd", (etcd.endpoint,), "bench", count, count, local_addr=address)
    return Meeting("embedded", (f"{address}:{port}",), "bench", count, count, local_addr=address)


def _turn(loop: Loop, until: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit(f"{Hands.started} agents have started after {PATIENCE_S:g} s")
        loop.run_once(1.0)


if __name__ == "__main__":
    sys.exit(main())
