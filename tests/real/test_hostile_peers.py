"""Strangers at the port: whatever they send, they lose their own connection and nothing else.

A server in a process of its own echoes messages, one line of text for each connection it refuses or loses. Meanwhile an
honest client asks it again and again and has to get every answer.

The last two are about an agent: what is no message, and strangers that speak our language where a job has no token.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from court import join_of
from crew import Crew
from harness import wait_until
from ports import free_port
from strangers import has_ended

from planaria.base.channel import Channel, ChannelBroken
from planaria.base.loop import Loop
from planaria.base.net import Connection, dial
from planaria.base.value import replace
from planaria.rendezvous import wire
from planaria.rendezvous.messages import Ask, Join, Leads, Redirect
from planaria.rendezvous.model import Deputy, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Room

    from planaria.rendezvous.messages import Message

TIMEOUT_S = 60.0
GROWTH_KIB = 24 << 10  # far above what allocators round up to, far below what one hostile peer wants us to hold
TOKENS = [None, b"secret"]
HELLO_BYTES = 40

SERVER = """
import json, sys
from planaria.base.loop import Loop
from planaria.base.net import Listener

token = bytes.fromhex(sys.argv[1]) or None
loop = Loop()

def say(**facts):
    print(json.dumps(facts), flush=True)

def meet(connection):
    def hear(payload):
        if payload == b"memory":
            status = open("/proc/self/status").read()
            payload = status.partition("VmRSS:")[2].split()[0].encode()
        elif payload == b"I am new":
            connection.on_lost = None  # it is no stranger: its goodbye is not worth a line
        elif payload == b"flood":
            for _ in range(64):
                connection.send(bytes(1 << 17))
            return
        connection.send(payload)
    connection.on_message = hear
    connection.on_lost = lambda why, refused: say(lost=why)

