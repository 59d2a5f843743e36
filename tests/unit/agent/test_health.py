"""The agent's answers, with a driver of the test's own and a real loop; over TCP the thread is real, too."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from clocks import Leaping

from planaria.agent.door import Door
from planaria.agent.health import MOST_QUESTIONS, Health
from planaria.agent.model import EndRequested, Group, Job, StopRequested
from planaria.agent.settings import HealthCheck
from planaria.base.loop import Loop
from planaria.observe.request import Reply, Request
from planaria.process.model import Command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = Job(Command("script", "a.py", ()), 1, "job7", "default", 3, 30.0, (15,), {})
PATIENCE_S = 30.0


class FakeDriver:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.group = Group(size=1, max_restarts=3, grace_s=30.0, phase="running")
        self.life = None
        self.progress: dict[int, tuple[Any, float]] = {}
        self.commits: dict[str, Any] = {}
        self.reserve = None
        self.vigil = None
        self.was_noticed = False
        self.workers = type("Workers", (), {"seen": ()})()
        self.observer = None
        self.control = type("Control", (), {"has_listeners": True})()
        self.posted: list[Any] = []

    def post(self, event: Any) -> None:
        self.posted.append(event)


class Desk:
    """A loop, its driver, and the answers."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.driver = FakeDriver()
        self.said: list[str] = []
        self.health = Health(JOB, self.loop, self.driver, self.said.append)  # type: ignore[arg-type]

    def ask(self, path: str, body: bytes = b"") -> Reply:
        reply = self.health.reply_to(Request("POST" if body else "GET", path, {}, body=body))
        self.loop.run_once(0.0)
        return reply

    def open(self, **settings: Any) -> int:
        self.health.open(HealthCheck(0, **settings))
        return int(self.said[0].rstrip("/").rpartition(":")[2])

    def turn_until(self, thread: threading.Thread) -> None:
        deadline = self.loop.now() + PATIENCE_S
        while thread.is_alive() and self.loop.now() < deadline:
            self.loop.run_once(0.01)
        thread.join(PATIENCE_S)


@pytest.fixture
def desk() -> Iterator[Desk]:
    found = Desk()
    yield found
    if found.health._far is not None:
        found.health._far.responder.stop()
    found.loop.close()


def get(port: int, path: str = "/livez") -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        found = b""
        while chunk := client.recv(65536):
            found += chunk
    return int(found.split(b" ")[1]), found.partition(b"\r\n\r\n")[2]


def test_a_drain_is_sigterm_and_a_stop_the_end_of_the_run(desk: Desk) -> None:
    assert desk.ask("/v1/drain").status == 202
    assert isinstance(desk.driver.posted[0], StopRequested)
    assert desk.driver.posted[0].signal == 15
    reply = desk.ask("/v1/stop", b'{"grace_s": 2.5}')
    assert json.loads(reply.body) == {"schema": 1, "accepted": "the whole job is told to end", "state": "running"}
    stop = desk.driver.posted[1]
    assert isinstance(stop, EndRequested)
    assert (stop.grace_s, stop.has_listeners) == (2.5, True)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"1",
        b'{"grace": 1}',
        b'{"grace_s": -1}',
        b'{"grace_s": "1"}',
        b'{"grace_s": true}',
        b'{"grace_s": NaN}',
        b'{"grace_s": 1e99}',
        b'{"grace_s": null}',
        b"[" * 4000,
        b"\xff",
    ],
)
def test_an_order_that_makes_no_sense_is_refused(desk: Desk, body: bytes) -> None:
    assert desk.ask("/v1/stop", body).status == 400
    assert desk.driver.posted == []


@pytest.mark.parametrize("phase", ["draining", "finishing", "leaving", "done"])
def test_what_an_order_means_to_a_group_that_ends_is_for_its_machine_to_say(desk: Desk, phase: Any) -> None:
    desk.driver.group = Group(size=1, max_restarts=0, grace_s=1.0, phase=phase)
    assert desk.ask("/v1/drain").status == desk.ask("/v1/stop").status == 202
    assert [type(event) for event in desk.driver.posted] == [StopRequested, EndRequested]


