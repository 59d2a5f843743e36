"""Signals to launcher and agent: passed on once, with the grace that was promised, and the status the shell expects."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import Terminal, children_of, is_alive, state_of, wait_until
from stopping import stop

if TYPE_CHECKING:
    from harness import Room

TWO = ("--nproc-per-node=2",)
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

# Workers that say what they got, and leave in good order only after the test has let them.
POLITE = """
def got(number, _frame):
    tell(f'rank {RANK} got {signal.Signals(number).name}')
    if LEAVE:
        wait_at('leave')
        tell(f'rank {RANK} left')
        os._exit(0)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1): signal.signal(number, got)
tell(f'rank {RANK} ready')
wait_forever()
"""
LEAVING, DEAF = "LEAVE = True\n" + POLITE, "LEAVE = False\n" + POLITE


def _ready(room: Room) -> None:
    room.hear_many(["rank 0 ready", "rank 1 ready"])


def _got(room: Room, name: str) -> None:
    room.hear_many([f"rank 0 got {name}", f"rank 1 got {name}"])


def _let_go(room: Room) -> None:
    """Let both workers leave: that they do proves that nobody cut their grace."""
    room.open_gate("leave", 2)
    room.hear_many(["rank 0 left", "rank 1 left"])


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_to_the_launcher_reaches_workers_once_and_grace_is_honoured(
    room: Room, number: signal.Signals
) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    launcher.signal(number)
    _got(room, number.name)
    _let_go(room)
    end = launcher.wait()
    assert end.status == 128 + number
    assert end.report["outcome"] == "signal"
    assert end.report["signal"] == number.name
    assert f"stopped by {number.name}" in end.err
    assert room.heard() == []


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_to_the_agent_itself_stops_the_job_in_order(room: Room, number: signal.Signals) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    os.kill(launcher.agent(), number)
    _got(room, number.name)
    _let_go(room)
    assert launcher.wait().status == 128 + number
    assert room.heard() == []


def test_workers_that_ignore_the_signal_are_killed_after_the_shutdown_timeout(room: Room) -> None:
    launcher = room.start([*TWO, "--shutdown-timeout=5"], DEAF)
    _ready(room)
    launcher.signal(signal.SIGTERM)
    _got(room, "SIGTERM")
    end = launcher.wait()
    assert end.status == 128 + signal.SIGTERM
    assert end.report["outcome"] == "signal"
    assert end.report["first_cause"] is None
    assert room.heard() == []


def test_workers_that_ignore_the_stop_after_a_failure_are_killed_after_the_shutdown_timeout(room: Room) -> None:
    script = "if RANK == 0:\n    wait_at('fail')\n    os._exit(1)\n" + DEAF
    room.make_gate("fail")
    launcher = room.start([*TWO, "--shutdown-timeout=5", "--max-restarts=1"], script)
    for _ in range(2):
        room.hear("rank 1 ready")
        room.open_gate("fail")
        room.hear("rank 1 got SIGTERM")
    end = launcher.wait()
    end.assert_cause(0, "exit status 1")
    assert end.report["restarts"] == 1
    assert [life["failures"][1]["killer"] for life in end.report["lives"]] == ["us", "us"]


def test_a_second_ctrl_c_kills_now(room: Room) -> None:
    launcher = room.start([*TWO, "--shutdown-timeout=3600"], DEAF)
    _ready(room)
    launcher.signal(signal.SIGINT)
    _got(room, "SIGINT")
    launcher.signal(signal.SIGINT)
    assert launcher.wait().status == 128 + signal.SIGINT
    assert room.heard() == []


def test_a_third_ctrl_c_does_not_need_the_agent(room: Room) -> None:
    launcher = room.start([*TWO, "--shutdown-timeout=3600"], DEAF)
    _ready(room)
    agent = launcher.agent()
    stop(agent)
    for _ in range(3):
        launcher.signal(signal.SIGINT)
        wait_until(lambda: not _is_pending(launcher.pid, signal.SIGINT), "a launcher that took the signal")
    assert launcher.wait().status == 128 + signal.SIGKILL


def _is_pending(pid: int, number: int) -> bool:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        pending = next((line.split()[1] for line in file if line.startswith("ShdPnd:")), "0")
    return bool(int(pending, 16) >> (number - 1) & 1)


def test_repeated_sigterms_do_not_cut_the_grace(room: Room) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    launcher.signal(signal.SIGTERM)
    _got(room, "SIGTERM")
    for _ in range(5):
        launcher.signal(signal.SIGTERM)
        wait_until(lambda: not _is_pending(launcher.pid, signal.SIGTERM), "a launcher that took the signal")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGTERM
    assert room.heard() == []


@pytest.mark.parametrize("agent_first", [True, False])
def test_sigterm_to_launcher_and_agent_at_once_does_not_cut_the_grace(room: Room, agent_first: bool) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    pids = (launcher.agent(), launcher.pid)
    for pid in pids if agent_first else reversed(pids):
        os.kill(pid, signal.SIGTERM)
    _got(room, "SIGTERM")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGTERM
    assert room.heard() == []


def test_a_ctrl_c_that_reaches_the_agent_too_is_not_taken_for_a_second_one(room: Room) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    launcher.signal(signal.SIGINT)
    _got(room, "SIGINT")
    agent = launcher.agent()
    os.kill(agent, signal.SIGINT)
    wait_until(
        lambda: not _is_pending(agent, signal.SIGINT) and state_of(agent) == "S", "an agent that took the signal"
    )
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGINT


def test_sigterm_to_every_process_of_the_job_does_not_cut_the_grace(room: Room) -> None:
    room.make_gate("leave")
    script = LEAVING.replace(
        "def got(number, _frame):", "def got(number, _frame):\n    signal.signal(number, signal.SIG_IGN)"
    )
    launcher = room.start(TWO, script)
    _ready(room)
    agent = launcher.agent()
    for pid in (*children_of(agent), agent, launcher.pid):  # as a service manager does
        os.kill(pid, signal.SIGTERM)
    _got(room, "SIGTERM")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGTERM


def test_a_signal_that_came_before_the_workers_ended_counts_also_for_an_agent_that_wakes_up_late(room: Room) -> None:
    """Workers that end well because they were asked to are no success: whoever asked would take the job for done."""
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING)
    _ready(room)
    agent = launcher.agent()
    workers = children_of(agent)
    stop(agent)
    for pid in (*workers, agent):
        os.kill(pid, signal.SIGTERM)
    _got(room, "SIGTERM")
    _let_go(room)
    wait_until(lambda: not any(map(is_alive, workers)), "both workers dead")
    os.kill(agent, signal.SIGCONT)
    end = launcher.wait()
    assert (end.status, end.report["outcome"]) == (128 + signal.SIGTERM, "signal"), end.err


def test_only_the_listed_signals_are_passed_on(room: Room) -> None:
    room.make_gate("leave")
    launcher = room.start([*TWO, "--signals-to-handle=SIGUSR1"], LEAVING)
    _ready(room)
    launcher.signal(signal.SIGUSR1)
    _got(room, "SIGUSR1")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGUSR1


@pytest.mark.parametrize(
    ("flags", "number"), [((), signal.SIGUSR2), (("--signals-to-handle=SIGUSR1",), signal.SIGTERM)]
)
def test_a_signal_that_is_not_listed_ends_the_launcher_and_everything_with_it(
    room: Room, flags: tuple[str, ...], number: signal.Signals
) -> None:
    launcher = room.start([*TWO, *flags], "sleeper(detached=True, deaf=True)\n" + DEAF)
    _ready(room)
    launcher.signal(number)
    assert launcher.wait().status == 128 + number
    room.assert_deserted(timeout_s=30)
    assert room.heard() == []


def test_a_stop_that_finds_workers_already_failing_still_counts_as_a_stop(room: Room) -> None:
    script = """
