"""Real workers that hang in a scope, under a real agent: it lives, shows where they hung, and starts them again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import groupby
from typing import TYPE_CHECKING

import patient_launcher
import pytest
from harness import wait_until
from ports import free_port
from stopping import stop

if TYPE_CHECKING:
    from harness import Room

PIPE = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}
OURS = "from planaria import worker\nexpires = worker.expires\n"
FILE = (
    "from planaria.elastic import timer\nfrom planaria.elastic.timer import expires\n"
    "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
)
BOTH = pytest.mark.parametrize("kind", [OURS, FILE], ids=["socket", "pipe"])
PATIENT = (sys.executable, patient_launcher.__file__)  # for those who want to see stacks
STACK_LINE = re.compile(r'(Current thread|Thread) 0x[0-9a-f]+.*:|  File "[^"]+", line \d+ in \S+|  \.\.\.')
AGENT = "tell(f'agent {os.getppid()}')\n"


@BOTH
def test_a_worker_that_hangs_is_ended_and_all_are_started_again_by_the_same_agent(room: Room, kind: str) -> None:
    script = f"""{AGENT}
if LIFE == 0 and RANK == 1:
{_indented(kind)}
    def where_it_hangs():
        wait_forever()
    wait_at("hang")
    with expires(after=0.4, scope="step"):
        where_it_hangs()
if LIFE == 0:
    tell("there")
    wait_forever()
"""
    room.make_gate("hang")
    job = room.start(("--nproc-per-node=2", "--max-restarts=1"), script, env=PIPE, before=PATIENT)
    room.hear("there")
    room.open_gate("hang")
    end = job.wait()
    assert end.status == 0, end.err
    agents = [room.hear_value("agent") for _ in range(4)]
    assert len(set(agents)) == 1
    (first, other) = end.report["lives"][0]["failures"]
    assert (first["rank"], first["kind"]) == (1, "watchdog")
    assert re.fullmatch(r"watchdog: scope 'step' ran [\d.]+ s, limit [\d.]+ s", first["message"])
    assert kind != OURS or first["message"].endswith("limit 0.4 s")  # the pipe takes some of it on a busy machine
    assert first["status"] == (-signal.SIGTERM if kind == OURS else -signal.SIGKILL)
    assert "where_it_hangs" in first["traceback"]
    assert (other["rank"], other["stopped_for"]) == (0, 1)
    assert "wait_forever" in other["traceback"], "where the others were when one hung"
    assert "watchdog: scope 'step' ran" in end.err
    assert "(restart 1 of 1)" in end.err


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


HOLD_THE_GIL = {
    "a C call": "import ctypes\ndef stuck():\n    ctypes.PyDLL(None).sleep(3600)\n",  # this is the hang
    "a regular expression": "import re\ndef stuck():\n    re.match(r'(a|a|a|b?)*$', 'a' * 60 + 'c')\n",
}


@BOTH
@pytest.mark.parametrize("how", HOLD_THE_GIL)
def test_the_stacks_are_in_the_report_also_when_the_gil_is_held(room: Room, kind: str, how: str) -> None:
    script = f"""{kind}{HOLD_THE_GIL[how]}
import threading
there = threading.Event()
def in_another_thread():
    there.set()
    threading.Event().wait()
threading.Thread(target=in_another_thread, daemon=True).start()
there.wait()
with expires(after=0.3, scope="holds the GIL"):
    stuck()
"""
    end = room.run(("--max-restarts=0", "--shutdown-timeout=1"), script, env=PIPE, before=PATIENT)
    assert end.status == 1
    cause = end.assert_cause(0, "watchdog: scope 'holds the GIL' ran")
    assert " in stuck" in cause["traceback"]
    assert " in in_another_thread" in cause["traceback"]
    assert "its stack:" in end.err
    assert " in stuck" in end.err


def test_a_worker_that_is_deaf_to_sigterm_is_killed_after_the_grace(room: Room) -> None:
    script = f"""{OURS}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with expires(after=0.2, scope="step"):
    wait_forever()
"""
    end = room.run(("--max-restarts=0", "--shutdown-timeout=1"), script)
    cause = end.assert_cause(0, "watchdog: scope 'step' ran")
    assert (cause["status"], cause["killer"]) == (-signal.SIGKILL, "us")


def test_a_worker_that_exits_well_when_it_is_told_has_hung_all_the_same(room: Room) -> None:
    script = f"""{OURS}
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
with expires(after=0.2, scope="step"):
    wait_forever()
