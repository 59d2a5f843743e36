"""Addresses as text, and look-ups of names that do not hold up the loop."""

from __future__ import annotations

import socket
import threading
from typing import NoReturn

import pytest
from net_ends import Client, Names, Server, descriptors, until

from planaria.base import addresses
from planaria.base.loop import Loop
from planaria.base.net import join_address, split_address


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


def test_that_there_is_no_answer_is_not_asked_again_at_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int, flags: int) -> NoReturn:
        asked.append(host)
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(addresses, "_resolve", resolve)
    heard: list[object] = []
    addresses.look_up(loop, "gone", 1, heard.append)
    until(loop, lambda: heard)
    addresses.look_up(loop, "gone", 1, heard.append)
    until(loop, lambda: len(heard) == 2)
    assert heard == ["cannot look up gone: Name or service not known"] * 2
    assert asked == ["gone"]
    addresses._KNOWN[(loop, "gone", 1)] = (loop.now(), "")
    addresses.look_up(loop, "gone", 1, heard.append)
    until(loop, lambda: len(heard) == 3)
    assert asked == ["gone", "gone"]


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
