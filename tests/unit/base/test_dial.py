"""Dialling: refusals, losses, and names with several addresses."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest
from net_ends import Client, Names, Server, descriptors, until
from ports import free_port

from planaria.base import dial as dialling_module
from planaria.base.channel import NOBODY, PEER, REFUSED, STRANGER
from planaria.base.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_nobody_listening_is_a_refusal(loop: Loop) -> None:
    client = Client(loop, f"127.0.0.1:{free_port()}")
    assert client.lost == []  # never from inside the call
    until(loop, lambda: client.lost)
    why, met = client.lost[0]
    assert met == REFUSED
    assert "Connection refused" in why


def test_a_path_nobody_made_is_lost_but_no_refusal(loop: Loop, tmp_path: Path) -> None:
    client = Client(loop, str(tmp_path / "none"))
    until(loop, lambda: client.lost)
    assert "No such file" in client.lost[0][0]
    assert client.lost[0][1] == NOBODY


def test_silence_ends_in_a_loss_after_the_timeout_and_is_no_refusal(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel connects; nobody shakes hands
        before = descriptors()
        client = Client(loop, f"127.0.0.1:{silent.getsockname()[1]}", token=b"secret", timeout_s=0.2)
        until(loop, lambda: client.lost)
        assert client.lost == [(f"cannot reach 127.0.0.1:{silent.getsockname()[1]} (no answer within 0.2 s)", NOBODY)]
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
    assert client.lost[0][1] == NOBODY
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
    assert client.lost[0][1] == REFUSED
    assert stream.fileno() == -1


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
    assert both.lost[0][1] == REFUSED
    assert "127.0.0.9" in both.lost[0][0]
    assert "127.0.0.8" in both.lost[0][0]
    Names(monkeypatch, "127.0.0.9", "255.255.255.255")  # no route to a broadcast address for TCP
    one = Client(loop, f"another:{port}")
    until(loop, lambda: one.lost)
    assert one.lost[0][1] == NOBODY


@contextlib.contextmanager
def one_who_hangs_up(loop: Loop, host: str, port: int) -> Iterator[None]:
    with socket.create_server((host, port)) as stream:

        def hang_up() -> None:
            guest, _ = stream.accept()
            guest.close()

        loop.on_readable(stream.fileno(), hang_up)
        try:
            yield
        finally:
            loop.forget(stream.fileno())


@pytest.mark.parametrize("order", [1, -1], ids=["the most last", "the most first"])
def test_of_several_addresses_the_one_that_met_us_with_the_most_counts(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    server = Server(loop, ("127.0.0.7", 0), token=b"theirs")
    address = f"node:{server.listener.port}"
    Names(monkeypatch, *["127.0.0.9", "255.255.255.255", "127.0.0.7"][::order])
    peer = Client(loop, address, token=b"ours")
    until(loop, lambda: peer.lost)
    assert peer.lost[0][1] == PEER
    Names(monkeypatch, *["255.255.255.255", "127.0.0.9", "127.0.0.8"][::order])
    with one_who_hangs_up(loop, "127.0.0.8", server.listener.port):
        stranger = Client(loop, address.replace("node", "another"), token=b"ours")
        until(loop, lambda: stranger.lost)
    assert stranger.lost[0][1] == STRANGER


def test_a_name_nobody_knows_is_a_loss(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch)
    client = Client(loop, "nowhere:80")
    until(loop, lambda: client.lost)
    assert client.lost == [("cannot reach nowhere:80 (cannot look up nowhere: Name or service not known)", NOBODY)]
