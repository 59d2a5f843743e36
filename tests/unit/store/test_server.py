"""The embedded store when its clients misbehave and its connections break."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
from typing import TYPE_CHECKING

import pytest
from certificates import make_certificate
from strangers import has_ended

from planaria.base.channel import Channel
from planaria.base.loop import Loop
from planaria.base.net import Connection, dial
from planaria.store import client as client_module
from planaria.store import server as server_module
from planaria.store import wire
from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.client import RemoteStore
from planaria.store.model import (
    Absent,
    Changed,
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    List,
    Listed,
    Put,
    Renew,
    Unavailable,
    WatchLost,
    Written,
)
from planaria.store.server import StoreServer
from planaria.testing.store_client import Client, run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from planaria.base.channel import Met


class Place:
    """A server, and the ways to it."""

    def __init__(self, loop: Loop, path: str) -> None:
        self.loop = loop
        self.path = path
        self.lines: list[str] = []
        self.server = StoreServer(loop, path, token=None, on_refused=self.lines.append)
        self._closers: list[Callable[[], object]] = []

    def client(self) -> Client:
        client = Client(self.loop, RemoteStore(self.loop, [self.path], token=None))
        self._closers.append(client.store.close)
        return client

    def restart(self) -> None:
        self.server.close()
        self.server = StoreServer(self.loop, self.path, token=None, on_refused=self.lines.append)

    def stranger(self) -> Stranger:
        stranger = Stranger(self.loop, self.path)
        self._closers.append(stranger.close)
        return stranger

    def close(self) -> None:
        for close in self._closers:
            close()
        self.server.close()


class Stranger:
    """Sends frames of its own making."""

    def __init__(self, loop: Loop, path: str) -> None:
        self._loop = loop
        self.heard: list[wire.FromServer] = []
        self.ended: list[str] = []
        self.connection: Connection | None = None
        dial(loop, path, token=None, timeout_s=30, on_open=self._open, on_lost=self._lost)
        run_until(loop, lambda: self.connection)

    def _open(self, connection: Connection) -> None:
        self.connection = connection
        connection.on_lost = self._lost
        connection.on_message = lambda frame: self.heard.append(wire.decode_from_server(frame))

    def _lost(self, why: str, _met: Met) -> None:
        self.ended.append(why)

    def send(self, *frames: bytes | wire.FromClient) -> None:
        assert self.connection is not None
        for frame in frames:
            self.connection.send(frame if isinstance(frame, bytes) else wire.encode(frame))

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


@pytest.fixture
def place(loop: Loop, tmp_path: Path) -> Iterator[Place]:
    place = Place(loop, os.path.relpath(tmp_path / "s") if len(str(tmp_path)) > 90 else str(tmp_path / "s"))
    yield place
    place.close()


HELLO_BYTES = 40
HELLO = wire.Hello(wire.VERSION)


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x00garbage"],
        [b"{}"],
        [wire.Hello(wire.VERSION + 1)],
        [HELLO, HELLO],
        [wire.Ask(1, Get("k"))],
        [wire.Watch(1, "", 0)],
        [HELLO, b'["ask",1,["get"]]'],
        [HELLO, wire.Watch(1, "line\nbreak", 0)],
        [HELLO, wire.Watch(1, "", 0), wire.Watch(1, "", 0)],
        [HELLO, *[wire.Watch(number, "", 0) for number in range(65)]],
    ],
    ids=["garbage", "object", "version", "twice", "early ask", "early watch", "fields", "prefix", "number", "watches"],
)
def test_who_breaks_the_protocol_is_told_why_and_dropped_with_one_line(
    place: Place, frames: list[bytes | wire.FromClient]
) -> None:
    honest = place.client()
    honest.ask(Put("k", b"v"))
    stranger = place.stranger()
    stranger.send(*frames)
    run_until(place.loop, lambda: stranger.ended)
    assert isinstance(stranger.heard[-1], wire.Bye)
    assert len(place.lines) == 1
    assert isinstance(honest.ask(Get("k")), Found)


def test_many_who_break_the_protocol_cost_one_line_a_second(place: Place) -> None:
    for _ in range(50):
        stranger = place.stranger()
        stranger.send(b"garbage")
        run_until(place.loop, lambda stranger=stranger: stranger.ended)
    assert len(place.lines) < 10


def test_bytes_at_random_hurt_nobody(place: Place) -> None:
    honest = place.client()
    rng = random.Random(7)
    began = place.loop.now()
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.setblocking(False)
            raw.connect(place.path)
            raw.send(b"\xff" + rng.randbytes(rng.randrange(HELLO_BYTES, 4000)))  # less could be the start of a hello
            assert honest.ask(Get("k")) == Absent()
            run_until(place.loop, lambda raw=raw: has_ended(raw))
    assert 1 <= len(place.lines) <= 2 + place.loop.now() - began, "one line a second"


def test_a_client_that_reads_nothing_is_dropped_and_the_server_holds_little_for_it(place: Place) -> None:
    """Each answer has more than half a megabyte; what the client asks for would be 300 MB."""
    honest = place.client()
    for number in range(9):
        honest.ask(Put(f"{number}", bytes(60_000)))
    before_kib = peak_kib(forget=True)
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(place.path)
        raw.sendall(greeting())
        raw.setblocking(False)
        ask = framed(wire.encode(wire.Ask(1, List(""))))
        run_until(place.loop, lambda: len(place.server._clients) == 2)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(600):
                raw.send(ask)
                honest.ask(Get("0"))
        run_until(place.loop, lambda: len(place.server._clients) == 1)
    assert peak_kib() - before_kib < 60_000
    assert isinstance(honest.ask(Get("0")), Found)


def peak_kib(*, forget: bool = False) -> int:
    """Return the most memory this process has had; with `forget`, since now."""
    if forget:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        return int(file.read().partition("VmHWM:")[2].split()[0])


def greeting() -> bytes:
    channel = Channel(token=None, dials=True, nonce=bytes(32))
    return channel.opening() + channel.seal(wire.encode(HELLO))


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_a_watcher_that_does_not_say_that_it_has_seen_gets_one_batch(place: Place) -> None:
    honest = place.client()
    listed = honest.ask(List(""))
    assert isinstance(listed, Listed)
    slow = place.stranger()
    slow.send(HELLO, wire.Watch(7, "", listed.revision))
    run_until(place.loop, lambda: slow.heard)
    for number in range(100):
        honest.ask(Put("k", b"%d" % number))
    told = [message for message in slow.heard if isinstance(message, wire.Told)]
    assert len(told) == 1
    slow.send(wire.Seen(7))
    run_until(place.loop, lambda: len(slow.heard) == 3)
    again = slow.heard[2]
    assert isinstance(again, wire.Told)
    assert len(told[0].changes) + len(again.changes) == 100


def test_a_watch_goes_on_over_a_new_connection_where_it_was(place: Place) -> None:
    reader, writer = place.client(), place.client()
    listed = reader.ask(List(""))
    assert isinstance(listed, Listed)
    watched = reader.watch("", listed.revision)
    for number in range(30):
        writer.ask(Put("k", b"%d" % number))
        if number % 7 == 3:
            break_connection(reader)
    assert [event.value for event in watched.wait_for(30) if isinstance(event, Changed)] == [
        b"%d" % number for number in range(30)
    ]


def break_connection(client: Client) -> None:
    """Lose the connection as the network would: the store learns of it like of any other loss."""
    store = client.store
    assert isinstance(store, RemoteStore)
    if store._connection is not None:
        store._lost("cut by the test", False)


def test_what_was_not_sent_is_done_later_and_what_may_have_been_done_is_said_to_be(place: Place) -> None:
    client = place.client()
    client.ask(Put("k", b"1"))
    answers: dict[str, object] = {}
    client.store.ask(Put("k", b"2"), lambda reply: answers.setdefault("write", reply))
    client.store.ask(Get("k"), lambda reply: answers.setdefault("read", reply))
    break_connection(client)
    client.store.ask(Put("later", b""), lambda reply: answers.setdefault("later", reply))
    run_until(place.loop, lambda: len(answers) == 3)
    assert isinstance(answers["write"], Unavailable)
    assert answers["write"].maybe_done
    assert isinstance(answers["read"], Found)
    assert isinstance(answers["later"], Written)


def test_a_server_in_a_new_life_knows_no_lease_no_revision_and_no_watch_of_the_old(place: Place) -> None:
    client = place.client()
    written, granted = client.ask_all(Put("k", b"v"), Grant(60.0))
    assert isinstance(written, Written)
    assert isinstance(granted, Granted)
    watched = client.watch("", written.revision)
    place.restart()
    assert client.ask(Get("k")) == Absent()
    assert client.ask(Renew(granted.lease)) == LeaseGone()
    assert not isinstance(client.ask(Put("k", b"w", expect=written.revision)), Written)
    assert watched.wait_for(1) == [WatchLost()]


def test_without_a_server_requests_are_answered_at_their_deadline_with_the_reason(loop: Loop, tmp_path: Path) -> None:
    client = Client(loop, RemoteStore(loop, [str(tmp_path / "nobody")], token=None))
    write, read = client.ask_all(Put("k", b"v"), Get("k"), timeout_s=0.3)
    for reply in (write, read):
        assert isinstance(reply, Unavailable)
        assert not reply.maybe_done
        assert "nobody" in reply.why
    client.store.close()


def test_the_next_address_is_tried_when_one_does_not_answer(place: Place, tmp_path: Path) -> None:
    store = RemoteStore(place.loop, [str(tmp_path / "nobody"), place.path], token=None)
    assert Client(place.loop, store).ask(Get("k")) == Absent()
    store.close()


def test_a_server_that_falls_silent_is_noticed_and_found_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PROBE_AFTER_S", 0.2)
    client = place.client()
    listed = client.ask(List(""))
    assert isinstance(listed, Listed)
    watched = client.watch("", listed.revision)
    [served] = place.server._clients.values()
    served._connection.on_message = None  # as if the other host were gone: nothing comes back, nothing breaks
    run_until(place.loop, lambda: len(place.server._clients) == 2)
    other = place.client()
    written = other.ask(Put("k", b"v"))
    assert isinstance(written, Written)
    assert watched.wait_for(1) == [Changed("k", b"v", written.revision)]


def test_a_client_that_falls_silent_is_dropped(
    place: Place, monkeypatch: pytest.MonkeyPatch, loop: Loop, tmp_path: Path
) -> None:
    monkeypatch.setattr(server_module, "_SILENT_LIMIT_S", 0.2)
    server = StoreServer(loop, str(tmp_path / "t"), token=None)
    silent = Stranger(loop, str(tmp_path / "t"))
    silent.send(HELLO)
    run_until(loop, lambda: silent.ended)
    server.close()


def test_tokens_that_differ_are_said_to_differ(loop: Loop, tmp_path: Path) -> None:
    lines: list[str] = []
    server = StoreServer(loop, ("127.0.0.1", 0), token=b"one", on_refused=lines.append)
    client = Client(loop, RemoteStore(loop, [f"127.0.0.1:{server.port}"], token=b"another"))
    reply = client.ask(Get("k"), timeout_s=0.5)
    assert isinstance(reply, Unavailable)
    assert "token" in reply.why
    assert lines
    client.store.close()
    server.close()


@pytest.mark.skipif(not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"), reason="no IPv6 here")
def test_the_store_is_reached_by_ipv6(loop: Loop) -> None:
    try:
        server = StoreServer(loop, ("::1", 0), token=b"token")
    except OSError as exc:
        pytest.skip(f"no IPv6 loopback here: {exc}")
    store = open_store("embedded", loop, Where((f"[::1]:{server.port}",), b"token"))
    assert Client(loop, store).ask(Get("k")) == Absent()
    store.close()
    server.close()


def test_tls_is_underneath_where_certificates_are_named(loop: Loop, tmp_path: Path) -> None:
    ours = make_certificate(tmp_path, "ours", names="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours)
    server = StoreServer(loop, ("127.0.0.1", 0), token=b"token", tls=context)
    address = f"127.0.0.1:{server.port}"
    trusting = Client(loop, open_store("embedded", loop, Where((address,), b"token", ca=ours.cert)))
    assert isinstance(trusting.ask(Put("k", b"v" * 60_000)), Written)
    assert isinstance(trusting.ask(Get("k")), Found)
    plain = Client(loop, open_store("embedded", loop, Where((address,), b"token")))
    assert isinstance(plain.ask(Get("k"), timeout_s=0.5), Unavailable)
    for client in (trusting, plain):
        client.store.close()
    server.close()