def test_metrics_are_whatever_the_registry_says(desk: Desk) -> None:
    assert b"planaria_ready 1\n" in desk.ask("/metrics").body
    health = Health(JOB, desk.loop, desk.driver, desk.said.append, lambda: "mine 1\n")  # type: ignore[arg-type]
    reply = health.reply_to(Request("GET", "/metrics", {}))
    assert (reply.body.startswith(b"mine 1\n# HELP planaria_ready "), reply.content_type) == (
        True,
        "text/plain; version=0.0.4; charset=utf-8",
    )


def test_without_a_descriptor_a_file_is_not_read_and_the_job_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    replies: list[Reply] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", refuse)
        desk.health.answer(Request("GET", "/v1/logs", {}), replies.append)
    assert (replies[0].status, replies[0].body) == (503, b"it cannot be read now: Too many open files\n")
    desk.health.answer(Request("GET", "/v1/logs", {}), replies.append)
    while len(replies) < 2:
        desk.loop.run_once(1.0)
    assert replies[1].status == 404


def test_a_mistake_of_ours_that_a_thread_makes_is_said_on_the_loop(desk: Desk) -> None:
    said: list[tuple[str, threading.Thread]] = []
    desk.health._say = lambda line: said.append((line, threading.current_thread()))
    desk.driver.observer = 7  # type: ignore[assignment]  # our bug
    replies: list[Reply] = []
    desk.health.answer(Request("GET", "/v1/logs", {}, query="local_rank=0"), replies.append)
    while not replies:
        desk.loop.run_once(1.0)
    assert replies[0].status == 500
    [(line, thread)] = said
    assert line.startswith("cannot answer /v1/logs, which is a bug of planaria's: AttributeError(")
    assert thread is threading.current_thread()


def test_a_loop_that_turns_answers_through_the_thread(desk: Desk) -> None:
    port = desk.open()
    found: list[tuple[int, bytes]] = []
    thread = threading.Thread(target=lambda: found.extend([get(port), get(port, "/readyz"), get(port, "/v1/status")]))
    thread.start()
    desk.turn_until(thread)
    assert [code for code, _ in found] == [200, 200, 200]
    assert found[0][1] == b"the loop turns\n"
    assert json.loads(found[2][1])["job"]["address"] == f"127.0.0.1:{port}"


def test_a_loop_that_does_not_turn_is_alive_until_its_time_is_over(desk: Desk) -> None:
    port, clock = desk.open(timeout_s=1000.0), Leaping()
    assert desk.health._far is not None
    desk.health._far.responder.loop._clock = clock
    code, why = get(port)  # nobody turns the loop
    assert code == 200
    assert why.startswith(b"the agent's loop has not answered for ")
    clock.ahead_s = 1000.0
    code, why = get(port)
    assert code == 503
    assert float(why.split()[-2]) >= 1000.0
    thread = threading.Thread(target=lambda: get(port))
    thread.start()
    desk.turn_until(thread)
    code, why = get(port)
    assert code == 200, "it turned, and stands again"
    assert why.startswith(b"the agent's loop has not answered for ")


def test_questions_that_a_stuck_loop_cannot_answer_do_not_pile_up(desk: Desk) -> None:
    port = desk.open()
    far = desk.health._far
    assert far is not None
    far._put = MOST_QUESTIONS
    assert get(port, "/readyz")[0] == 503
    assert far._put == MOST_QUESTIONS


def test_the_door_lets_our_own_user_in(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.mktemp("d") / "http"
    door = Door(desk.loop, str(path), desk.health.welcome)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(path))
        client.sendall(b"POST /v1/drain HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(8):
            desk.loop.run_once(0.05)
        assert client.recv(999).startswith(b"HTTP/1.1 202 ")
    assert len(desk.driver.posted) == 1
    assert desk.health._door is not None
    desk.health._door.close()
    door.close()
