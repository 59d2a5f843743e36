"""Planted hangs under a real agent, floor 2 s: found, with the right rank and line. What only looks like one: not called.

The first set was there while the detector was tuned, the second was written after it. All jobs of a test run at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hanging import Jobs, assert_caught, assert_not_called

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Room

BEGIN = "import ctypes, os, queue, signal, sys, threading\nfrom meeting import RANK, meet, train, work\n"
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
def stuck():
    while True: pass  # HERE
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
            work(5)
    meet()
    worker.report_progress(step)
""",
    "evaluation": """
from planaria import worker
for step in range(12):
    work()
    if step in (5, 9):
        with worker.phase("evaluation"):
            work(step / 2 + 1)
            meet()
    meet()
    worker.report_progress(step)
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
    scripts = {name: BEGIN + script for name, script in {**PLANTED, **TRAPS}.items()}
    for name, script in scripts.items():
        jobs.start(name, script)
    ends = jobs.wait()
    for name in PLANTED:
        assert_caught(ends[name], scripts[name])
    for name in TRAPS:
        assert_not_called(ends[name])
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
LATER_TRAPS = {
    "growing steps": """
from planaria import worker
step_s = 0.05
for step in range(11):
    work(step_s)
    meet()
    worker.report_progress(step)
    step_s *= 1.6
""",
    "a first step that is compiled": """
from planaria import worker
worker.report_progress(0)
for step in range(1, 12):
    work(6 if step == 1 else 0.03)
    meet()
    worker.report_progress(step)
""",
}


def test_hangs_and_traps_that_nobody_tuned_for_have_the_same_result(jobs: Jobs) -> None:
    scripts = {name: BEGIN + script for name, script in {**LATER, **LATER_TRAPS}.items()}
    for name, script in scripts.items():
        jobs.start(name.replace(" ", "-"), script)
    ends = jobs.wait()
    for name in LATER:
        assert_caught(ends[name.replace(" ", "-")], scripts[name])
    for name in LATER_TRAPS:
        assert_not_called(ends[name.replace(" ", "-")])
