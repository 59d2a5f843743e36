"""The checks as a process: what it says, what it does not say in time, and what cannot be started."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from typing import Any

import pytest

from planaria.agent import preflight
from planaria.agent.model import CHECKING, FINISHING, CheckNode, Group, Job, TellSetAside
from planaria.agent.preflight import Preflight, has_endpoint
from planaria.agent.quarantine import ELSEWHERE, HANGS, sets_aside
from planaria.agent.settings import Meeting
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.doctor.model import BROKEN, CHECKS, HERE, UNANSWERED, Finding, as_json, fail, ok, warn
from planaria.process import spawn
from planaria.process.model import Command
from planaria.rendezvous.addresses import Endpoint

JOB = Job(Command("script", "a.py", ()), 2, "job7", "default", 3, 30.0, (15,), {}, preflight=("disk",))
UNCHECKED = ", and this node goes on unchecked: run planaria doctor"
WELL = [ok("disk.space", "room"), warn("clock.source", "slow", "dmesg")]


class Watched:
    """A group's driver, as far as the checks know it; and the observer of it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.observer = self
        self.group = Group(size=2, max_restarts=3, grace_s=30.0, phase=CHECKING, alone=True)
        self.events: list[Any] = []
        self.told: list[tuple[list[str], int]] = []
        self.lines: list[str] = []

    def post(self, event: Any) -> None:
        self.events.append(event)
        self._loop.stop()

    def checked(self, findings: list[dict[str, Any]], count: int, at: float) -> None:
        assert at <= self._loop.now()
        self.told.append(([one["check"] for one in findings], count))


def check(program: str, times: int = 1) -> Watched:
    """Check by a program of a test instead of the doctor; return what came of it."""
    loop = Loop()
    watched = Watched(loop)
    checks = Preflight(JOB, loop, watched, {}, watched.lines.append)  # type: ignore[arg-type]
    checks._argv = [sys.executable, "-c", program]
    for _ in range(times):
        checks.perform(CheckNode())
        helper = checks._helper
        loop.run()
        if helper is not None:
            os.waitpid(helper.pid, 0)
    loop.close()
    return watched


def says(findings: list[Finding]) -> str:
    return f"print({json.dumps({'findings': as_json(findings)})!r}, flush=True)\n"


def test_a_node_without_failures_passes_and_its_warnings_are_said_once() -> None:
    found = check(says(WELL), times=2)
    assert [event.problem for event in found.events] == ["", ""]
    assert found.lines == ["preflight: clock.source: slow"]
    assert found.told == [(["clock.source"], 2)] * 2


def test_failures_are_told_with_their_remedies_and_made_safe() -> None:
    bad = [fail(f"disk.{n}", "full\x1b[2J", "rm") for n in ("space", "inodes", "speed", "kind", "writable")]
    [event] = check(says([*WELL, *bad])).events
    assert event.problem.startswith("disk.space: full\\x1b[2J -> rm; disk.inodes: ")
    assert event.problem.endswith("and 2 more: run planaria doctor")


@pytest.mark.parametrize("name", [*ELSEWHERE, "dns.answer", "ports.answer", "clock.bug", "disk.bug"])
def test_that_another_node_is_late_or_we_are_slow_or_wrong_keeps_nobody_from_joining(name: str) -> None:
    found = check(says([fail(name, "nobody there", "wait")]))
    assert [event.problem for event in found.events] == [""]
    assert found.lines == [f"preflight: {name}: nobody there"]


def test_of_what_does_not_answer_disks_and_drivers_alone_set_a_node_aside() -> None:
    assert {f"{group}.{UNANSWERED}" for group in HERE if sets_aside(f"{group}.{UNANSWERED}")} == set(HANGS)
    assert not any(sets_aside(f"{group}.{BROKEN}") for group in HERE)
    names = {f"{group}.{name}" for group in HERE for name in CHECKS[group]}
    assert {name for name in names if not sets_aside(name)} == set(ELSEWHERE)
    assert check(says([fail("gpu.answer", "the driver hangs", "reboot")])).events[0].problem


