from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from certificates import Certificate, make_certificate
from clocks import Clock, Leaping
from ports import free_port
from strangers import has_ended

from planaria.base import addresses
from planaria.base import dial as dialling_module
from planaria.base.channel import NONCE_BYTES, Channel, ChannelBroken
from planaria.base.loop import Loop
from planaria.base.net import Complaints, Connection, Listener, dial, join_address, split_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from pathlib import Path

TURN_S = 20.0
TOKENS = [None, b"secret"]


LISTENERS: list[Listener] = []
CONNECTIONS: list[Connection] = []


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    for listener in LISTENERS:
        listener.close()
    for connection in CONNECTIONS:
        connection._end()
    LISTENERS.clear()
    CONNECTIONS.clear()
    loop.close()


def listen(loop: Loop, on_connection: Callable[[Connection], object]) -> Listener:
    def meet(connection: Connection) -> None:
        CONNECTIONS.append(connection)
        on_connection(connection)

    LISTENERS.append(Listener(loop, ("127.0.0.1", 0), meet, token=None))
    return LISTENERS[-1]


def until(loop: Loop, is_done: Callable[[], object], limit_s: float = TURN_S) -> None:
    deadline = time.monotonic() + limit_s  # the loop's own clock may stand still
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen"
        loop.run_once(0.05)


class Server:
    """A listener that echoes, and what it was told."""

    def __init__(self, loop: Loop, address: tuple[str, int] | str = ("127.0.0.1", 0), **kwargs: object) -> None:
        self.connections: list[Connection] = []
        self.lines: list[str] = []
        self.lost: list[str] = []
        self.heard: list[bytes] = []
        kwargs.setdefault("token", None)
        self.listener = Listener(loop, address, self.meet, on_refused=self.lines.append, **kwargs)  # type: ignore[arg-type]
        LISTENERS.append(self.listener)
        self.address = address if isinstance(address, str) else f"127.0.0.1:{self.listener.port}"

    def meet(self, connection: Connection) -> None:
        self.connections.append(connection)
        CONNECTIONS.append(connection)
        connection.on_lost = lambda why, _: self.lost.append(why)
        connection.on_message = lambda payload: self.hear(connection, payload)

    def hear(self, connection: Connection, payload: bytes) -> None:
        self.heard.append(payload)
        connection.send(b"echo " + payload)


class Client:
    """The dialling end, and what became of it."""

    def __init__(self, loop: Loop, address: str, *first: bytes, timeout_s: float = TURN_S, **kwargs: object) -> None:
        self.first = first
        self.connection: Connection | None = None
        self.heard: list[bytes] = []
        self.lost: list[tuple[str, bool]] = []
        kwargs.setdefault("token", None)
        self.dialling = dial(
            loop,
            address,
            timeout_s=timeout_s,
            on_open=self.open,
            on_lost=lambda why, refused: self.lost.append((why, refused)),
            **kwargs,  # type: ignore[arg-type]
        )

    def open(self, connection: Connection) -> None:
        self.connection = connection
        CONNECTIONS.append(connection)
        connection.on_message = self.heard.append
        connection.on_lost = lambda why, refused: self.lost.append((why, refused))
        for payload in self.first:
            connection.send(payload)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("node-1:29400", ("node-1", 29400)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_an_address_is_split_and_joined_again(text: str, found: tuple[str, int]) -> None:
    assert split_address(text) == found
    assert join_address(*found) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node", "found no port"),
        ("", "found no port"),
        ("[::1]", "found no port"),
        (":80", "found no host name"),
        ("::1:80", "needs brackets"),
        ("[node]:80", "only an IPv6 address"),
        ("node:http", "no number from 0 to 65535"),
        ("node:65536", "no number from 0 to 65535"),
        ("node:" + "9" * 9999, "no number from 0 to 65535"),
        ("node:-1", "no number from 0 to 65535"),
        ("node:\u0661", "no number from 0 to 65535"),
        ("a b:80", "no host name"),
        ("a\0b:80", "no host name"),
        ("/run/x:80", "no host name"),
        ("x" * 300 + ":80", "no host name"),
    ],
)
def test_what_is_no_address_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split_address(text)


