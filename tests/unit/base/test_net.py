from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from clocks import Leaping
from net_ends import TOKENS, TURN_S, Client, Server, descriptors, hello, listen, until

from planaria.base.channel import NOBODY, NONCE_BYTES, STRANGER, Channel, ChannelBroken
from planaria.base.loop import Loop
from planaria.base.net import Connection

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("token", TOKENS)
def test_messages_go_both_ways(loop: Loop, token: bytes | None) -> None:
    server = Server(loop, token=token)
    client = Client(loop, server.address, b"one", b"two", token=token)
    until(loop, lambda: len(client.heard) == 2)
    assert client.heard == [b"echo one", b"echo two"]
    assert client.connection is not None
    assert client.connection.peer == server.address
    assert server.connections[0].peer.startswith("127.0.0.1:")
    assert client.connection.bytes_out == server.connections[0].bytes_in > 0
    assert client.connection.bytes_in == server.connections[0].bytes_out > 0
    assert server.lines == []


def test_hello_and_first_message_leave_in_one_piece(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        Client(loop, f"127.0.0.1:{plain.getsockname()[1]}", b"first")
        loop.run_once(0)
        loop.run_once(TURN_S)
        stream, _ = plain.accept()
        with stream:
            assert stream.recv(1000).endswith(b"\0\0\0\x05first")


@pytest.mark.parametrize("token", TOKENS)
def test_a_unix_socket_is_for_our_user_alone_and_goes_with_its_listener(
    loop: Loop, tmp_path: Path, token: bytes | None
) -> None:
    path = str(tmp_path / "s")
    server = Server(loop, path, token=token)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    client = Client(loop, path, b"hi", token=token)
    until(loop, lambda: client.heard)
    assert client.connection is not None
    assert client.connection.peer == server.connections[0].peer == path
    server.listener.close()
    assert not os.path.exists(path)


def test_every_address_of_the_machine_is_listened_on(loop: Loop) -> None:
    server = Server(loop, ("", 0))
    hosts = ["127.0.0.1", "127.0.0.2"] + (["[::1]"] if os.path.exists("/proc/net/if_inet6") else [])
    clients = [Client(loop, f"{host}:{server.listener.port}", b"hi") for host in hosts]
    until(loop, lambda: all(client.heard for client in clients))
    assert sorted(connection.peer.rpartition(":")[0] for connection in server.connections)[-1] in ("127.0.0.1", "[::1]")


def test_small_messages_are_not_held_back_at_either_end(loop: Loop) -> None:
    server = Server(loop)
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: client.heard)
    for connection in (client.connection, server.connections[0]):
        assert connection is not None
        stream = socket.socket(fileno=connection._descriptor)
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert not stream.get_inheritable()
        stream.detach()


def test_a_port_in_use_is_an_error_at_once(loop: Loop) -> None:
    server = Server(loop, ("", 0))
    before = descriptors()
    with pytest.raises(OSError, match="in use"):
        Server(loop, ("", server.listener.port))
    assert descriptors() == before


def test_where_there_is_no_ipv6_every_ipv4_address_is_listened_on(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    from planaria.base import net

    listening = net._listening

    def without(family: int, address: tuple[str, int]) -> object:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        return listening(family, address)

    monkeypatch.setattr(net, "_listening", without)
    server = Server(loop, ("", 0))
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: client.heard)


def test_an_empty_token_is_refused_before_anything_starts(loop: Loop) -> None:
    before = descriptors()
    with pytest.raises(ValueError, match="empty"):
        Server(loop, token=b"")
    with pytest.raises(ValueError, match="empty"):
        Client(loop, "127.0.0.1:1", token=b"")
    assert descriptors() == before


def test_messages_wait_until_somebody_wants_them_and_so_does_the_peer(loop: Loop) -> None:
    kept: list[Connection] = []
    listener = listen(loop, kept.append)
    sent = [b"%d" % number + b"." * 60_000 for number in range(60)]
    Client(loop, f"127.0.0.1:{listener.port}", *sent)
    until(loop, lambda: kept and kept[0]._is_paused)
    for _ in range(5):
        loop.run_once(0)
    assert kept[0].bytes_in < 300_000
    heard: list[bytes] = []
    kept[0].on_message = heard.append
    until(loop, lambda: len(heard) == len(sent))
    assert heard == sent


def test_a_loss_waits_until_somebody_wants_to_know_and_comes_after_the_messages(loop: Loop) -> None:
    kept: list[Connection] = []
    listener = listen(loop, kept.append)
    client = Client(loop, f"127.0.0.1:{listener.port}", *[b"%d" % number for number in range(200)])
    until(loop, lambda: kept and client.connection)
    assert client.connection is not None
    client.connection.close()
    story: list[object] = []
    kept[0].on_lost = lambda why, met: story.append((why, met))
    kept[0].on_message = story.append
    until(loop, lambda: len(story) == 201)
    assert story == [b"%d" % number for number in range(200)] + [("it ended the connection", STRANGER)]


