"""The server in its own thread, over real sockets."""

from __future__ import annotations

import socket
import threading

import pytest

from planaria.observe.request import Reply
from planaria.observe.responder import Responder

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def ask(port: int, host: str = "127.0.0.1") -> bytes:
    with socket.create_connection((host, port), 20) as client:
        client.sendall(GET)
        found = b""
        while chunk := client.recv(65536):
            found += chunk
        return found


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "", "::1"])
def test_it_answers_in_a_thread_of_its_own_until_it_is_stopped(host: str) -> None:
    threads: list[int] = []
    try:
        responder = Responder(
            host, 0, lambda _q, _p, respond: (threads.append(threading.get_ident()), respond(Reply(200, b"hello\n")))
        )
    except OSError:
        pytest.skip(f"this machine has no {host}")
    responder.start()
    assert ask(responder.port, "::1" if host == "::1" else "127.0.0.1").endswith(b"\r\n\r\nhello\n")
    assert threads
    assert threads[0] != threading.get_ident()
    responder.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(responder.port, "::1" if host == "::1" else "127.0.0.1")


def test_a_port_that_is_taken_is_an_error_of_the_constructor() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        Responder("127.0.0.1", taken.getsockname()[1], lambda *_: None)


def test_a_response_may_come_from_another_thread_through_its_post() -> None:
    waiting: list[object] = []
    asked = threading.Event()
    responder = Responder("127.0.0.1", 0, lambda _q, _p, respond: (waiting.append(respond), asked.set()))
    responder.start()

    def later() -> None:
        assert asked.wait(20)
        responder.post(lambda: waiting[0](Reply(200, b"posted\n")))  # type: ignore[operator]

    thread = threading.Thread(target=later)
    thread.start()
    assert ask(responder.port).endswith(b"posted\n")
    thread.join(20)
    responder.stop()


def test_one_that_was_never_started_can_be_stopped() -> None:
    responder = Responder("127.0.0.1", 0, lambda *_: None)
    responder.stop()
    with socket.create_server(("127.0.0.1", responder.port)):
        pass
