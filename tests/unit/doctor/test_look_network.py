"""Knocking at real ports of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from planaria.base.channel import Channel
from planaria.doctor import look_network
from planaria.doctor.look_network import dns_facts, is_alive, network_facts, port_facts
from planaria.doctor.ports import PortSeen


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(30)
        yield found


def state(server: socket.socket, *, is_ours: bool = True) -> str:
    [seen] = port_facts((f"127.0.0.1:{server.getsockname()[1]}",), None, is_ours=is_ours).seen
    assert seen.is_here
    return seen.state


def answering(server: socket.socket, words: bytes) -> threading.Thread:
    """Answer the second connection: the first one only knocks."""

    def answer() -> None:
        server.accept()[0].close()
        with server.accept()[0] as door:
            door.sendall(words)
            door.recv(1)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (Channel(token=None, dials=True, nonce=bytes(32)).opening(), "ours"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "taken"),
    ],
)
def test_who_listens_is_known_by_its_first_words(server: socket.socket, words: bytes, expected: str) -> None:
    thread = answering(server, words)
    assert state(server) == expected
    thread.join()


def test_who_is_no_agent_anyway_is_not_asked(server: socket.socket) -> None:
    assert state(server, is_ours=False) == "answered"


def test_a_port_that_is_free_stays_so(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    for _ in range(2):
        assert port_facts((f"127.0.0.1:{port}",), None, is_ours=True).seen[0].state == "free"


def test_a_name_that_is_none_is_left_to_the_check_of_names() -> None:
    assert port_facts(("no.such.host.invalid:1",), None, is_ours=True).seen[0].state == "unknown"


def test_a_host_that_refuses_lives() -> None:
    assert is_alive("127.0.0.1")


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have short limits, and whoever waits for this event wait for longer than any of them."""
    monkeypatch.setattr(look_network, "LOOK_UP_S", 0.3)
    monkeypatch.setattr(look_network, "ENDPOINT_S", 0.6)
    event = threading.Event()
    yield event
    event.set()


def test_name_servers_that_are_silent_leave_names_unknown_and_those_in_digits_known(
    monkeypatch: pytest.MonkeyPatch, stuck: threading.Event
) -> None:
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *words: object, **more: object) -> object:
        if host != "127.0.0.1":
            stuck.wait(60)
        return real(host, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(look_network.socket, "getaddrinfo", getaddrinfo)
    endpoints = ("127.0.0.1:1", "n0:1", "n1:1")
    dns = dns_facts(endpoints, {})
    assert [(one.name, one.problem) for one in (dns.own, *dns.endpoints)][1:] == [
        ("127.0.0.1", ""),
        ("n0", "no answer within 0.3 s"),
        ("n1", "no answer within 0.3 s"),
    ]
    assert dns.own.problem == "no answer within 0.3 s"
    assert [one.endpoint for one in network_facts(endpoints, {}).routes] == ["127.0.0.1:1"]
    states = [one.state for one in port_facts(endpoints, None, is_ours=True).seen]
    assert states[1:] == ["unknown", "unknown"]


def test_silent_endpoints_are_knocked_at_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """All six are in the knocking at once, or the barrier breaks."""
    all_six = threading.Barrier(6)

    def knock(endpoint: str, _target: object) -> PortSeen:
        all_six.wait(60)
        return PortSeen(endpoint, False, "refused")

    monkeypatch.setattr(look_network, "_knock", knock)
    monkeypatch.setattr(look_network, "_bind", lambda *_: None)
    monkeypatch.setattr(look_network, "KNOCK_S", 60.0)
    monkeypatch.setattr(look_network, "ENDPOINT_S", 60.0)
    seen = port_facts(tuple(f"127.0.0.1:{port}" for port in range(1, 7)), None, is_ours=True).seen
    assert [one.state for one in seen] == ["refused"] * 6


def test_an_endpoint_that_takes_too_long_is_silent(monkeypatch: pytest.MonkeyPatch, stuck: threading.Event) -> None:
    refused = PortSeen("127.0.0.1:1", False, "refused")
    monkeypatch.setattr(look_network, "_meet", lambda *_: refused if stuck.wait(60) else None)
    [seen] = port_facts(("127.0.0.1:1",), None, is_ours=True).seen
    assert (seen.state, seen.why) == ("silent", "no answer within 0.6 s")
