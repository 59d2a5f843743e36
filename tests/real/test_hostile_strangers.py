"""Strangers at an agent's own port: what is no message, and, where a job has no token, those that speak our language."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from typing import TYPE_CHECKING

import pytest
from court import join_of
from crew import Crew
from harness import wait_until
from ports import free_port
from strangers import has_ended, shake_hands

from planaria.base.channel import Channel
from planaria.base.value import replace
from planaria.rendezvous import wire
from planaria.rendezvous.messages import Ask, Join, Leads, Redirect
from planaria.rendezvous.model import Deputy, Standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Room

    from planaria.rendezvous.messages import Message

TIMEOUT_S = 60.0
GROWTH_KIB = 24 << 10  # far above what allocators round up to, far below what one hostile peer wants us to hold
TOKENS = [None, b"secret"]
HELLO_BYTES = 40


def memory_kib(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return int(file.read().partition("VmRSS:")[2].split()[0])


class Attack:
    """Connections of strangers to an agent. Some of them know the token, and misbehave behind it."""

    def __init__(self, port: int, token: bytes | None) -> None:
        self._port = port
        self._token = token
        self.streams: list[socket.socket] = []

    def connect(self) -> socket.socket:
        self.streams.append(socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S))
        return self.streams[-1]

    def send(self, stream: socket.socket, data: bytes) -> None:
        """Send as much as the agent takes before it ends the connection."""
        stream.settimeout(TIMEOUT_S)
        with contextlib.suppress(ConnectionError):
            stream.sendall(data)

    def fuzz(self) -> None:
        rng = random.Random(21)
        for number in range(40):
            opening = Channel(token=self._token, dials=True, nonce=rng.randbytes(32)).opening()
            start = (b"", opening, opening[: rng.randrange(HELLO_BYTES)])[number % 3]
            self.send(self.connect(), start + b"\xff" + rng.randbytes(rng.choice((10, 1000, 200_000))))

    def oversize(self) -> None:
        for _ in range(5):
            stream = self.connect()
            shake_hands(stream, self._token)
            self.send(stream, b"\x40\0\0\0" + bytes(8 << 20))

    def halve(self) -> None:
        for _ in range(10):
            stream = self.connect()
            channel, _ = shake_hands(stream, self._token)
            self.send(stream, channel.seal(bytes(1 << 20))[: 1 << 18])

    def replay(self) -> None:
        first = self.connect()
        channel, said = shake_hands(first, self._token)
        frame = channel.seal(wire.encode(Ask("another", "x", "", 0, -1, valid=False)))
        self.send(first, frame + frame)
        for _ in range(20):
            self.send(self.connect(), said + frame)

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


@pytest.mark.parametrize("token", TOKENS, ids=["no token", "token"])
def test_bytes_that_are_no_messages_cost_an_agent_little_memory_and_few_lines(room: Room, token: bytes | None) -> None:
    crew = Crew(room, nodes="2")
    env = {"PLANARIA_TOKEN": token.decode()} if token else {}
    agent = crew.add("a", env=env)
    agent.wait_said("1 of 2 nodes are here")
    attack = Attack(int(crew.endpoint.rpartition(":")[2]), token)
    before_kib, began = memory_kib(agent.agent()), time.monotonic()
    try:
        for deed in (attack.halve, attack.fuzz, attack.oversize, attack.replay):
            deed()
            assert agent.is_running, crew.story()
            assert memory_kib(agent.agent()) < before_kib + GROWTH_KIB
        for stream in attack.streams:
            stream.setblocking(False)
        wait_until(lambda: all(map(has_ended, attack.streams)), "all of them dropped", TIMEOUT_S)
    finally:
        attack.close()
    dropped = [line for line in agent.said() if "dropped a connection" in line]
    assert 1 <= len(dropped) <= 2 + time.monotonic() - began, "one line a second"
    assert memory_kib(agent.agent()) < before_kib + GROWTH_KIB
    crew.add("b", env=env)
    crew.wait_world("a", "b")
    crew.end_well("a", "b")


def stranger(name: str) -> Join:
    """Return what a node says that never comes back: nobody listens at its address."""
    return join_of(name, run_id="crew", host="host", address=f"127.0.0.1:{free_port()}", age_s=0.0)


WRONG_ADDRESSES = ["/\ud800", "/tmp/\0", "/nobody/is/here", "\ud800:1", "127.0.0.1:000000" + "9" * 30]
WRONG_HOSTS = ["é" * (1 << 18), "a\0b", "\ud800", "\x1b[2J\n" * 1000]


def evil_messages() -> Iterator[list[Message]]:
    """Give what strangers say, one list for each connection. Those of the last two are well formed."""
    for address in WRONG_ADDRESSES:
        yield [Ask("crew", "x", address, 1 << 60, 5, valid=True)]
        yield [Leads("crew", "x", address, 1 << 60, 5, valid=True, seeking=False)]
        yield [Redirect(address, 1 << 60)]
        yield [replace(stranger("ghost-1"), address=address)]
        known = Standing("e", 1, 1, 2, None, 0, (Deputy("b", address),), 2)
        yield [replace(stranger("ghost-2"), standing=known)]
    for host in WRONG_HOSTS:
        yield [replace(stranger("ghost-3"), host=host)]
        yield [stranger(host)]
    yield [Leads("crew", "x", f"127.0.0.1:{free_port()}", 1, -1, valid=False, seeking=False)]
    yield [stranger("ghost-4"), stranger("ghost-5")]


def as_bytes(message: Message) -> bytes:
    """Return a message as somebody writes it who wants a long name to fit."""
    return json.dumps(json.loads(wire.encode(message)), ensure_ascii=False).encode("utf-8", "surrogatepass")


def test_strangers_that_speak_our_language_neither_kill_an_agent_nor_spoil_its_job(room: Room) -> None:
    crew = Crew(room, nodes="2")
    agent = crew.add("a")
    agent.wait_said("1 of 2 nodes are here")
    for said in evil_messages():
        with socket.create_connection(("127.0.0.1", int(crew.endpoint.rpartition(":")[2])), TIMEOUT_S) as stream:
            channel = Channel(token=None, dials=True, nonce=bytes(32))
            with contextlib.suppress(OSError):  # it may have heard enough before the end
                stream.sendall(channel.opening() + b"".join(channel.seal(as_bytes(message)) for message in said))
                stream.shutdown(socket.SHUT_WR)
                while stream.recv(1 << 16):
                    pass
        assert agent.is_running, crew.story()
    crew.add("b")
    crew.wait_world("a", "b")
    crew.finish_well("a", "b")
    crew.check_one_world()
    assert "sent no message of ours" in agent.err()
