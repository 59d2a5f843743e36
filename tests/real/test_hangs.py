"""Planted hangs under a real agent, floor 2 s: found, with the right rank and the line. And what only looks like one: not called.

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
