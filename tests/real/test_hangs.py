"""Planted hangs under a real agent, floor 4 s: found, with the right rank and line. What only looks like one: not called.

The first set was there while the detector was tuned, the second was written after it and has to stay as it is: a detector that
is changed is tried with it, not the other way round. All jobs of a test run at the same time.
`-rP` shows how soon each was found.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from hanging import NO_TOOL, Jobs, assert_caught, assert_not_called
from harness import wait_until
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Room

BEGIN = "import ctypes, os, queue, signal, sys, threading\nfrom meeting import FLOOR_S, RANK, meet, train, work\n"
PLANTED = {
    "gil": """
def stuck():
    ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)  # HERE: in C, and nothing else may run
train(stuck)
""",
    "deadlock": """
one, other = threading.Lock(), threading.Lock()
def stuck():
    held = threading.Event()
    def partner():
        with other:
            held.set()
            with one:
                pass
    with one:
        threading.Thread(target=partner, daemon=True).start()
        held.wait()
        with other:  # HERE
            pass
train(stuck)
""",
    "loader": """
import multiprocessing
def read_sample(pipe):
    with open(os.environ["ROOM"] + "/0-1.never", "rb") as file:
        pipe.send(file.read())
def stuck():
    os.mkfifo(os.environ["ROOM"] + "/0-1.never")
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=read_sample, args=(theirs,), daemon=True).start()
    ours.recv()  # HERE
train(stuck)
""",
    "stopped": """
def stuck():
    os.kill(os.getpid(), signal.SIGSTOP)  # HERE
    threading.Event().wait()
train(stuck)
""",
    "loop": """
from planaria import worker
def stuck():
    with worker.expires(after=60):  # a scope would be too late: who calls first is what is reported
        while True: pass  # HERE
train(stuck)
""",
    "beside a checkpoint": """
from planaria import worker
def save():
    with worker.phase("checkpoint"):
        threading.Event().wait()  # in a thread of its own, so nobody waits for it
def stuck():
    threading.Event().wait()  # HERE
threading.Thread(target=save, daemon=True).start()
train(stuck)
""",
}
TRAPS = {
    "checkpoint": """
from planaria import worker
for step in range(12):
    work()
    if step == 8 and RANK == 0:
        with worker.phase("checkpoint"):  # the others wait for rank 0, and have not said so
            work(1.5 * FLOOR_S)
    meet()
    worker.report_progress(step)
""",
    "evaluation": """
from planaria import worker
for step in range(12):
    work()
    if step in (5, 9):
        with worker.phase("evaluation"):
            work(1.5 * FLOOR_S)
            meet()
    meet()
    worker.report_progress(step)
""",
    "a model that is saved at the end": """
from planaria import worker
for step in range(12):
    work()
    meet()
    worker.report_progress(step)
worker.end_progress()
RANK or work(1.5 * FLOOR_S)
""",
}


@pytest.fixture
def jobs(room: Room) -> Iterator[Jobs]:
    found = Jobs(room.root)
    try:
        yield found
    finally:
        found.close()


def test_planted_hangs_are_found_with_rank_and_line_and_traps_are_not_called(jobs: Jobs) -> None:
    scripts, tools = {name: BEGIN + script for name, script in {**PLANTED, **TRAPS}.items()}, jobs.tool(NO_TOOL)
    for name, script in scripts.items():
        jobs.start(name.replace(" ", "-"), script, env=tools)
    ends = jobs.wait()
    for name in PLANTED:
        assert_caught(ends[name.replace(" ", "-")], scripts[name])
    for name in TRAPS:
        assert_not_called(ends[name.replace(" ", "-")])
    assert "state T" in ends["stopped"].err
    assert " in read_sample" in ends["loader"].file("rank1.child*.txt")
    assert "it is running" in ends["loop"].err


LATER = {
    "file lock": """
import fcntl
def stuck():
    path = os.environ["ROOM"] + "/lock"
    with open(path, "w") as theirs, open(path, "w") as ours:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        fcntl.flock(ours, fcntl.LOCK_EX)  # HERE
train(stuck)
""",
    "thread pool": """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def stuck():
    pool.submit(lambda: pool.submit(int).result()).result()  # HERE: its only thread waits for itself
train(stuck)
""",
    "retries": """
def stuck():
    while True:
        print("connection refused, retrying", flush=True)
        work(0.01)  # HERE