if RANK == 0:
    wait_at('fail')
    os._exit(1)
def stop_the_job(*_):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    os.kill(launcher(), signal.SIGTERM)
signal.signal(signal.SIGTERM, stop_the_job)
tell('ready')
wait_forever()
"""
    room.make_gate("fail")
    process = room.start([*TWO, "--max-restarts=3"], script)
    room.hear("ready")
    room.open_gate("fail")
    end = process.wait()
    assert end.status == 128 + signal.SIGTERM
    assert end.report["restarts"] == 0


def test_a_stop_in_the_settle_window_ends_the_job(room: Room) -> None:
    script = """
if RANK == 0:
    held = hold('life')
    raise ValueError('like a mistake')
wait_end('life')
os.kill(launcher(), signal.SIGTERM)
wait_forever()
"""
    room.make_fifo("life")
    end = room.run([*TWO, "--max-restarts=3"], script)
    assert end.status == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in end.err


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_in_the_midst_of_restarts_ends_the_job(room: Room, seed: int) -> None:
    flags = ["--nproc-per-node=3", "--max-restarts=1000", "--always-restart", "-r", "3"]
    launcher = room.start(flags, "if RANK == 2:\n    tell(f'life {LIFE}')\n    os._exit(1)\nwait_forever()")
    rng = random.Random(seed)
    room.hear(f"life {rng.randrange(1, 4)}")
    pidfd = os.pidfd_open(launcher.pid)
    select.select([pidfd], [], [], rng.uniform(0, 0.06))  # any moment of a life will do
    os.close(pidfd)
    launcher.signal(signal.SIGTERM)
    end = launcher.wait()
    assert end.status == 128 + signal.SIGTERM
    assert end.report["outcome"] == "signal"


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_at_any_moment_of_the_start_leaves_nothing(room: Room, seed: int) -> None:
    launcher = room.start(["--nproc-per-node=8"], "wait_forever()")
    pidfd = os.pidfd_open(launcher.pid)
    select.select([pidfd], [], [], random.Random(seed).uniform(0.02, 0.2))
    os.close(pidfd)
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 128 + signal.SIGTERM
    room.assert_deserted()


def test_a_ctrl_c_while_the_launcher_still_reads_its_command_line_is_no_traceback(room: Room) -> None:
    program = """
