"""torch's interface of a health check, with a server behind it."""

from __future__ import annotations

import logging
import socket
import time
import urllib.error
import urllib.request

import pytest

from planaria.elastic.agent.server.health_check_server import HealthCheckServer, create_healthcheck_server


def get(port: int, path: str = "/livez", method: str = "GET") -> tuple[int, str]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.read().decode()


def test_it_says_alive_while_the_last_progress_is_young_enough() -> None:
    progress = [int(time.time())]
    server = create_healthcheck_server(lambda: progress[0], 0, 60)
    assert server.alive_callback() == progress[0]
    server.start()
    try:
        assert get(server.port) == get(server.port, "/") == (200, "alive\n")
        assert get(server.port, method="HEAD") == (200, "")
        progress[0] -= 100
        status, why = get(server.port)
        assert status == 503
        assert why.startswith("no progress for 1")
        progress[0] += 100
        assert get(server.port)[0] == 200
    finally:
        server.stop()


def test_a_callback_that_fails_is_no_sign_of_life() -> None:
    def broken() -> int:
        raise RuntimeError("secret")

    server = HealthCheckServer(broken, 0, 60)
    server.start()
    try:
        assert get(server.port) == (503, "the callback failed: RuntimeError\n")
        assert get(server.port, "/nope")[0] == 404
        assert get(server.port, method="POST")[0] == 405
    finally:
        server.stop()


def test_it_can_be_started_and_stopped_again_and_twice() -> None:
    server = HealthCheckServer(lambda: int(time.time()), 0, 60)
    server.stop()
    for _ in range(2):
        server.start()
        server.start()
        port = server.port
        assert get(port)[0] == 200
        server.stop()
        server.stop()
        with pytest.raises(urllib.error.URLError):
            get(port)


def test_a_port_in_use_is_one_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.WARNING):
        port = taken.getsockname()[1]
        server = HealthCheckServer(lambda: 0, port, 60)
        server.start()
        server.stop()
    assert [record.getMessage() for record in caplog.records] == [
        f"no health check at 127.0.0.1:{port}: [Errno 98] Address already in use"
    ]


def test_a_subclass_may_serve_by_other_means() -> None:
    class Mine(HealthCheckServer):
        def __init__(self, alive_callback: object, port: int, timeout: int) -> None:
            super().__init__(alive_callback, port, timeout)  # type: ignore[arg-type]
            self.calls: list[str] = []

        def start(self) -> None:
            self.calls.append(f"start {self._port} {self._timeout} {self._alive_callback()}")

        def stop(self) -> None:
            self.calls.append("stop")

    server = Mine(lambda: 7, 8080, 60)
    server.start()
    server.stop()
    assert server.calls == ["start 8080 60 7", "stop"]