train(stuck)
""",
    "subprocess": """
import subprocess
def stuck():
    subprocess.run(["sleep", "3600"])  # HERE
train(stuck)
""",
}
# Beyond the floor all that keeps these from being called is what was learned; each has a second of weather left.
LATER_TRAPS = {
    "growing steps": """
from planaria import worker
for step in range(9):
    work(0.03 if step < 3 else 0.5 * FLOOR_S * 1.25 ** (step - 3))
    meet()
    worker.report_progress(step)
""",
    "a first step that is compiled": """
from planaria import worker
worker.report_progress(0)
for step in range(1, 12):
    work(1.5 * FLOOR_S if step == 1 else 0.03)
    meet()
    worker.report_progress(step)
""",
    "an evaluation that is known and gets longer": """
from planaria import worker
for step in range(6):
    work()
    meet()
    worker.report_progress(step)
    if step in (1, 2, 3, 4):
        with worker.phase("evaluation"):  # of three by each of three ranks it is known what is usual
            work(0.8 * FLOOR_S if step < 4 else 1.3 * FLOOR_S)
            meet()
""",
    "every fifth step loads a shard": """
from planaria import worker
for step in range(14):
    work(1.2 * FLOOR_S if step % 5 == 1 else 0.03)
    meet()
    worker.report_progress(step)
""",
}


def test_hangs_and_traps_that_nobody_tuned_for_have_the_same_result(jobs: Jobs) -> None:
    scripts, tools = {name: BEGIN + script for name, script in {**LATER, **LATER_TRAPS}.items()}, jobs.tool(NO_TOOL)
    for name, script in scripts.items():
        jobs.start(name.replace(" ", "-"), script, env=tools)
    ends = jobs.wait()
    for name in LATER:
        assert_caught(ends[name.replace(" ", "-")], scripts[name])
    for name in LATER_TRAPS:
        assert_not_called(ends[name.replace(" ", "-")])


LATER_ELSEWHERE = """
from planaria import worker
def stuck():
    threading.Event().wait()  # HERE
for step in range(12):
    work()
    if step == 8 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        for part in range(3 * (RANK > 1)):
            work(0.5 * FLOOR_S)
            worker.report_progress(step, samples=part)
        if RANK == 1:
            stuck()
    meet()
    worker.report_progress(step)
"""


def test_all_nodes_have_the_stacks_of_their_ranks_before_the_one_that_hangs_is_ended(room: Room) -> None:
    """Two nodes with two ranks each. Those of the second wait for the one that hangs, and begin to 1.5 floors later."""
    jobs = Jobs(room.root, ranks=4)
    meet = (f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-backend=c10d", "--rdzv-id=hang", "--nnodes=2")
    try:
        for name in ("a", "b"):
            env = {**jobs.tool(NO_TOOL), "ROOM": f"{room.root}/a"}
            jobs.start(name, BEGIN + LATER_ELSEWHERE, *meet, "--nproc-per-node=2", "--max-restarts=1", env=env)
        ends = jobs.wait()
    finally:
        jobs.close()
    said = "".join(end.err for end in ends.values())
    assert [(end.status, end.report["restarts"]) for end in ends.values()] == [(0, 1), (0, 1)], said
    reasons = [one["reason"] for end in ends.values() for one in end.report["restart_records"]]
    assert [one.startswith("rank 1 hangs in phase step") for one in reasons] == [True, True], reasons
    stacks = [
        {os.path.basename(path) for folder in end.evidence for path in glob.glob(f"{folder}/rank*.stack.txt")}
        for end in ends.values()
    ]
    of_nodes = [{f"rank{rank}.stack.txt" for rank in ranks} for ranks in ((0, 1), (2, 3))]
    assert sorted(stacks, key=sorted) == of_nodes, said


REPORTED = """
def stuck():
    with open(os.environ["ROOM"] + "/pid", "w") as file:
        file.write(str(os.getpid()))
    with open(os.environ["ROOM"] + "/go", "rb") as file:
        file.read()
os.path.exists(os.environ["ROOM"] + "/go") or RANK or os.mkfifo(os.environ["ROOM"] + "/go")
train(stuck)
"""
PRINTED = """
import time
print("loading", flush=True)
for step in range(12):
    work()
    if step == 8 and RANK == 1:
        def stuck():
            threading.Event().wait()  # HERE
        stuck()
    meet()
    print(f"epoch 1 | step {step} | loss 0.5", flush=True)