"""
    end = room.run(("--max-restarts=0", "--exit-code=worker"), script, before=PATIENT)
    assert end.status == 1
    assert "wait_forever" in end.assert_cause(0, "watchdog: scope 'step' ran")["traceback"]


@BOTH
def test_scopes_that_end_in_time_end_nobody(room: Room, kind: str) -> None:
    """Nested, repeated, of one name, left by an exception; the only one that is not left in time begins after all of them.

    100 turns are below a quarter of what the pipe holds: it cannot be full, however little CPU the agent gets.
    """
    script = f"""{kind}
limit_s = 5.0
with expires(after=60, scope="all"):
    for _ in range(100 if LIFE == 0 else 1):
        with expires(after=limit_s, scope="outer"):
            with expires(after=limit_s, scope="inner"):
                pass
            try:
                with expires(after=limit_s, scope="raises"):
                    raise KeyError
            except KeyError:
                pass
        @expires(after=limit_s, scope="decorated")
        def work():
            pass
        work()
if LIFE == 0:
    with expires(after=limit_s, scope="the last"):
        wait_forever()
"""
    end = room.run(("--nproc-per-node=2", "--max-restarts=1"), script, env=PIPE)
    assert (end.status, end.report["restarts"]) == (0, 1), end.err
    hung = [one["message"] for one in end.report["lives"][0]["failures"] if one["kind"] == "watchdog"]
    assert hung
    assert all(one.startswith("watchdog: scope 'the last' ran ") for one in hung), hung
    lines = [line for line in end.err.splitlines() if "watchdog" in line]
    assert all("scope 'the last'" in line for line in lines), end.err


@BOTH
def test_a_process_that_dies_inside_of_a_scope_leaves_nothing_behind(room: Room, kind: str) -> None:
    """A scope of the next life that lasts longer than those of the dead expires alone: theirs would have before it."""
    script = f"""{kind}
pid = os.fork()
if pid == 0:
    with expires(after=0.3, scope="child"):
        os._exit(0)
os.waitpid(pid, 0)
if LIFE == 0:
    with expires(after=0.3, scope="dies"):
        os._exit(3)
if LIFE == 1:
    with expires(after=0.6, scope="lives"):
        wait_forever()
"""
    end = room.run(("--max-restarts=2",), script, env=PIPE)
    assert end.status == 0, end.err
    died, hung = ([one["message"] for one in life["failures"]] for life in end.report["lives"][:2])
    assert died == ["exit status 3"]
    assert [one.partition(" ran ")[0] for one in hung] == ["watchdog: scope 'lives'"]
    assert end.err.count("watchdog: scope ") == end.err.count("watchdog: scope 'lives'") > 0, end.err


@BOTH
def test_a_forked_child_that_hangs_counts_as_its_worker_and_shows_its_own_stack(room: Room, kind: str) -> None:
    script = f"""{kind}
def in_the_child():
    wait_forever()
def in_the_parent(pid):
    os.waitpid(pid, 0)
pid = os.fork()
if pid == 0:
    with expires(after=0.3, scope="child"):
        in_the_child()
in_the_parent(pid)
"""
    end = room.run(("--max-restarts=0",), script, env=PIPE, before=PATIENT)
    cause = end.assert_cause(0, "watchdog: scope 'child' ran")
    assert "in_the_child" in cause["traceback"]
    assert "in_the_parent" in cause["traceback"]


def test_stacks_of_a_child_and_of_its_worker_are_not_mixed_when_the_worker_was_asked_first(room: Room) -> None:
    """All show their stacks when rank 1 hangs; the child of rank 0 is late a moment after, while its parent still writes."""
    script = f"""{OURS}
import threading
def in_the_child(depth, there):
    if depth:
        in_the_child(depth - 1, there)
    there.set()
    threading.Event().wait()
def in_the_parent(depth, there):
    if depth:
        in_the_parent(depth - 1, there)
    there.set()
    threading.Event().wait()
def many_threads(target):
    for _ in range(60):
        there = threading.Event()
        threading.Thread(target=target, args=(60, there), daemon=True).start()
        there.wait()
    tell("there")
if RANK == 0:
    if os.fork() == 0:
        many_threads(in_the_child)
        wait_at("child")
        with expires(after=0.1, scope="child"):
            wait_forever()
    many_threads(in_the_parent)
    wait_forever()
wait_at("worker")
with expires(after=0.1, scope="worker"):
    tell("hangs")
    wait_forever()
"""
    room.make_gate("child")
    room.make_gate("worker")
    job = room.start(("--nproc-per-node=2", "--max-restarts=0"), script, before=PATIENT)
    for _ in range(2):
        room.hear("there")
    room.open_gate("worker")
    room.hear("hangs")
    room.open_gate("child")
    end = job.wait()
    stacks = next(one for one in end.report["lives"][0]["failures"] if one["rank"] == 0)["traceback"]
    unreadable = [line for line in stacks.splitlines() if line and not STACK_LINE.fullmatch(line)]
    assert not unreadable, stacks
    owners = re.findall(r" in in_the_(child|parent)$", stacks, re.MULTILINE)
    assert sorted(owner for owner, _ in groupby(owners)) == ["child", "parent"], "each in one piece"


@pytest.mark.parametrize(("kind", "count"), [(OURS, 64), (FILE, 8)], ids=["64 by socket", "8 by pipe"])
def test_workers_that_hang_at_once_are_one_restart(room: Room, kind: str, count: int) -> None:
    script = f"""
