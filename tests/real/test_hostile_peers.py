"""Strangers at the port: whatever they send, they lose their own connection and nothing else.

A server in a process of its own echoes messages, one line of text for each connection it refuses or loses. Meanwhile an
honest client asks it again and again and has to get every answer.
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
from strangers import has_ended, shake_hands

from planaria.base.channel import Channel, ChannelBroken
from planaria.base.loop import Loop
from planaria.base.net import Connection, dial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.base.channel import Met


TIMEOUT_S = 60.0
GROWTH_KIB = 24 << 10  # far above what allocators round up to, far below what one hostile peer wants us to hold
TOKENS = [None, b"secret"]
HELLO_BYTES = 40

SERVER = """
import json, sys, time
from planaria.base.loop import Loop
from planaria.base.net import Listener

token = bytes.fromhex(sys.argv[1]) or None
ahead_s = 0.0
loop = Loop(lambda: time.monotonic() + ahead_s)

def say(**facts):
    print(json.dumps(facts), flush=True)

def meet(connection):
    def hear(payload):
        global ahead_s
        if payload == b"memory":
            status = open("/proc/self/status").read()
            payload = status.partition("VmRSS:")[2].split()[0].encode()
        elif payload == b"I am new":
            connection.on_lost = None  # it is no stranger: its goodbye is not worth a line
        elif payload.startswith(b"later "):
            ahead_s += float(payload[6:])
            return
        elif payload == b"flood":
            for _ in range(64):
                connection.send(bytes(1 << 17))
            return
        connection.send(payload)
    connection.on_message = hear
    connection.on_lost = lambda why, met: say(lost=why)

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
        def fail(why: str, met: Met) -> None:
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
        """Open the connection as somebody does who knows the token; return the channel and all that was said.

        The server has answered a message by then: what breaks the connection later is a loss to it, not a refusal.
        """
        channel, said = shake_hands(stream, self.token)
        frame = channel.seal(b"here")
        stream.sendall(frame)
        answer: list[bytes] = []

        def hear() -> bool:
            with contextlib.suppress(BlockingIOError):
                heard = stream.recv(1000)
                assert heard, "it ended the connection"
                answer.extend(channel.receive(heard)[0])
            return bool(answer)

        self.until(hear)
        assert answer == [b"here"]
        return channel, said + frame

    def pass_s(self, seconds: float) -> None:
        """Put the server's clock forward: nobody has to wait for what it does when time is up."""
        assert self.honest is not None
        self.honest.send(f"later {seconds}".encode())

    def refusals(self) -> list[str]:
        return [line["refused"] for line in self.lines if "refused" in line]

    def losses(self) -> list[str]:
        return [line["lost"] for line in self.lines if "lost" in line]

    def check(self) -> None:
        """The honest client got all its answers, none of them late, and memory is what it was."""
        answers = self.answers
        self.until(lambda: self.answers > answers + 20)
        assert self.failures == []
        assert self.slowest_s < 20.0
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
    server.pass_s(4)  # some have not finished their hello, and have five seconds for it
    server.until(lambda: all(has_ended(stream) for stream in streams))
    server.until(lambda: server.lines)
    server.check()
    assert len(server.refusals()) + len(server.losses()) <= 60


def test_a_wrong_token_is_refused_with_one_line_at_each_end(guarded: Server) -> None:
    lost: list[tuple[str, Met]] = []
    dial(
        guarded.loop,
        f"127.0.0.1:{guarded.port}",
        token=b"Secret",
        timeout_s=TIMEOUT_S,
        on_open=lambda _: pytest.fail("it was let in"),
        on_lost=lambda why, met: lost.append((why, met)),
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
    assert not any(has_ended(stream) for stream in streams)
    server.pass_s(9)
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
    assert server.losses() == ["it ended the connection"]
    assert server.refusals() == []


def test_a_slow_loris_has_five_seconds(server: Server, streams: list[socket.socket]) -> None:
    hello = Channel(token=server.token, dials=True, nonce=bytes(32)).opening()
    started = time.monotonic()
    streams += [server.connect() for _ in range(20)]
    sent = 0
    while not all(has_ended(stream) for stream in streams):
        assert time.monotonic() < started + TIMEOUT_S
        if sent < HELLO_BYTES - 1 and time.monotonic() > started + sent * 0.1:  # a byte now and then, never the last
            for stream in streams:
                with contextlib.suppress(OSError):
                    stream.send(hello[sent : sent + 1])
            sent += 1
            if sent == 4:
                server.pass_s(4)
        server.loop.run_once(0.05)
    assert time.monotonic() - started + 4 >= 4.9
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
    server.pass_s(4)
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