"""
SHOWN = """
for step in range(2):
    print(f"step {step} of rank {RANK}", file=sys.stderr)
"""
ONCE = """
def stuck():
    os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and threading.Event().wait()  # HERE
train(stuck)
"""
NO_FURTHER = """
def fails():
    sys.exit(3)
train(fails)
"""
SLOW_TOOL = """\
until grep -q " hangs in phase step" "$ROOM/err"; do sleep 0.05; done  # what others write to a file wakes nobody
echo "looked at after it was told"
"""
NO_PERMISSION = "ptrace: Operation not permitted"  # gdb's words, in a container or with Yama


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb cannot be had here")
def test_a_native_stack_names_the_c_function_that_holds_the_gil(jobs: Jobs) -> None:
    """With Debian's gdb, alone: it has some seconds."""
    jobs.start("gil", BEGIN + PLANTED["gil"], env=jobs.tool("exit 1"))
    (end,) = jobs.wait().values()
    assert_caught(end, BEGIN + PLANTED["gil"])
    native = end.file("rank1.native.txt")
    if NO_PERMISSION in native:
        pytest.skip(f"gdb may not look at other processes here: {native}")
    below_ctypes = r"^#\d+ [^\n]*\b(?:\w+_)?read \(.*(?:ffi|ctypes)"
    assert re.search(below_ctypes, native, re.MULTILINE | re.DOTALL), native


def test_what_is_done_about_a_hang_is_what_was_asked_for(jobs: Jobs) -> None:
    events = ("--event-log-handler=jsonl:events",)
    tools = jobs.tool(SLOW_TOOL)
    jobs.start("report", BEGIN + REPORTED, "--hang-policy=report", *events)
    jobs.start("stop", BEGIN + PLANTED["deadlock"], "--hang-policy=stop", *events, env=tools)
    jobs.start("pattern", BEGIN + PRINTED, r"--progress-pattern=step (?P<step>\d+) .*loss (?P<loss>\S+)")
    jobs.start("shown", BEGIN + SHOWN, r"--progress-pattern=step (?P<step>\d+)", "--redirects=0")
    jobs.start("restart", BEGIN + ONCE, "--max-restarts=1")
    jobs.start("stall", BEGIN + NO_FURTHER, "--max-restarts=20", "--stall-restarts=2", *events)
    wait_until(lambda: b" hangs in phase step" in jobs.said("report"), "the report of a hang")
    with open(jobs.path("report", "go"), "wb"):
        pass
    ends = jobs.wait()

    report = ends["report"]
    assert (report.status, report.report["outcome"], len(report.hangs)) == (0, "done", 1), report.err
    assert "rank 1 goes on" in report.err
    (told,) = jobs.events("report", "planaria.hang")
    assert told["sentence"] == report.hangs[0]["sentence"]
    assert (told["policy"], told["phase"], told["ranks"][0], told["evidence"]) == (
        "report",
        "step",
        1,
        report.evidence[0],
    )
    assert [one["rank"] for one in jobs.events("report", "planaria.hang.over")] == [1]
    assert not [name for name in os.listdir(report.evidence[0]) if "native" in name], "nobody was traced"

    stop = ends["stop"]
    assert (stop.status, stop.report["outcome"]) == (143, "stopped"), stop.err
    assert "stopped: rank 1 on " in stop.err
    assert "(--hang-policy=stop)" in stop.report["explanation"]
    assert stop.file("rank1.native.txt") == "looked at after it was told\n"

    assert_caught(ends["pattern"], BEGIN + PRINTED)

    shown = sorted(line for line in ends["shown"].err.splitlines() if "step" in line)
    assert (ends["shown"].status, shown) == (
        0,
        [f"step {step} of rank {rank}" for step in range(2) for rank in range(3)],
    )

    restart = ends["restart"]
    assert (restart.status, restart.report["restarts"]) == (0, 1), restart.err
    assert [one["reason"] for one in restart.report["restart_records"]] == ["rank 1 hangs in phase step"]

    stall = ends["stall"]
    assert (stall.status, len(stall.report["lives"])) == (1, 3), stall.err
    assert "2 lives in a row have ended without getting beyond step 7" in stall.err
    (told,) = jobs.events("stall", "planaria.stalled")
    assert (told["lives"], told["step"]) == (2, 7)