def test_what_was_said_counts_although_the_process_does_not_end() -> None:
    assert check(says(WELL) + "import signal; signal.pause()").events[0].problem == ""


def test_checks_that_hang_are_ended_and_the_node_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "WITHIN_S", 0.2)
    found = check("import signal; signal.pause()")
    assert [event.problem for event in found.events] == [""]
    assert found.lines == [f"preflight: the checks did not come to an end within 0.2 s{UNCHECKED}"]


@pytest.mark.parametrize(
    "program", ["", "raise SystemExit(3)", "print('[]')", "print('{\"findings\": [1]}')", "print('x')"]
)
def test_checks_that_say_nothing_that_can_be_read_are_our_fault_and_not_the_nodes(program: str) -> None:
    found = check(program)
    assert [event.problem for event in found.events] == [""]
    assert found.lines == [f"preflight: the checks did not come to an end{UNCHECKED}"]


def test_checks_that_cannot_be_started_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(spawn, "_fork", refuse)
    [event] = check("").events
    assert event.problem == "the checks cannot be started: Resource temporarily unavailable"


def test_checks_that_are_killed_because_the_run_ends_say_nothing_of_the_node(loop: Loop) -> None:
    watched = Watched(loop)
    checks = Preflight(JOB, loop, watched, {}, watched.lines.append)  # type: ignore[arg-type]
    checks._argv = [sys.executable, "-c", "import signal; signal.pause()"]
    checks.perform(CheckNode())
    helper = checks._helper
    assert helper is not None
    watched.group = replace(watched.group, phase=FINISHING)
    os.kill(helper.pid, signal.SIGKILL)
    while checks._helper is not None:
        loop.run_once(1.0)
    os.waitpid(helper.pid, 0)
    assert (watched.lines, watched.events) == ([], [])


def set_aside(meeting: Meeting | None) -> str:
    """Check a node that has such endpoints, set it aside, and return what it says."""
    loop = Loop()
    watched = Watched(loop)
    checks = Preflight(replace(JOB, meeting=meeting), loop, watched, {}, watched.lines.append)  # type: ignore[arg-type]
    checks._argv = [sys.executable, "-c", says([])]
    checks.perform(CheckNode())
    assert checks._helper is not None
    pid = checks._helper.pid
    loop.run()
    os.waitpid(pid, 0)
    checks.perform(TellSetAside("disk.space: full", 60.0))
    loop.close()
    [line] = watched.lines
    return line


def test_a_node_that_is_set_aside_says_so_in_one_line() -> None:
    assert set_aside(None) == "this node is set aside for 60 s and joins nobody: disk.space: full"


OWN = os.uname().nodename


@pytest.mark.parametrize(
    ("meeting", "waits"),
    [
        (Meeting("static", ("n0:29400",), "job7", 2, 2, node_rank=0), True),
        (Meeting("static", ("n0:29400",), "job7", 2, 2, node_rank=1), False),
        (Meeting("embedded", ("0.0.0.0:29400",), "job7", 2, 2), True),
        (Meeting("embedded", ("192.0.2.7:29400",), "job7", 2, 2), False),
        (Meeting("embedded", ("127.0.0.1:29400",), "job7", 2, 2), False),
        (Meeting("embedded", ("0.0.0.0:29400", "n1:29400", "n2:29400"), "job7", 2, 2), False),
        (Meeting("etcd", ("0.0.0.0:2379",), "job7", 2, 2), False),
    ],
)
def test_a_node_with_the_only_endpoint_says_that_all_others_wait_for_it(meeting: Meeting, waits: bool) -> None:
    assert ("joins nobody, and all others wait, since the only endpoint is here: " in set_aside(meeting)) == waits


def test_a_node_knows_its_own_name_though_nobody_can_look_it_up() -> None:
    assert has_endpoint(Endpoint(OWN, 29400))
    assert not has_endpoint(Endpoint("n0.elsewhere", 29400))
    assert not has_endpoint(Endpoint("job", 29400, ("192.0.2.7", "192.0.2.8", "127.0.0.2")))