def test_an_ipv4_address_inside_an_ipv6_one_is_shown_as_itself() -> None:
    assert join_address("::ffff:10.0.0.1", 80) == "10.0.0.1:80"


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


def test_nobody_listening_is_a_refusal(loop: Loop) -> None:
    client = Client(loop, f"127.0.0.1:{free_port()}")
    assert client.lost == []  # never from inside the call
    until(loop, lambda: client.lost)
    why, refused = client.lost[0]
    assert refused
    assert "Connection refused" in why


def test_a_path_nobody_made_is_lost_but_no_refusal(loop: Loop, tmp_path: Path) -> None:
    client = Client(loop, str(tmp_path / "none"))
    until(loop, lambda: client.lost)
    assert "No such file" in client.lost[0][0]
    assert not client.lost[0][1]


def test_silence_ends_in_a_loss_after_the_timeout_and_is_no_refusal(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel connects; nobody shakes hands
        before = descriptors()
        client = Client(loop, f"127.0.0.1:{silent.getsockname()[1]}", token=b"secret", timeout_s=0.2)
        until(loop, lambda: client.lost)
        assert client.lost == [(f"cannot reach 127.0.0.1:{silent.getsockname()[1]} (no answer within 0.2 s)", False)]
        until(loop, lambda: descriptors() == before)


def test_a_cancelled_dialling_says_nothing_and_leaves_nothing(loop: Loop) -> None:
    server = Server(loop, token=b"secret")
    before = descriptors()
    clients = [Client(loop, server.address, token=b"secret") for _ in range(3)]
    clients[0].dialling.cancel()
    loop.run_once(0)
    for client in clients:
        client.dialling.cancel()
        client.dialling.cancel()
    until(loop, lambda: descriptors() == before)
    assert all(client.lost == [] and client.connection is None for client in clients)


BAD_ADDRESSES = ["nonsense", "::1:80", "a\0b:80", "x:99999", "/\ud800", "/" + "x" * 200, "\ud800:1"]
BAD_PORTS = [f"127.0.0.1:000000{digits}" for digits in ("9" * 30, "9" * 5000)]


@pytest.mark.parametrize("address", [*BAD_ADDRESSES, *BAD_PORTS])
def test_a_bad_address_from_somebody_else_is_a_loss_and_no_exception(loop: Loop, address: str) -> None:
    before = descriptors()
    client = Client(loop, address)
    until(loop, lambda: client.lost)
    assert not client.lost[0][1]
    assert client.lost[0][0].startswith("cannot reach ")
    assert descriptors() == before


def test_meeting_ourselves_is_a_refusal(loop: Loop) -> None:
    """A port of the ephemeral range that nobody listens on may be given to the very socket that dials it."""
    port = free_port()
    stream = socket.socket()
    stream.bind(("127.0.0.1", port))
    stream.connect(("127.0.0.1", port))
    client = Client(loop, f"127.0.0.1:{free_port()}")
    client.dialling._connecting[stream.fileno()] = stream
    client.dialling._connected(stream, (socket.AF_INET, ("127.0.0.1", port)))
    assert client.lost[0][1]
    assert stream.fileno() == -1


class Names:
    """A name service of our own making."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.asked = 0
        self.masks: list[set[int]] = []
        self.threads: list[int] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hosts = hosts
        self.real = addresses._resolve
        monkeypatch.setattr(addresses, "_resolve", self.resolve)

    def resolve(self, host: str, port: int, flags: int) -> list[addresses.Target]:
        if flags:
            return self.real(host, port, flags)
        import signal

        self.asked += 1
        self.threads.append(threading.get_native_id())
        self.masks.append({int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())})
        assert self.may_answer.wait(TURN_S)
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [target for host in self.hosts for target in self.real(host, port, socket.AI_NUMERICHOST)]


def test_all_addresses_of_a_name_are_tried(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, "127.0.0.9", "127.0.0.8", "127.0.0.1")
    server = Server(loop)
    client = Client(loop, f"node:{server.listener.port}", b"hi")
    until(loop, lambda: client.heard)
    assert client.connection is not None
    assert client.connection.peer == server.address


def test_an_address_that_does_not_answer_does_not_hold_up_the_next(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(loop, token=b"secret")
    with socket.socket() as mute:
        mute.bind(("127.0.0.9", server.listener.port))
        mute.listen()
        Names(monkeypatch, "127.0.0.9", "127.0.0.1")
        started = loop.now()
        client = Client(loop, f"node:{server.listener.port}", b"hi", token=b"secret")
        until(loop, lambda: client.heard)
        assert loop.now() - started >= dialling_module._STAGGER_S
        assert client.connection is not None
        assert client.connection.peer == server.address


def test_it_is_a_refusal_only_when_every_address_refused(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    Names(monkeypatch, "127.0.0.9", "127.0.0.8")
    both = Client(loop, f"node:{port}")
    until(loop, lambda: both.lost)
    assert both.lost[0][1]
    assert "127.0.0.9" in both.lost[0][0]
    assert "127.0.0.8" in both.lost[0][0]
    Names(monkeypatch, "127.0.0.9", "255.255.255.255")  # no route to a broadcast address for TCP
    one = Client(loop, f"another:{port}")
    until(loop, lambda: one.lost)
    assert not one.lost[0][1]


def test_a_name_nobody_knows_is_a_loss(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    client = Client(loop, "nowhere:80")
    until(loop, lambda: client.lost)
    assert client.lost == [("cannot reach nowhere:80 (cannot look up nowhere: Name or service not known)", False)]


def test_a_look_up_runs_beside_the_main_thread_with_every_signal_blocked(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    names = Names(monkeypatch, "127.0.0.1")
    server = Server(loop)
    client = Client(loop, f"node:{server.listener.port}", b"hi")
    until(loop, lambda: client.heard)
    assert names.threads != [threading.get_native_id()]
    assert {int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGCHLD), int(signal.SIGHUP)} <= names.masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_slow_name_service_holds_one_thread_and_not_the_loop(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, "127.0.0.1")
    names.may_answer.clear()
    server = Server(loop)
    before = descriptors()
    impatient = [Client(loop, f"node:{server.listener.port}", timeout_s=0.05) for _ in range(5)]
    until(loop, lambda: all(client.lost for client in impatient))
    patient = Client(loop, f"node:{server.listener.port}", b"hi")
    loop.run_once(0)
    names.may_answer.set()
    until(loop, lambda: patient.heard)
    assert names.asked == 1
    assert patient.connection is not None
    patient.connection.close()
    until(loop, lambda: descriptors() == before and not addresses._IN_FLIGHT)


def test_an_answer_is_good_for_a_few_seconds(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(monkeypatch, "127.0.0.1")
    server = Server(loop)

    def dial_once() -> None:
        client = Client(loop, f"node:{server.listener.port}", b"hi")
        until(loop, lambda: client.heard)

    dial_once()
    dial_once()
    assert names.asked == 1
    addresses._KNOWN[(loop, "node", server.listener.port)] = (loop.now(), [])
    dial_once()
    assert names.asked == 2


def test_families_take_turns() -> None:
    four = [(socket.AF_INET, (f"10.0.0.{number}", 1)) for number in range(3)]
    six = [(socket.AF_INET6, ("fe80::1", 1, 0, 0))]
    assert addresses._interleaved([*six, *four]) == [six[0], *four]
    assert addresses._interleaved([*four, *six]) == [four[0], six[0], *four[1:]]
    assert addresses._interleaved([]) == []


def test_a_real_name_is_found(loop: Loop) -> None:
    try:
        socket.getaddrinfo("localhost", 0)
    except OSError as problem:
        pytest.skip(f"this machine does not know itself as localhost: {problem}")
    server = Server(loop)
    client = Client(loop, f"localhost:{server.listener.port}", b"hi")
    until(loop, lambda: client.heard or client.lost)
    assert client.heard == [b"echo hi"], client.lost


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
    kept[0].on_lost = lambda why, refused: story.append((why, refused))
    kept[0].on_message = story.append
    until(loop, lambda: len(story) == 201)
    assert story == [b"%d" % number for number in range(200)] + [("it ended the connection", False)]


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
    assert client.lost == [("it ended the connection", False)]
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
    assert client.lost == [("it ended the connection", False)]
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


def hello() -> bytes:
    from planaria.base.channel import Channel

    return Channel(token=None, dials=True, nonce=bytes(32)).opening()


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


def test_lines_come_at_most_once_a_second_and_count_the_others() -> None:
    clock = Clock()
    loop = Loop(clock)
    server = Server(loop)
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", server.listener.port)) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
            stream.setblocking(False)
            until(loop, lambda stream=stream: has_ended(stream))  # type: ignore[misc]
    assert len(server.lines) == 1
    clock.now += 0.9
    loop.run_once(0)
    assert len(server.lines) == 1
    clock.now += 0.2
    loop.run_once(0)
    server.listener.close()
    loop.close()
    assert "dropped a connection from 127.0.0.1:" in server.lines[0]
    assert server.lines[0].endswith("it does not speak this protocol")
    assert server.lines[1].endswith("it does not speak this protocol (and 8 more)")


class Told:
    """Complaints on a clock that a test moves, and what was said when."""

    def __init__(self) -> None:
        self.now = 0.0
        self.loop = Loop(lambda: self.now)
        self.said: list[tuple[float, str]] = []
        self.complaints = Complaints(self.loop, lambda line: self.said.append((self.now, line)))

    def pass_s(self, seconds: float, each_s: float = 0.5, *, add: str = "") -> None:
        for _ in range(round(seconds / each_s)):
            if add:
                self.complaints.add(f"dropped {add}", add)
            self.now += each_s
            self.loop.run_once(0)

    def close(self) -> list[tuple[float, str]]:
        self.complaints.close()
        self.loop.close()
        return self.said


def test_equal_complaints_are_said_at_growing_intervals_with_their_number() -> None:
    told = Told()
    told.pass_s(16, add="10.0.0.1:4000")
    told.complaints.add("dropped 10.0.0.1:5000", "10.0.0.1:5000")
    told.pass_s(20)  # and the last is not lost
    assert told.close() == [
        (0.0, "dropped 10.0.0.1:4000"),
        (1.0, "dropped 10.0.0.1:4000"),
        (3.0, "dropped 10.0.0.1:4000 (and 3 more)"),
        (7.0, "dropped 10.0.0.1:4000 (and 7 more)"),
        (15.0, "dropped 10.0.0.1:4000 (and 15 more)"),
        (31.0, "dropped 10.0.0.1:5000 (and 2 more)"),
    ]


def test_complaints_that_go_on_for_hours_are_said_every_five_minutes() -> None:
    told = Told()
    told.pass_s(7200, each_s=20, add="10.0.0.1:4000")
    times = [when for when, _ in told.close()]
    assert {later - earlier for earlier, later in zip(times[-5:], times[-4:], strict=False)} == {300.0}
    assert len(times) < 35


def test_a_complaint_that_was_over_is_news_when_it_comes_again() -> None:
    told = Told()
    told.pass_s(8, add="10.0.0.1:4000")
    told.pass_s(1000, each_s=10)
    before = len(told.said)
    told.pass_s(1.5, add="10.0.0.1:4000")
    assert [when - 1008.0 for when, _ in told.close()[before:]] == [0.0, 1.0]


def test_complaints_of_different_kinds_are_all_said_one_a_second() -> None:
    told = Told()
    for host in range(3):
        told.complaints.add(f"dropped 10.0.0.{host}:1", f"10.0.0.{host}:1")
    told.pass_s(5)
    assert told.close() == [(float(host), f"dropped 10.0.0.{host}:1") for host in range(3)]


def test_a_stranger_that_makes_up_complaints_costs_a_line_a_second_and_little_memory() -> None:
    told = Told()
    for number in range(1000):
        told.complaints.add(f"it sent {number} bytes")
    assert len(told.complaints._kinds) <= 64
    told.pass_s(100)
    said = told.close()
    assert [when for when, _ in said] == [float(second) for second in range(65)]
    assert said[-1][1] == "it sent 999 bytes (and 935 more)"


def test_complaints_that_are_shared_outlive_a_listener(loop: Loop) -> None:
    lines: list[str] = []
    shared = Complaints(loop, lines.append)
    Listener(loop, ("127.0.0.1", 0), lambda _: None, token=None, on_refused=shared).close()
    shared.add("still here")
    assert lines == ["still here"]
    shared.close()


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


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A self-signed certificate for 127.0.0.1 and localhost, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "planaria-test", names="IP:127.0.0.1,DNS:localhost")


def contexts(certificate: Certificate) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    import ssl

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    return server, ssl.create_default_context(cafile=certificate[0])


@pytest.mark.parametrize("token", TOKENS)
def test_tls_carries_messages_of_every_size(loop: Loop, certificate: Certificate, token: bytes | None) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, token=token, tls=ours)
    sent = [b"first", b"", b"x" * 900_000, b"last"]
    client = Client(loop, server.address, *sent, token=token, tls=theirs)
    until(loop, lambda: len(client.heard) == len(sent))
    assert client.heard == [b"echo " + payload for payload in sent]
    assert client.connection is not None
    client.connection.close()
    until(loop, lambda: server.lost)
    assert server.lost == ["it ended the connection"]
    assert server.lines == []


def test_a_certificate_that_nobody_vouched_for_is_refused_and_named_at_both_ends(
    loop: Loop, certificate: Certificate
) -> None:
    import ssl

    ours, _ = contexts(certificate)
    server = Server(loop, tls=ours)
    client = Client(loop, server.address, tls=ssl.create_default_context())
    until(loop, lambda: client.lost and server.lines)
    assert "its TLS certificate is not accepted: self" in client.lost[0][0]
    assert not client.lost[0][1]
    assert "it broke TLS" in server.lines[0]
    assert server.connections == []


def test_a_certificate_for_somebody_else_is_refused(loop: Loop, certificate: Certificate) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, ("127.0.0.2", 0), tls=ours)
    client = Client(loop, f"127.0.0.2:{server.listener.port}", tls=theirs)
    until(loop, lambda: client.lost)
    assert "its TLS certificate is not accepted" in client.lost[0][0]


def test_plain_words_to_a_tls_port_are_refused_with_a_line(loop: Loop, certificate: Certificate) -> None:
    server = Server(loop, tls=contexts(certificate)[0])
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: server.lines and client.lost)
    assert "it broke TLS" in server.lines[0]
    assert server.heard == []


def test_tls_to_a_plain_port_is_a_loss(loop: Loop, certificate: Certificate) -> None:
    server = Server(loop)
    client = Client(loop, server.address, tls=contexts(certificate)[1])
    until(loop, lambda: server.lines and client.lost)
    assert "does not speak this protocol" in server.lines[0]
    assert not client.lost[0][1]


def test_a_wrong_token_under_tls_is_named_at_both_ends(loop: Loop, certificate: Certificate) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, token=b"one", tls=ours)
    client = Client(loop, server.address, token=b"two", tls=theirs)
    until(loop, lambda: server.lines and client.lost)
    assert "another token" in server.lines[0]
    assert "another token" in client.lost[0][0]