def test_a_crowd_of_messages_lets_others_have_their_turn(loop: Loop) -> None:
    server = Server(loop)
    Client(loop, server.address, *[b"x"] * 5000)
    most = 0
    while len(server.heard) < 5000:
        before = len(server.heard)
        loop.run_once(TURN_S)
        most = max(most, len(server.heard) - before)
    assert most <= 3 * 64


def test_an_exception_from_a_callback_loses_no_message(loop: Loop) -> None:
    server = Server(loop)
    client = Client(loop, server.address, b"0", b"1", b"2")
    heard: list[bytes] = []

    def hear(payload: bytes) -> None:
        heard.append(payload)
        if payload == b"echo 0":
            raise RuntimeError("ours")

    until(loop, lambda: client.connection)
    assert client.connection is not None
    client.connection.on_message = hear
    with pytest.raises(RuntimeError, match="ours"):
        until(loop, lambda: False)
    until(loop, lambda: len(heard) == 3)
    assert heard == [b"echo 0", b"echo 1", b"echo 2"]


def test_a_message_over_the_limit_is_the_senders_error_and_ends_nothing(loop: Loop) -> None:
    server = Server(loop)
    client = Client(loop, server.address)
    until(loop, lambda: client.connection)
    assert client.connection is not None
    with pytest.raises(ChannelBroken, match="over the limit"):
        client.connection.send(bytes((1 << 20) + 1))
    client.connection.send(b"small")
    until(loop, lambda: client.heard)


def test_what_was_sent_before_close_arrives_even_when_the_peer_keeps_talking(loop: Loop) -> None:
    big = b"x" * 1_000_000
    server = Server(loop)
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: client.heard)
    last, mine = server.connections[0], client.connection
    assert mine is not None
    mine.send(b"not heard")
    last.send(big)
    last.send(b"bye")
    last.close()
    last.close()
    last.send(b"nor this")
    mine.send(b"nor that")
    until(loop, lambda: client.lost)
    assert client.heard[-2:] == [big, b"bye"]
    assert client.lost == [("it ended the connection", STRANGER)]
    until(loop, lambda: last.is_ended)
    assert server.lost == []
    assert server.heard == [b"hi"]


def test_a_close_that_both_ends_see_needs_no_timer() -> None:
    moment = time.monotonic()
    loop = Loop(lambda: moment)  # no timer is ever due
    server = Server(loop)
    client = Client(loop, server.address, b"hi")
    for _ in range(2000):
        loop.run_once(0.005)
        if client.heard and client.connection is not None:
            server.connections[0].close()
        if client.lost and server.connections[0].is_ended:
            break
    assert client.lost == [("it ended the connection", STRANGER)]
    assert server.connections[0].is_ended
    server.listener.close()
    loop.close()


def test_a_closed_connection_that_is_not_read_ends_after_a_second(loop: Loop) -> None:
    server = Server(loop)
    with socket.create_connection(("127.0.0.1", server.listener.port)) as stream:
        stream.sendall(hello())
        until(loop, lambda: server.connections)
        connection = server.connections[0]
        connection.send(bytes(1 << 20))
        connection.send(bytes(1 << 20))
        connection.send(bytes(1 << 20))
        started = loop.now()
        connection.close()
        assert not connection.is_ended
        until(loop, lambda: connection.is_ended)
        assert 0.9 <= loop.now() - started < 10
    assert server.lost == []


def test_a_peer_that_does_not_read_is_lost_after_a_while_and_one_that_reads_slowly_is_not() -> None:
    clock = Leaping()
    loop = Loop(clock)
    server = Server(loop)
    slow, deaf = (socket.create_connection(("127.0.0.1", server.listener.port)) for _ in range(2))
    try:
        for stream in (slow, deaf):
            stream.sendall(hello())
        until(loop, lambda: len(server.connections) == 2)
        for connection in server.connections:
            connection.queue_limit_bytes = 64 << 20
            while len(connection._out) < 8 << 20:  # more than the kernel takes, less than the limit
                connection.send(bytes(1 << 20))
        ports = [stream.getsockname()[1] for stream in (slow, deaf)]
        by_port = {int(connection.peer.rpartition(":")[2]): connection for connection in server.connections}
        for _ in range(2):
            taken = by_port[ports[0]].bytes_out
            while by_port[ports[0]].bytes_out == taken:
                slow.recv(1 << 16)
                loop.run_once(0)
            clock.ahead_s += 10.1
            loop.run_once(0)
            loop.run_once(0)
        assert by_port[ports[1]].is_ended
        assert not by_port[ports[0]].is_ended
        assert len(server.lost) == 1
        assert server.lost[0].startswith("it has not read for 10 s: ")
        assert server.met == [NOBODY]
    finally:
        for stream in (slow, deaf):
            stream.close()
        for connection in server.connections:
            connection._end()
        server.listener.close()
        loop.close()


