"""Let N agents meet: `meet.py N`. One process is the leader's, the other all the others', with the drivers that are shipped.

Every agent has a listener and connections of its own; hands start nothing. Prints one JSON object: how long from the others'
first step until the last agent was told to start its workers, what the leader's process and the others spent, and what went
over the sockets. The others are told that the endpoint is another host's, as it would be for them.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time

from planaria.agent.model import Meeting
from planaria.base.loop import Loop
from planaria.rendezvous.addresses import OUTWARD, Routes
from planaria.rendezvous.model import Settings, WorkersStopped
from planaria.rendezvous.opening import open_driver

PATIENCE_S = 20.0  # several times what the slowest of the goals allows


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
    count = int(sys.argv[1])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address = next(filter(None, map(Routes().source_towards, OUTWARD)), "127.0.0.1")
    told, tell = os.pipe()
    ready, get_ready = os.pipe()
    leader = os.fork()
    if leader == 0:
        os.close(told)
        os.close(get_ready)
        _lead(address, count, tell, ready)
        os._exit(0)
    os.close(tell)
    try:
        with os.fdopen(told, "r") as lines:
            port = int(lines.readline())
            mine = _members(address, port, count, get_ready)
            theirs = json.loads(lines.readline())
    finally:
        os.kill(leader, signal.SIGKILL)  # it has said all it had to say, or never will
        os.waitpid(leader, 0)
    print(json.dumps(_sum(mine, theirs, count)))
    return 0


def _lead(address: str, count: int, tell: int, ready: int) -> None:
    loop = Loop()
    spent = time.process_time()
    hands = _agent(loop, _meeting(address, 0, count), 0, Routes())
    hands.driver.begin()
    os.write(tell, f"{hands.driver.settings.address.rpartition(':')[2]}\n".encode())
    left: list[bool] = []
    loop.on_readable(ready, lambda: (loop.forget(ready), left.append(True)))
    _turn(loop, lambda: Hands.started == 1 and left)
    spent = time.process_time() - spent
    os.write(tell, (json.dumps([Hands.last_at, spent]) + "\n").encode())


def _members(address: str, port: int, count: int, get_ready: int) -> list[float]:
    loop = Loop()
    meeting = _meeting(address, port, count)
    agents = [_agent(loop, meeting, number, Elsewhere()) for number in range(1, count)]
    began, spent = time.monotonic(), time.process_time()
    for agent in agents:
        agent.driver.begin()
    _turn(loop, lambda: Hands.started == count - 1)
    spent = time.process_time() - spent
    traffic = [agent.driver.snapshot().traffic for agent in agents]
    os.close(get_ready)
    sent = sum(one.bytes_in + one.bytes_out for one in traffic)
    return [began, spent, sent, max(one.messages_in for one in traffic)]


def _agent(loop: Loop, meeting: Meeting, number: int, network: object) -> Hands:
    hands = Hands(loop)
    draft = Settings("", "", "", 1, run_id=meeting.run_id, min_nodes=meeting.min_nodes, max_nodes=meeting.max_nodes)
    random = number.to_bytes(4, "big")
    hands.driver = open_driver(loop, meeting, hands, draft, hostname="n", random=random, network=network)
    return hands


def _meeting(address: str, port: int, count: int) -> Meeting:
    return Meeting("embedded", (f"{address}:{port}",), "bench", count, count, local_addr=address)


def _turn(loop: Loop, until: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit(f"{Hands.started} agents have started after {PATIENCE_S:g} s")
        loop.run_once(1.0)


def _sum(mine: list[float], theirs: list[float], count: int) -> dict[str, float]:
    began, spent, sent, messages = mine
    return {
        "seconds": max(Hands.last_at, theirs[0]) - began,
        "leader_cpu_s": theirs[1],
        "member_cpu_ms": spent * 1e3 / (count - 1),
        "bytes": sent / (count - 1),
        "messages": messages,
    }


if __name__ == "__main__":
    sys.exit(main())