import os, signal, sys
from planaria import __main__ as door
from planaria.launch import main
main.parse = lambda *_: os.kill(os.getpid(), signal.SIGINT)
sys.argv = ["planaria", "run"]
door.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, cwd=room.root)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, b"")


def test_a_hang_up_that_nohup_made_us_ignore_stops_nothing(room: Room) -> None:
    room.make_gate("leave")
    launcher = room.start(TWO, LEAVING, before=["nohup"])
    _ready(room)
    launcher.signal(signal.SIGHUP)
    os.kill(launcher.agent(), signal.SIGHUP)
    launcher.signal(signal.SIGTERM)
    _got(room, "SIGTERM")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGTERM
    assert room.heard() == []


def test_ctrl_c_in_a_terminal_reaches_the_workers_once_and_through_us(room: Room, terminal: Terminal) -> None:
    room.make_gate("leave")
    launcher = terminal.start(TWO, LEAVING)
    _ready(room)
    terminal.press(b"\x03")
    _got(room, "SIGINT")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGINT
    assert room.heard() == []
    assert b"stopped by SIGINT" in terminal.read()


def test_a_terminal_that_goes_away_is_a_hang_up(room: Room, terminal: Terminal) -> None:
    room.make_gate("leave")
    launcher = terminal.start(TWO, LEAVING)
    _ready(room)
    os.close(terminal.master)
    terminal.master = -1
    _got(room, "SIGHUP")
    _let_go(room)
    assert launcher.wait().status == 128 + signal.SIGHUP


def test_ctrl_z_and_fg_leave_the_job_running(room: Room, terminal: Terminal) -> None:
    room.make_gate("fg")
    room.make_gate("talk")
    room.make_gate("end")
    script = "tell(f'rank {RANK} ready')\nwait_at('talk')\ntell(f'rank {RANK} talked')\nwait_at('end')\n"
    shell = terminal.start(TWO, script, shell=True)
    _ready(room)
    pid = room.hear_value("launcher")
    terminal.press(b"\x1a")
    assert room.hear_value("stopped") == signal.SIGTSTP
    assert state_of(pid) == "T"
    room.open_gate("talk", 2)
    room.hear_many(["rank 0 talked", "rank 1 talked"])  # stopped is the launcher alone: training goes on
    room.open_gate("fg")
    wait_until(lambda: state_of(pid) == "S", "a launcher that goes on")
    assert len(children_of(pid)) == 1
    room.open_gate("end", 2)
    assert shell.wait().status == 0


def test_a_job_that_ends_while_its_launcher_is_stopped_is_reported_after_fg(room: Room, terminal: Terminal) -> None:
    room.make_gate("fg")
    room.make_gate("end")
    shell = terminal.start(("--exit-code=worker",), "tell('ready')\nwait_at('end')\nsys.exit(3)", shell=True)
    room.hear("ready")
    agent = children_of(room.hear_value("launcher"))[0]  # it is in the foreground: before, the key is for its shell
    terminal.press(b"\x1a")
    assert room.hear_value("stopped") == signal.SIGTSTP
    room.open_gate("end")
    wait_until(lambda: state_of(agent) == "Z", "an agent that ended")
    room.open_gate("fg")
    assert shell.wait().status == 3
    assert b"exit status 3" in terminal.read()