@pytest.mark.parametrize("token", TOKENS)
def test_half_a_message_that_comes_with_the_handshake_has_its_time_too(token: bytes | None) -> None:
    clock = Leaping()
    loop = Loop(clock)
    server = Server(loop, token=token)
    channel = Channel(token=token, dials=True, nonce=bytes(NONCE_BYTES))
    stream = socket.create_connection(("127.0.0.1", server.listener.port))
    try:
        last = channel.opening()
        if token is not None:  # what the server opens for is the answer to its challenge
            stream.sendall(last)
            stream.setblocking(False)
            last = b""
            while not channel.is_open:
                loop.run_once(0.05)
                with contextlib.suppress(BlockingIOError):
                    last += channel.receive(stream.recv(1000))[1]
        stream.sendall(last + channel.seal(b"a whole message")[:10])
        until(loop, lambda: server.connections)
        clock.ahead_s += 10.1
        until(loop, lambda: server.lost)
        assert server.lost == ["it has not finished a message for 10 s"]
        assert server.met == [NOBODY]
    finally:
        stream.close()
        server.listener.close()
        loop.close()


def test_a_peer_that_resets_is_lost_but_its_last_words_are_heard(loop: Loop) -> None:
    server = Server(loop)
    stream = socket.create_connection(("127.0.0.1", server.listener.port))
    stream.sendall(hello())
    until(loop, lambda: server.connections)
    stream.sendall(b"\0\0\0\x03bye")
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stream.close()
    server.connections[0].send(b"are you there")
    server.connections[0].send(b"hello?")
    until(loop, lambda: server.lost)
    assert len(server.lost) == 1
    assert server.heard == [b"bye"]


def test_close_from_inside_a_message_ends_the_listening(loop: Loop) -> None:
    server = Server(loop)
    client = Client(loop, server.address, b"a", b"b", b"c")
    until(loop, lambda: client.connection)
    assert client.connection is not None
    mine = client.connection
    heard: list[bytes] = []

    def hear(payload: bytes) -> None:
        heard.append(payload)
        mine.close()

    mine.on_message = hear
    until(loop, lambda: mine.is_ended)
    assert heard == [b"echo a"]
    assert client.lost == []


def test_a_listener_may_be_closed_by_the_connection_it_hands_over(loop: Loop) -> None:
    found: list[Connection] = []
    listener = listen(loop, lambda connection: (found.append(connection), listener.close()))
    clients = [Client(loop, f"127.0.0.1:{listener.port}", b"hi") for _ in range(3)]
    until(loop, lambda: found and all(client.lost or client.connection for client in clients))
    assert len(found) == 1
    listener.close()


class Failing:
    """A listening socket that cannot accept."""

    def __init__(self, stream: socket.socket, number: int) -> None:
        self._stream = stream
        self._number = number
        self.tries = 0

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()

    def _accept(self) -> None:
        self.tries += 1
        if self.tries % 70 == 0:
            raise BlockingIOError
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(("number", "tries"), [(errno.EINVAL, 1), (errno.EMFILE, 1), (errno.ECONNABORTED, 64)])
def test_an_error_of_accept_that_may_last_is_not_tried_again_at_once(number: int, tries: int) -> None:
    clock = Leaping()
    loop = Loop(clock)
    server = Server(loop)
    failing = Failing(server.listener._socket, number)  # type: ignore[arg-type]
    server.listener._socket = failing  # type: ignore[assignment]
    with socket.create_connection(("127.0.0.1", server.listener.port)):
        until(loop, lambda: failing.tries)
        for _ in range(5 if tries == 1 else 0):
            loop.run_once(0)
        assert failing.tries == tries
        assert server.lines == ([f"cannot accept connections: {os.strerror(number)}"] if tries == 1 else [])
        clock.ahead_s += 0.3
        until(loop, lambda: failing.tries > tries)
    server.listener.close()
    loop.close()


def test_one_that_only_looks_whether_somebody_is_there_is_not_worth_a_line(loop: Loop) -> None:
    server = Server(loop)
    for _ in range(3):
        socket.create_connection(("127.0.0.1", server.listener.port)).close()
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: client.heard and not server.listener._strangers)
    assert server.lines == []


def test_a_lack_of_descriptors_is_survived_with_a_line(loop: Loop) -> None:
    server = Server(loop)
    client = Client(loop, server.address)
    until(loop, lambda: client.connection)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    streams = [socket.socket() for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        spare = []
        with contextlib.suppress(OSError):
            while True:
                spare.append(os.dup(0))
        for stream in streams:
            stream.connect(("127.0.0.1", server.listener.port))
            stream.sendall(hello())
        until(loop, lambda: server.lines)
        assert client.connection is not None
        client.connection.send(b"still here")
        until(loop, lambda: client.heard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
    until(loop, lambda: len(server.connections) == 4)
    assert "Too many open files" in server.lines[0]
    for stream in streams:
        stream.close()


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    """A many-node start pays for this on every node, before its first message."""
    code = "import sys; before = set(sys.modules); import planaria.base.net; print(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-ISc", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(done.stdout.split())
    assert not found & {
        "socket",
        "ssl",
        "hashlib",
        "hmac",
        "threading",
        "signal",
        "selectors",
        "enum",
        "re",
        "typing",
        "json",
    }
    assert not found & {"_hashlib", "_sha256", "_sha2", "collections", "contextlib", "functools", "planaria.base.tls"}
