"""The pipe of torch's timers under a real agent: where it is, what may be wrong with it, and that nothing dies of that."""

from __future__ import annotations

import os
import signal
import stat
from typing import TYPE_CHECKING

import pytest
from harness import wait_until
from stopping import stop

if TYPE_CHECKING:
    from harness import Room

PIPE = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
FILE = (
    "from planaria.elastic import timer\nfrom planaria.elastic.timer import expires\n"
    "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
)


def test_the_pipe_is_private_made_in_the_run_s_folder_and_named_to_the_workers(room: Room) -> None:
    room.make_gate("go")
    script = "tell(os.environ['TORCHELASTIC_TIMER_FILE'])\nwait_at('go')\n"
    job = room.start((), script, env=PIPE)
    path = wait_until(room.heard, "a path")[0]
    found = os.stat(path)
    assert (stat.S_ISFIFO(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o600)
    assert os.path.dirname(os.path.dirname(path)) == room.tmp
    room.open_gate("go")
    assert job.wait().status == 0


def test_a_name_of_ones_own_is_used_through_restarts_and_removed_at_the_end(room: Room) -> None:
    path = room.path("my-pipe")
    script = f"""{FILE}
assert os.environ["TORCHELASTIC_TIMER_FILE"] == {path!r}
with expires(after=60, scope="fine"):
    pass
with expires(after=0.3, scope="step"):
    if LIFE < 2:
        wait_forever()
"""
    end = room.run(("--max-restarts=2",), script, env={**PIPE, "TORCHELASTIC_TIMER_FILE": path})
    assert (end.status, end.report["restarts"]) == (0, 2), end.err
    assert not os.path.exists(path)


def test_without_the_variable_there_is_no_pipe(room: Room) -> None:
    for env in ({}, {"TORCHELASTIC_ENABLE_FILE_TIMER": "0"}):
        end = room.run((), "assert 'TORCHELASTIC_TIMER_FILE' not in os.environ\n", env=env)
        assert end.status == 0, end.err


def test_a_file_of_that_name_is_one_sentence_and_status_2(room: Room) -> None:
    path = room.write("taken", "precious")
    end = room.run((), "tell('started')\n", env={**PIPE, "TORCHELASTIC_TIMER_FILE": path})
    assert end.status == 2
    assert end.err == (
        f"planaria: TORCHELASTIC_TIMER_FILE expects the path of a pipe to be made, got '{path}', "
        "where there is a file already (remove it, or choose another name)\n"
    )
    assert (room.heard(), room.read("taken")) == ([], b"precious")


def test_a_pipe_that_another_process_reads_is_one_sentence_and_status_2(room: Room) -> None:
    path = room.path("foreign")
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        end = room.run((), "tell('started')\n", env={**PIPE, "TORCHELASTIC_TIMER_FILE": path})
    finally:
        os.close(reader)
    assert end.status == 2
    assert "a pipe that another process reads already" in end.err
    assert os.path.exists(path)


def test_a_pipe_that_a_killed_run_left_is_taken_over(room: Room) -> None:
    os.mkfifo(room.path("stale"))
    end = room.run(
        (), f"{FILE}\nwith expires(after=60): pass\n", env={**PIPE, "TORCHELASTIC_TIMER_FILE": room.path("stale")}
    )
    assert (end.status, "watchdog" in end.err) == (0, False), end.err


TROUBLE = """
path = os.environ["TORCHELASTIC_TIMER_FILE"]
def write(data):
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, data)
    os.close(fd)
def line(pid, after=60.0, sig=9, scope="x"):
    import json, time
    fields = {"version": 1, "pid": pid, "scope_id": scope, "expiration_time": time.time() + after, "signal": sig}
    return json.dumps(fields).encode() + b"\\n"
"""
TROUBLES = {
    "malformed lines": (
        "for _ in range(100):\n    write(b'garbage\\n')\n",
        "ignored a line that is no timer (not JSON): garbage",
    ),
    "wrong pids": (
        "for _ in range(100):\n    write(line(1, 0.1))\n",
        "ignored a line of process 1, which is gone or not below any worker",
    ),
    "a deleted pipe": (
        "os.unlink(path)\nwhile not os.path.exists(path):\n    pass\n",
        "was deleted; it was made again",
    ),
    "no signal": ("write(line(os.getpid(), 0.01, 0))\n", "asked for no signal, so nothing is done"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_is_one_clear_line_and_nothing_dies_of_it(room: Room, trouble: str) -> None:
    code, said = TROUBLES[trouble]
    room.make_gate("said")
    script = f"""{TROUBLE}{code}
tell("done")
wait_at("said")
{FILE}
with expires(after=60, scope="still works"):
    pass
with expires(after=0.2, scope="still watched"):
    if LIFE == 0:
        wait_forever()
"""
    job = room.start(("--max-restarts=1",), script, env=PIPE)
    for _ in range(2):
        room.hear("done")
        wait_until(lambda: said.encode() in room.read("err"), said)
        room.open_gate("said")
    end = job.wait()
    assert (end.status, end.report["restarts"]) == (0, 1), end.err
    lines = [one for one in end.err.splitlines() if said in one]
    assert all(one.startswith("planaria: watchdog: ") for one in lines)
    assert len(lines) <= 10, end.err


def test_a_full_pipe_is_one_clear_line_and_what_was_in_it_counts(room: Room) -> None:
    """The agent is stopped while a worker fills the pipe, and finds everything when it goes on: one scope expires, the last."""
    script = f"""{TROUBLE}
if LIFE == 1:
    raise SystemExit(0)
write(line(os.getpid(), 0.2))
try:
    while True:
        write(line(os.getpid(), 600.0))
except BlockingIOError:
    pass
tell("full")
wait_at("on")
write(line(os.getpid(), -10.0**10))
write(line(os.getpid(), 0.5, scope="the last"))
wait_forever()
"""
    room.make_gate("on")
    room.make_gate("stopped")
    up = "if LIFE == 0:\n    tell('up')\n    wait_at('stopped')\n"
    job = room.start(("--max-restarts=1",), up + script, env=PIPE)
    room.hear("up")
    agent = job.agent()
    stop(agent)
    try:
        room.open_gate("stopped")
        room.hear("full")
    finally:
        os.kill(agent, signal.SIGCONT)
    wait_until(lambda: b"was full, so a worker may have failed to write to it" in room.read("err"), "a line")
    room.open_gate("on")
    end = job.wait()
    assert (end.status, end.err.count("was full")) == (0, 1), end.err
    (hung,) = end.report["lives"][0]["failures"]
    assert hung["message"].startswith("watchdog: scope 'the last' ran ")


def test_the_pipe_is_drained_while_the_agent_stops_its_workers(room: Room) -> None:
    """A worker that is told to end writes more than the pipe holds, and waits for room with every write."""
    script = f"""{TROUBLE}
def pour(*_):
    lines = line(os.getpid(), 600.0) * 30  # still one write: not above PIPE_BUF
    fd = os.open(path, os.O_WRONLY)
    for _ in range((3 << 20) // len(lines)):
        os.write(fd, lines)
    tell("poured")
    os._exit(0)
if RANK == 1:
    wait_at("crash")
    raise SystemExit(3)
signal.signal(signal.SIGTERM, pour)
tell("up")
wait_forever()
"""
    room.make_gate("crash")
    flags = ("--nproc-per-node=2", "--max-restarts=0", "--shutdown-timeout=100")
    job = room.start(flags, script, env=PIPE)
    room.hear("up")
    room.open_gate("crash")
    room.hear("poured")
    end = job.wait()
    assert [bad["rank"] for bad in end.report["lives"][0]["failures"]] == [1], end.err
