"""The HTTP server on a loop whose clock the test moves: what strangers do costs them their connection and nobody else."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from planaria.base.loop import Loop
from planaria.observe import http
from planaria.observe.http import OWNER, HttpServer, Peer, is_loopback
from planaria.observe.request import HEAD_LIMIT_BYTES, Reply, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.observe.http import Respond

GET = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"


class House:
    """A server, its clock, and what it was asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[Request] = []
        self.peers: list[Peer] = []
        self.later: list[Respond] = []
        self.respond_now = True
        self.visitors: list[socket.socket] = []
        self.server = HttpServer(self.loop, self.answer)

    def answer(self, request: Request, peer: Peer, respond: Respond) -> None:
        self.asked.append(request)
        self.peers.append(peer)
        if self.respond_now:
            respond(Reply(200, b"yes\n"))
        else:
            self.later.append(respond)

    def visit(self, said: bytes = b"") -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(10)
        self.visitors.append(theirs)
        self.server.take(socket.socket(fileno=ours.detach()), OWNER)  # type: ignore[arg-type]
        with suppress(BrokenPipeError):  # one too many was dropped at once
            theirs.sendall(said)
        self.turn()
        return theirs

    def turn(self, passed_s: float = 0.0) -> None:
        self.now += passed_s
        for _ in range(12):
            self.loop.run_once(0.0)


@pytest.fixture
def house() -> Iterator[House]:
    found = House()
    yield found
    found.server.close()
    found.loop.close()
    for visitor in found.visitors:
        visitor.close()


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_requests_on_one_connection_are_answered_one_after_the_other(house: House) -> None:
    client = house.visit(GET + GET.replace(b"GET /x", b"HEAD /y") + GET.replace(b"/x", b"/z"))
    said = client.recv(65536)
    assert [request.path for request in house.asked] == ["/x", "/y", "/z"]
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert said.count(b"yes\n") == 2, "a HEAD has no body"
    assert not is_closed(client)


def test_a_request_may_come_byte_by_byte(house: House) -> None:
    client = house.visit()
    for byte in GET.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nbody"):
        client.sendall(bytes([byte]))
        house.turn(0.001)
    assert house.asked[0].body == b"body"
    assert client.recv(99).startswith(b"HTTP/1.1 200")


def test_who_drips_bytes_is_dropped_all_the_same(house: House) -> None:
    client = house.visit()
    for byte in GET[:20]:
        client.sendall(bytes([byte]))
        house.turn(0.2)
    house.turn(http.REQUEST_S)
    assert is_closed(client)
    assert house.asked == []


def test_who_says_nothing_is_dropped_and_one_who_asked_before_a_little_later(house: House) -> None:
    silent, polite = house.visit(), house.visit(GET)
    polite.recv(999)
    house.turn(http.REQUEST_S + 0.1)
    assert is_closed(silent)
    assert not is_closed(polite)
    house.turn(http.IDLE_S)
    assert is_closed(polite)


def test_a_head_that_never_ends_is_refused_and_the_answer_arrives(house: House) -> None:
    client = house.visit(b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_LIMIT_BYTES)
    assert client.recv(999).startswith(b"HTTP/1.1 431 ")
    client.sendall(b"b" * 50_000)  # it goes on, and is read for a moment so that the answer is not lost
    house.turn()
    house.turn(http.LINGER_S + 0.1)
    assert is_closed(client)


def test_who_asks_for_a_close_gets_one(house: House) -> None:
    client = house.visit(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert b"Connection: close" in client.recv(999)
    assert client.recv(1) == b""
    client.close()
    house.turn()
    assert not house.server._clients


def test_one_who_has_nothing_more_to_say_is_answered_still(house: House) -> None:
    house.respond_now = False
    client = house.visit(GET)
    client.shutdown(socket.SHUT_WR)
    house.turn()
    house.later[0](Reply(200, b"late\n"))
    house.turn()
    assert client.recv(999).endswith(b"late\n")


def test_only_the_first_response_counts_and_one_to_a_client_that_left_is_dropped(house: House) -> None:
    house.respond_now = False
    client = house.visit(GET)
    house.later[0](Reply(200, b"first\n"))
    house.later[0](Reply(200, b"second\n"))
    house.turn()
    assert client.recv(999).count(b"HTTP/1.1") == 1
    gone = house.visit(GET)
    gone.close()
    house.turn()
    house.later[1](Reply(200, b"x" * 10))
    house.turn()
    house.server.close()
    house.later[1](Reply(200, b"x"))


def test_who_does_not_take_its_answer_is_dropped(house: House) -> None:
    house.respond_now = False
    client = house.visit(GET)
    house.later[0](Reply(200, b"x" * (8 << 20)))
    house.turn()
    assert house.server._clients
    house.turn(http.TAKE_S + 0.1)
    assert not house.server._clients
    client.close()


def test_when_many_wait_the_oldest_silent_one_makes_room(house: House) -> None:
    silent = [house.visit() for _ in range(http.MOST_CLIENTS)]
    client = house.visit(GET)
    assert client.recv(999).startswith(b"HTTP/1.1 200")
    assert is_closed(silent[0])
    assert not is_closed(silent[1])


def test_those_who_wait_for_an_answer_are_not_dropped_for_others(house: House) -> None:
    house.respond_now = False
    waiting = [house.visit(GET) for _ in range(http.MOST_CLIENTS)]
    late = house.visit(GET)
    assert is_closed(late)
    for respond in house.later:
        respond(Reply(200, b"ok\n"))
    house.turn()
    assert all(client.recv(999).startswith(b"HTTP/1.1 200") for client in waiting)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_it_listens_and_knows_who_is_of_this_machine(house: House, family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    listening = socket.socket(family)
    try:
        listening.bind((host, 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    listening.listen()
    listening.setblocking(False)
    port = listening.getsockname()[1]
    house.server.listen(socket.socket(fileno=listening.detach()))  # type: ignore[arg-type]
    with socket.create_connection((host, port), 10) as client:
        client.sendall(GET)
        house.turn(0.3)
        assert client.recv(999).startswith(b"HTTP/1.1 200")
    assert house.peers == [Peer(is_loopback=True)]


def test_a_flood_of_connections_is_taken_in_turns(house: House) -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)
    listening.setblocking(False)
    port = listening.getsockname()[1]
    house.server.listen(socket.socket(fileno=listening.detach()))  # type: ignore[arg-type]
    flood = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(120)]
    house.loop.run_once(0.0)
    assert len(house.server._clients) == 16
    for _ in range(20):
        house.turn(0.03)
    assert len(house.server._clients) <= http.MOST_CLIENTS
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(GET)
        for _ in range(20):
            house.turn(0.03)
        assert client.recv(999).startswith(b"HTTP/1.1 200")
    for one in flood:
        one.close()


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("::2", False),
        ("1270.0.0.1", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, is_it: bool) -> None:
    assert is_loopback(host) == is_it


def test_a_client_that_resets_its_connection_costs_nothing(house: House) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    port = listening.getsockname()[1]
    house.server.listen(socket.socket(fileno=listening.detach()))  # type: ignore[arg-type]
    make: Callable[[], socket.socket] = lambda: socket.create_connection(("127.0.0.1", port), 10)  # noqa: E731
    with make() as client:
        client.sendall(GET[:10])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    house.turn(0.3)
    assert not house.server._clients
