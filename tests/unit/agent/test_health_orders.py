"""Orders that come while a node goes, and mistakes of our own: neither may be lost, nor end a job."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from planaria.agent.health import Health
from planaria.agent.model import EndRequested, Group, Job
from planaria.agent.settings import HealthCheck, Meeting
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.observe import responder
from planaria.observe.request import Reply, Request
from planaria.process.model import Command
from planaria.rendezvous.driver import Snapshot

ALONE = Job(Command("script", "a.py", ()), 1, "job7", "default", 3, 30.0, (15,), {})
MANY = replace(ALONE, meeting=Meeting("embedded", ("h:1",), "job7", 1, 2))


class FakeDriver:
    """A group at whatever it is, and a seat among others."""

    def __init__(self, group: Group, seen: Snapshot) -> None:
        self.group = group
        self.life = None
        self.progress: dict[int, tuple[Any, float]] = {}
        self.commits: dict[str, Any] = {}
        self.reserve = None
        self.vigil = None
        self.was_noticed = False
        self.workers = type("Workers", (), {"seen": ()})()
        self.observer = None
        self.control = type("Control", (), {"has_listeners": False})()
        self.seat = type("Seat", (), {"snapshot": lambda _self: seen})()
        self.posted: list[Any] = []

    def post(self, event: Any) -> None:
        self.posted.append(event)


def stop(loop: Loop, job: Job, phase: Any, seen: Snapshot, *, run_over: bool = False) -> tuple[Reply, list[Any]]:
    group = Group(size=1, max_restarts=0, grace_s=1.0, phase=phase, alone=job.meeting is None, run_over=run_over)
    driver = FakeDriver(group, seen)
    reply = Health(job, loop, driver, print).reply_to(Request("POST", "/v1/stop", {}))  # type: ignore[arg-type]
    loop.run_once(0.0)
    return reply, driver.posted


IN_TOUCH, LOST = Snapshot(has_leader=True), Snapshot(has_leader=False)


@pytest.mark.parametrize("phase", ["draining", "finishing"])
def test_a_node_that_drains_passes_a_stop_on(loop: Loop, phase: str) -> None:
    reply, posted = stop(loop, MANY, phase, IN_TOUCH)
    assert (reply.status, [type(event) for event in posted]) == (202, [EndRequested])


@pytest.mark.parametrize(
    ("phase", "seen", "why"),
    [
        ("leaving", IN_TOUCH, b"this node has said goodbye to the run already; ask another of its nodes\n"),
        ("draining", LOST, b"this node drains and is not in touch with the others; ask another node of the run\n"),
        ("finishing", LOST, b"this node drains and is not in touch with the others; ask another node of the run\n"),
    ],
)
def test_what_cannot_be_passed_on_is_not_accepted(loop: Loop, phase: str, seen: Snapshot, why: bytes) -> None:
    reply, posted = stop(loop, MANY, phase, seen)
    assert (reply.status, reply.body, posted) == (409, why, [])


@pytest.mark.parametrize("phase", ["waiting", "running", "stopping"])
def test_who_stays_may_find_a_leader_later(loop: Loop, phase: str) -> None:
    assert stop(loop, MANY, phase, LOST)[0].status == 202


def test_a_run_that_has_ended_needs_nobody_to_be_told(loop: Loop) -> None:
    assert stop(loop, MANY, "finishing", LOST, run_over=True)[0].status == 202
    assert stop(loop, ALONE, "draining", LOST)[0].status == 202


def test_a_mistake_of_ours_costs_one_answer_and_is_said_once(loop: Loop) -> None:
    def broken() -> str:
        raise OverflowError("int too large")

    said: list[str] = []
    driver = FakeDriver(Group(size=1, max_restarts=0, grace_s=1.0, phase="running"), LOST)
    health = Health(ALONE, loop, driver, said.append, broken)  # type: ignore[arg-type]
    for _ in range(2):
        reply = health.reply_to(Request("GET", "/metrics", {}))
        assert (reply.status, reply.body) == (500, b"this is a bug of planaria's: OverflowError('int too large')\n")
    assert said == [
        "cannot answer /metrics, which is a bug of planaria's: OverflowError('int too large'); the job goes on"
    ]
    assert health.reply_to(Request("GET", "/livez", {})).status == 200


def test_where_no_thread_can_be_started_the_port_is_given_back(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(responder._thread, "start_new_thread", none_left)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said: list[str] = []
    driver = FakeDriver(Group(size=1, max_restarts=0, grace_s=1.0, phase="running"), LOST)
    Health(ALONE, loop, driver, said.append).open(HealthCheck(port))  # type: ignore[arg-type]
    assert said == [f"no health check at 127.0.0.1:{port}: can't start new thread; the job goes on without it"]
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))
