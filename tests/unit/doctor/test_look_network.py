"""Knocking at real ports of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from planaria.base.channel import Channel
from planaria.doctor.look_network import is_alive, port_facts


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
