"""The watchdog on a real loop, a real socket and a real pipe, with a clock that is moved by hand; we are the worker."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from planaria.agent.control import ControlServer, Peer
from planaria.agent.watchdog import Watchdog
from planaria.base.loop import Loop
from planaria.contract import timer
from planaria.contract.control import LINE_LIMIT_BYTES, Acquire, Release, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planaria.agent.scopes import Scope

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


TIMEOUT_S = 60


class Rig:
    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.wall = 1.7e9
        self.loop = Loop(lambda: self.now)
        self.expired: list[tuple[int, str]] = []
        self.said: list[str] = []
        self.control = ControlServer(self.loop, str(folder / "control"), self._on_message, LINE_LIMIT_BYTES)
        self.watchdog = Watchdog(self.loop, self.control, self._on_expired, lambda: self.wall)
        self.path = folder / "pipe"
        self.watchdog.open_pipe(str(self.path), "THE_NAME", self.said.append)
        self.serve()

    def serve(self) -> None:
        self.control.serve({os.getpid(): 3})
        self.watchdog.serve({os.getpid(): 3})

    def _on_message(self, peer: Peer, line: bytes) -> None:
        message = decode(line)
        assert isinstance(message, Acquire | Release)
        self.watchdog.hear(peer, message)

    def _on_expired(self, local_rank: int, scope: Scope, _now: float) -> None:
        self.expired.append((local_rank, scope.name))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        for _ in range(3):
            self.loop.run_once(0)

    def connect(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(self.control.path)
        self.turn()
        return peer

    def write(self, scope: str, after_s: float, *, pid: int | None = None, signal: int = 9) -> None:
        expires_at = self.wall + after_s if after_s >= 0 else -1.0
        self.write_raw(timer.encode(timer.TimerLine(pid or os.getpid(), scope, expires_at, signal)))

    def write_raw(self, data: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, data)
        os.close(descriptor)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path)
    yield found
    found.watchdog.close()
    found.control.close()
    found.loop.close()


def test_a_scope_of_the_pipe_expires_on_a_clock_that_nobody_sets(rig: Rig) -> None:
    rig.write("step", 60.0)
    rig.turn()
    rig.wall += 3600.0  # somebody sets the clock
    rig.turn(59.0)
    assert rig.expired == []
    rig.turn(1.5)
    rig.turn(100.0)
    assert rig.expired == [(3, "step")]


def test_a_released_scope_does_not_expire(rig: Rig) -> None:
    rig.write("step", 60.0)
    rig.write("step", -1)
    rig.turn()
    rig.turn(100.0)
    assert rig.expired == []


def test_a_release_that_waits_in_the_pipe_counts_however_late_the_agent_is(rig: Rig) -> None:
    rig.write("step", 60.0)
    rig.turn()
    for number in range(3000):  # more than one read of the pipe
        rig.write(f"other {number}", 600.0)
    rig.write("step", -1)
    rig.now += 61.0
    rig.loop.run_once(0)
    assert rig.expired == []
    assert len(rig.watchdog.scopes) == 3000


def test_a_release_that_waits_in_a_socket_counts_too(rig: Rig) -> None:
    with rig.connect() as peer:
        peer.sendall(encode(Acquire(1, "step", 60.0, rig.now)))
        rig.turn()
        others = [encode(Acquire(number, "x" * 60, 600.0, rig.now)) for number in range(2, 1000)]
        peer.settimeout(TIMEOUT_S)
        peer.sendall(b"".join(others) + encode(Release(1)))  # more than one read of the socket
        rig.now += 61.0
        rig.loop.run_once(0)
        assert rig.expired == []
        assert len(rig.watchdog.scopes) == 998


def test_scopes_of_one_name_nest_on_the_socket(rig: Rig) -> None:
    with rig.connect() as peer:
        peer.sendall(encode(Acquire(1, "step", 60.0, rig.now)) + encode(Acquire(2, "step", 30.0, rig.now)))
        peer.sendall(encode(Release(2)))
        rig.turn()
        rig.turn(31.0)
        assert rig.expired == []
        rig.turn(30.0)
        assert rig.expired == [(3, "step")]


def test_a_scope_that_was_long_on_its_way_has_that_much_less_time(rig: Rig) -> None:
    with rig.connect() as peer:
        peer.sendall(encode(Acquire(1, "step", 60.0, rig.now - 50.0)))
        rig.turn()
        rig.turn(10.5)
        assert rig.expired == [(3, "step")]


def test_a_connection_that_ends_takes_its_scopes_with_it(rig: Rig) -> None:
    with rig.connect() as peer:
        peer.sendall(encode(Acquire(1, "step", 60.0, rig.now)))
        rig.turn()
        assert len(rig.watchdog.scopes) == 1
    rig.turn()
    assert len(rig.watchdog.scopes) == 0


def test_a_scope_without_end_needs_no_timer(rig: Rig) -> None:
    rig.write("for ever", math.inf)
    rig.turn()
    rig.turn(1e9)
    assert rig.expired == []


def test_a_later_scope_that_is_shorter_expires_first(rig: Rig) -> None:
    rig.write("long", 100.0)
    rig.turn()
    rig.write("short", 10.0)
    rig.turn()
    rig.turn(11.0)
    assert rig.expired == [(3, "short")]
    rig.turn(90.0)
    assert rig.expired == [(3, "short"), (3, "long")]


def child(*, wait: bool = True) -> subprocess.Popen[bytes]:
    code = "import sys; sys.stdin.read()" if wait else "pass"
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)


def test_a_process_below_a_worker_counts_as_the_worker(rig: Rig) -> None:
    with child() as below:
        rig.write("loading", 60.0, pid=below.pid)
        rig.turn()
        rig.turn(61.0)
        below.communicate()
    assert rig.expired == [(3, "loading")]


def test_a_process_that_died_inside_of_a_scope_leaves_nothing_to_expire(rig: Rig) -> None:
    with child() as below:
        rig.write("loading", 60.0, pid=below.pid)
        rig.turn()
        below.communicate()
    rig.turn(61.0)
    assert (rig.expired, rig.said, len(rig.watchdog.scopes)) == ([], [], 0)


def test_a_process_that_was_not_reaped_yet_is_dead_as_well(rig: Rig) -> None:
    with child() as below:
        rig.write("loading", 60.0, pid=below.pid)
        rig.turn()
        assert below.stdin is not None
        below.stdin.close()
        os.waitid(os.P_PID, below.pid, os.WEXITED | os.WNOWAIT)
        rig.turn(61.0)
        assert rig.expired == []


def test_a_pid_that_is_not_ours_is_refused_in_one_line(rig: Rig) -> None:
    for _ in range(50):
        rig.write("step", 60.0, pid=1)
    rig.turn()
    rig.turn(61.0)
    assert rig.expired == []
    assert rig.said[0] == "watchdog: ignored a line of process 1, which is gone or not below any worker of this node"
    assert len(rig.said) <= 2


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (b"garbage\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        (b'{"pid": 1}\n', "scope_id is not a text"),
        (b"\xff\x1b[31m\n", "not JSON"),
        (b"x" * 4096, "not JSON"),
    ],
)
def test_a_malformed_line_is_told_in_one_line_and_the_next_is_heard(rig: Rig, garbage: bytes, why: str) -> None:
    rig.write_raw(garbage)
    rig.write_raw(b"\n")
    rig.write("step", 60.0)
    rig.turn()
    rig.turn(61.0)
    assert rig.expired == [(3, "step")]
    assert len(rig.said) == 1
    assert rig.said[0].startswith(f"watchdog: ignored a line that is no timer ({why}): ")
    assert "\x1b" not in rig.said[0]
    assert len(rig.said[0]) < 200


def test_a_scope_that_asks_for_no_signal_is_told_and_nothing_is_done(rig: Rig) -> None:
    rig.write("step", 60.0, signal=0)
    rig.turn()
    rig.turn(61.0)
    assert rig.expired == []
    assert rig.said == [
        f"watchdog: scope 'step' ran 61 s, limit 60 s; process {os.getpid()} asked for no signal, so nothing is done"
    ]


def test_what_the_last_life_left_in_the_pipe_is_forgotten_without_a_word(rig: Rig) -> None:
    with child(wait=False) as gone:
        gone.communicate()
    rig.write("step", 60.0)
    rig.write("step", 60.0, pid=gone.pid)
    rig.watchdog.forget()
    rig.serve()
    rig.turn()
    rig.turn(61.0)
    assert (rig.expired, rig.said) == ([], [])


WRITERS = 64
PAIRS = 300


def test_64_writers_at_once_lose_nothing(rig: Rig) -> None:
    """Half of them write to the pipe as torch does, half to sockets; every line is counted."""
    pids = [fork_writer(rig, number % 2 == 0) for number in range(WRITERS)]
    wanted = WRITERS * PAIRS
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while rig.watchdog.scopes.released < wanted and time.monotonic() < deadline:
            rig.loop.run_once(0.05)
    finally:
        if rig.watchdog.scopes.released < wanted:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        ends = [os.waitpid(pid, 0)[1] for pid in pids]
    assert ends == [0] * WRITERS
    assert (rig.watchdog.scopes.acquired, rig.watchdog.scopes.released) == (wanted, wanted)
    assert (len(rig.watchdog.scopes), rig.expired) == (0, [])
    assert [said for said in rig.said if "was full" not in said] == []  # these writers wait for room


def fork_writer(rig: Rig, uses_pipe: bool) -> int:
    """Fork a child of ours that opens and closes scopes as fast as it is let, until all were written."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if uses_pipe:
            _write_pairs_to(str(rig.path))
        else:
            _send_pairs_to(rig.control.path)
        os._exit(0)
    finally:
        os._exit(1)


def _write_pairs_to(path: str) -> None:
    for number in range(PAIRS):
        for expires_at in (time.time() + 600, -1.0):
            descriptor = os.open(path, os.O_WRONLY)  # blocking: it waits for room
            os.write(descriptor, timer.encode(timer.TimerLine(os.getpid(), f"step {number}", expires_at, 9)))
            os.close(descriptor)


def _send_pairs_to(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        for number in range(PAIRS):
            peer.sendall(encode(Acquire(number, "step", 600.0, time.monotonic())))
            peer.sendall(encode(Release(number)))