if LIFE == 0:
{_indented(kind)}
    tell("ready")
    wait_at("all")
    with expires(after=3, scope="step"):
        wait_forever()
"""
    room.make_gate("all")
    job = room.start((f"--nproc-per-node={count}", "--max-restarts=1"), script, env=PIPE, before=PATIENT)
    room.hear("ready", count, timeout_s=100)
    room.open_gate("all", count)
    end = job.wait(100)
    assert (end.status, end.report["restarts"]) == (0, 1), end.err
    failures = end.report["lives"][0]["failures"]
    first = failures[0]
    assert first["kind"] == "watchdog"
    assert "wait_forever" in first["traceback"]
    # Who is late within the seconds in which stacks are collected hung by itself; a busy machine lets some be later than that.
    assert sorted(one["rank"] for one in failures) == list(range(count))
    assert all(one["kind"] == "watchdog" or one["stopped_for"] == first["rank"] for one in failures)
    assert sum(one["kind"] == "watchdog" for one in failures) >= 2


def test_an_agent_that_was_stopped_does_not_end_those_who_were_in_time(room: Room) -> None:
    script = f"""{OURS}{FILE.replace("import expires", "import expires as theirs")}
tell("up")
wait_at("stopped")
with expires(after=0.3, scope="ours"), theirs(after=0.3, scope="torch's"):
    pass
tell("left")
wait_at("on")
"""
    room.make_gate("stopped")
    room.make_gate("on")
    job = room.start((), script, env=PIPE)
    room.hear("up")
    agent = job.agent()
    stop(agent)
    try:
        room.open_gate("stopped")
        room.hear("left")
        until = time.monotonic() + 0.6
        wait_until(lambda: time.monotonic() > until, "the limits to be over")
    finally:
        os.kill(agent, signal.SIGCONT)
    room.open_gate("on")
    end = job.wait()
    assert (end.status, end.err.count("watchdog")) == (0, 0), end.err


def test_a_scope_that_expires_while_the_job_drains_does_not_change_how_it_ends(room: Room) -> None:
    script = f"""{OURS}
import time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
tell("up")
signal.sigwait([signal.SIGTERM])
with expires(after=0.2, scope="save"):
    time.sleep(0.6)  # longer than its limit: that is what is tried here
"""
    job = room.start((), script)
    room.hear("up")
    job.signal(signal.SIGTERM)
    end = job.wait()
    assert (end.status, "watchdog" in end.err) == (143, False), end.err


def test_the_report_is_the_same_in_the_launcher_s_own_error_file(room: Room) -> None:
    script = f"{OURS}\nwith expires(after=0.2, scope='step'):\n    wait_forever()\n"
    env = {"TORCHELASTIC_ERROR_FILE": room.path("error.json")}
    end = room.run(("--max-restarts=0",), script, env=env, before=PATIENT)
    assert end.status == 1
    told = json.loads(room.read("error.json"))["message"]
    assert told["message"].startswith("watchdog: scope 'step' ran")
    assert "wait_forever" in told["extraInfo"]["py_callstack"]


def test_a_worker_of_one_node_that_hangs_restarts_the_workers_of_all(room: Room) -> None:
    room.write(
        "worker.py",
        f"""from told import *
{OURS}
if LIFE == 0:
    with expires(after=0.4 if RANK == 1 else 600, scope="step"):
        wait_forever()
""",
    )
    endpoint = f"127.0.0.1:{free_port()}"
    flags = ("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", "--rdzv-id=hang", "--max-restarts=1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    reports = [room.path(f"{name}.json") for name in "ab"]
    jobs = [room.start_command([*flags, f"--report-file={path}", "worker.py"], **pipes) for path in reports]
    ends = [job.wait() for job in jobs]
    assert [end.status for end in ends] == [0, 0], ends[0].err + ends[1].err
    told = [json.loads(room.read(f"{name}.json")) for name in "ab"]
    assert [one["restarts"] for one in told] == [1, 1]
    own = [bad for one in told for bad in one["lives"][0]["failures"] if bad["stopped_for"] is None]
    assert [(bad["rank"], bad["kind"]) for bad in own] == [(1, "watchdog")]
    assert any("watchdog: scope 'step' ran" in end.err and "telling the other nodes" in end.err for end in ends)