listener = Listener(loop, ("127.0.0.1", 0), meet, token=token, on_refused=lambda line: say(refused=line))
say(port=listener.port)
loop.run()
"""


class Server:
    """The process under attack, and an honest client that never stops asking it."""

    def __init__(self, token: bytes | None) -> None:
        self.token = token
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, (token or b"").hex()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        self.lines: list[dict[str, str]] = []
        self.rest = b""
        self.loop = Loop()
        self.answers = 0
        self.slowest_s = 0.0
        self.asked_at = 0.0
        self.memory_kib = 0
        self.failures: list[str] = []
        self.honest: Connection | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        assert self.process.stdout is not None
        self.port = int(json.loads(self.process.stdout.readline())["port"])
        self.loop.on_readable(self.process.stdout.fileno(), self._line)
        self._dial()
        self.until(lambda: self.answers > 20)
        self.slowest_s = 0.0
        self.memory_before_kib = self.memory_kib

    def _dial(self) -> None:
        def fail(why: str, refused: bool) -> None:
            self.failures.append(why)

        def begin(connection: Connection) -> None:
            self.honest = connection
            connection.on_message = self._answer
            connection.on_lost = fail
            self._ask()

        address = f"127.0.0.1:{self.port}"
        dial(self.loop, address, token=self.token, timeout_s=TIMEOUT_S, on_open=begin, on_lost=fail)

    def _ask(self) -> None:
        assert self.honest is not None
        self.asked_at = self.loop.now()
        self.honest.send(b"memory")

    def _answer(self, payload: bytes) -> None:
        self.answers += 1
        self.memory_kib = int(payload)
        self.slowest_s = max(self.slowest_s, self.loop.now() - self.asked_at)
        self.loop.call_later(0.005, self._ask)

    def _line(self) -> None:
        assert self.process.stdout is not None
        *lines, self.rest = (self.rest + self.process.stdout.read1()).split(b"\n")  # type: ignore[attr-defined]
        self.lines += [json.loads(line) for line in lines]

    def until(self, is_done: Callable[[], object]) -> None:
        """Let the honest client go on until something has happened."""
        deadline = self.loop.now() + TIMEOUT_S
        while not is_done():
            assert self.loop.now() < deadline, f"it did not happen: {self.lines} {self.failures}"
            assert self.process.poll() is None, "the server died"
            self.loop.run_once(0.05)

    def connect(self) -> socket.socket:
        stream = socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)
        stream.setblocking(False)
        return stream

    def shake_hands(self, stream: socket.socket) -> tuple[Channel, bytes]:
        """Open the connection as somebody does who knows the token; return the channel and all that was said."""
        return shake_hands(stream, self.token)

    def refusals(self) -> list[str]:
        return [line["refused"] for line in self.lines if "refused" in line]

    def losses(self) -> list[str]:
        return [line["lost"] for line in self.lines if "lost" in line]

    def check(self) -> None:
        """The honest client got all its answers, none of them late, and memory is what it was."""
        answers = self.answers
        self.until(lambda: self.answers > answers + 20)
        assert self.failures == []
        assert self.slowest_s < 5.0
        assert self.memory_kib < self.memory_before_kib + GROWTH_KIB
        newcomer: list[bytes] = []

        def greet(connection: Connection) -> None:
            connection.on_message = lambda payload: (newcomer.append(payload), connection.close())
            connection.send(b"I am new")

        dial(
            self.loop,
            f"127.0.0.1:{self.port}",
            token=self.token,
            timeout_s=TIMEOUT_S,
            on_open=greet,
            on_lost=lambda why, _: self.failures.append(why),
        )
        self.until(lambda: newcomer or self.failures)
        assert newcomer == [b"I am new"]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.loop.forget(self.process.stdout.fileno())
        self.process.stdout.close()
        if self.honest is not None:
            self.honest.close()
        deadline = self.loop.now() + TIMEOUT_S
        while self.honest is not None and not self.honest.is_ended and self.loop.now() < deadline:
            self.loop.run_once(0.05)
        self.loop.close()


def shake_hands(stream: socket.socket, token: bytes | None) -> tuple[Channel, bytes]:
    """Open a connection as somebody does who knows the token; return the channel and all that was said."""
    channel = Channel(token=token, dials=True, nonce=random.Random(1).randbytes(32))
    said = channel.opening()
    stream.settimeout(TIMEOUT_S)
    stream.sendall(said)
    while token is not None and not channel.is_open:
        _, reply = channel.receive(stream.recv(1000))
        stream.sendall(reply)
        said += reply
    stream.setblocking(False)
    return channel, said


@pytest.fixture(params=TOKENS, ids=["no token", "token"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    found = Server(request.param)
    yield found
    found.close()


@pytest.fixture
def guarded() -> Iterator[Server]:
    """A server that wants a token."""
    found = Server(b"secret")
    yield found
    found.close()


@pytest.fixture
def streams() -> Iterator[list[socket.socket]]:
    """Connections of strangers; all are closed in the end."""
    found: list[socket.socket] = []
    yield found
    for stream in found:
        stream.close()


def push(server: Server, stream: socket.socket, data: bytes) -> None:
    """Send as much as the server takes before it ends the connection."""
    view = memoryview(data)
    deadline = server.loop.now() + TIMEOUT_S
    while view and server.loop.now() < deadline:
        try:
            view = view[stream.send(view[: 1 << 16]) :]
        except BlockingIOError:
            server.loop.run_once(0.01)
        except OSError:
            return


def test_fuzzed_bytes_end_their_own_connection(server: Server, streams: list[socket.socket]) -> None:
    rng = random.Random(20)
    for number in range(60):
        stream = server.connect()
        streams.append(stream)
        opening = Channel(token=server.token, dials=True, nonce=rng.randbytes(32)).opening()
        start = (b"", opening, opening[: rng.randrange(HELLO_BYTES)])[number % 3]
        # After a good hello noise may be a short frame, which is a message; what follows is none for long.
        push(server, stream, start + b"\xff" + rng.randbytes(rng.choice((10, 1000, 200_000))))
    server.until(lambda: all(has_ended(stream) for stream in streams))
    server.until(lambda: server.lines)
    server.check()
    assert len(server.refusals()) + len(server.losses()) <= 60


def test_a_wrong_token_is_refused_with_one_line_at_each_end(guarded: Server) -> None:
    lost: list[tuple[str, bool]] = []
    dial(
        guarded.loop,
        f"127.0.0.1:{guarded.port}",
        token=b"Secret",
        timeout_s=TIMEOUT_S,
        on_open=lambda _: pytest.fail("it was let in"),
        on_lost=lambda why, refused: lost.append((why, refused)),
    )
    guarded.until(lambda: lost and guarded.refusals())
    assert len(lost) == len(guarded.lines) == 1
    assert "it has another token than this end" in lost[0][0]
    assert "it has another token than this end" in guarded.refusals()[0]
    guarded.check()


@pytest.mark.parametrize("theirs", TOKENS, ids=["only here", "only there"])
def test_a_token_on_one_side_only_is_named_at_both_ends(theirs: bytes | None) -> None:
    server = Server(None if theirs else b"secret")
    try:
        lost: list[str] = []

        def begin(connection: Connection) -> None:
            connection.on_lost = lambda why, _: lost.append(why)
            connection.send(b"let me in")

        dial(
            server.loop,
            f"127.0.0.1:{server.port}",
            token=theirs,
            timeout_s=TIMEOUT_S,
            on_open=begin,
            on_lost=lambda why, _: lost.append(why),
        )
        server.until(lambda: lost and server.refusals())
        has, lacks = "it has a token, and this end has none", "it has no token, and this end has one"
        assert (has if theirs is None else lacks) in lost[0]
        assert (lacks if theirs is None else has) in server.refusals()[0]
        assert len(lost) == len(server.lines) == 1
        server.check()
    finally:
        server.close()


def test_a_recorded_session_opens_nothing(guarded: Server, streams: list[socket.socket]) -> None:
    first = guarded.connect()
    streams.append(first)
    channel, said = guarded.shake_hands(first)
    frame = channel.seal(b"pay 100")
    first.sendall(frame)
    for _ in range(20):
        stream = guarded.connect()
        streams.append(stream)
        push(guarded, stream, said + frame)
        guarded.until(lambda stream=stream: has_ended(stream))  # type: ignore[misc]
    guarded.until(guarded.refusals)
    assert "another token" in guarded.refusals()[0]
    assert guarded.losses() == []
    guarded.check()


def test_a_frame_that_comes_twice_ends_the_connection(guarded: Server, streams: list[socket.socket]) -> None:
    stream = guarded.connect()
    streams.append(stream)
    channel, _ = guarded.shake_hands(stream)
    frame = channel.seal(b"pay 100")
    stream.sendall(frame + frame)
    guarded.until(lambda: has_ended(stream) and guarded.lines)
    assert guarded.lines == [{"lost": "it sent a frame that was changed, repeated or moved on the way"}]
    guarded.check()


def test_an_oversized_length_ends_the_connection(server: Server, streams: list[socket.socket]) -> None:
    stream = server.connect()
    streams.append(stream)
    server.shake_hands(stream)
    push(server, stream, b"\x40\0\0\0" + bytes(8 << 20))
    server.until(lambda: has_ended(stream) and server.lines)
    assert server.lines == [{"lost": "it sent a frame of 1073741824 bytes, over the limit of 1048576"}]
    server.check()


def test_half_a_frame_holds_little_and_not_for_ever(server: Server, streams: list[socket.socket]) -> None:
    for _ in range(10):
        stream = server.connect()
        streams.append(stream)
        channel, _ = server.shake_hands(stream)
        push(server, stream, channel.seal(bytes(1 << 20))[: 1 << 18])
    server.check()
    server.until(lambda: all(has_ended(stream) for stream in streams))
    server.until(lambda: len(server.losses()) == 10)
    assert set(server.losses()) == {"it has not finished a message for 10 s"}
    assert server.refusals() == []


def test_half_a_frame_and_then_the_end_is_one_line(server: Server) -> None:
    stream = server.connect()
    channel, _ = server.shake_hands(stream)
    stream.sendall(channel.seal(b"a whole message")[:10])
    stream.close()
    server.until(lambda: server.lines)
    server.check()
    # A reset is what the kernel sends for an end that left something unread: here the server's hello.
    assert server.losses() in (["it ended the connection"], ["the connection broke: Connection reset by peer"])
    assert server.refusals() == []


def test_a_slow_loris_has_five_seconds(server: Server, streams: list[socket.socket]) -> None:
    hello = Channel(token=server.token, dials=True, nonce=bytes(32)).opening()
    started = time.monotonic()
    streams += [server.connect() for _ in range(20)]
    sent = 0
    while not all(has_ended(stream) for stream in streams):
        assert time.monotonic() < started + TIMEOUT_S
        if sent < HELLO_BYTES - 1 and time.monotonic() > started + sent * 0.3:  # a byte now and then, never the last
            for stream in streams:
                with contextlib.suppress(OSError):
                    stream.send(hello[sent : sent + 1])
            sent += 1
        server.loop.run_once(0.05)
    assert time.monotonic() - started >= 4.9
    server.until(lambda: len(server.refusals()) >= 2)
    assert all("did not shake hands within 5 s" in line for line in server.refusals())
    assert len(server.refusals()) <= 3
    server.check()


def test_a_peer_that_never_reads_is_lost_before_it_costs_memory(server: Server, streams: list[socket.socket]) -> None:
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.connect(("127.0.0.1", server.port))
    stream.setblocking(False)
    streams.append(stream)
    channel, _ = server.shake_hands(stream)
    for _ in range(20):  # 160 MiB are asked for; the queue takes 4
        with contextlib.suppress(OSError):
            stream.send(channel.seal(b"flood"))
    server.until(server.losses)
    assert server.losses()[0].startswith("it does not read: ")
    server.check()
    assert len(server.lines) == 1


def test_hundreds_of_silent_connections_keep_nobody_out(server: Server, streams: list[socket.socket]) -> None:
    streams += [server.connect() for _ in range(300)]
    server.check()
    server.until(lambda: all(has_ended(stream) for stream in streams))
    server.until(lambda: len(server.refusals()) >= 2)
    assert len(server.refusals()) <= 8  # 300 connections, one line a second
    assert any("more)" in line for line in server.refusals())
    server.check()


def test_a_flood_of_connections_that_come_and_go_is_not_worth_a_line(server: Server) -> None:
    for _ in range(500):
        server.connect().close()
        server.loop.run_once(0)
    server.check()
    assert server.refusals() == []


def test_the_recording_of_a_client_does_not_fool_a_client(guarded: Server) -> None:
    """The other direction: somebody who took the server's address plays back what the server once said."""
    stream = guarded.connect()
    channel = Channel(token=b"secret", dials=True, nonce=bytes(32))
    stream.sendall(channel.opening())
    heard = b""
    while len(heard) < HELLO_BYTES + 32:
        with contextlib.suppress(BlockingIOError):
            heard += stream.recv(1000)
        guarded.loop.run_once(0.01)
    stream.close()
    fresh = Channel(token=b"secret", dials=True, nonce=b"f" * 32)
    with pytest.raises(ChannelBroken, match="another token"):
        fresh.receive(heard)


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
