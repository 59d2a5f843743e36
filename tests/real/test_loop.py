"""`train_loop` under a real agent, without torch: drains, stops for other reasons, children that load data, progress."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest
from harness import PATIENCE_S, Room, kill, wait_until
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = """
import time
from planaria import worker
from planaria.worker import ElasticState
from planaria.worker.deferral import DEFERRAL

state = ElasticState(step=0, seen=[])
deferred, is_announced = [], DEFERRAL._is_announced
def see(number):
    found = is_announced(number)
    deferred.extend([number] * found)
    return found

DEFERRAL._is_announced = see

def until_drained():
    '''Be in the middle of a step when the signal comes, and see it deferred.'''
    while not deferred:
        time.sleep(0.005)  # a step that goes on; the signal, which is the condition, interrupts it

def step(state):
    if state.step == 200:
        raise StopIteration
    state.seen.append(state.step)
    tell(f"step {state.step}")
    if state.step % 3 == 2:
        until_drained()
    else:
        wait_at("step")
    return 0.5
"""
DRAINED = "this rank has committed and stops: this node drains (SIGTERM)"


@pytest.fixture
def room() -> Iterator[Room]:
    found = Room()
    found.make_gate("step")
    try:
        yield found
    finally:
        found.close()


def test_a_drain_lets_a_rank_finish_its_step_and_the_next_run_goes_on_there(room: Room) -> None:
    flags = ("--nproc-per-node=1", f"--snapshot-dir={room.path('commits')}")
    script = LOOP + "worker.train_loop(state, step, commit_every=100)"
    for first in (0, 3):
        job = room.start(flags, script)
        room.open_gate("step", 2)
        room.hear(f"step {first + 2}")
        job.signal(signal.SIGTERM)
        end = job.wait()
        assert end.status == 128 + signal.SIGTERM, end.err
        assert DRAINED in end.err
        assert f"\titeration={first}\n" in end.err


def test_a_rank_that_is_killed_in_a_step_longer_than_the_grace_has_said_what_is_lost(room: Room) -> None:
    endless = """
def step(state):
    tell(f"step {state.step}")
    if state.step == 2:
        wait_forever()
worker.train_loop(state, step, commit_every=100)
"""
    job = room.start(("--nproc-per-node=1", "--shutdown-timeout=2"), LOOP + endless)
    room.hear("step 2")
    job.signal(signal.SIGTERM)
    end = job.wait()
    assert end.status == 128 + signal.SIGTERM, end.err
    assert "if it is cut off, 2 steps are lost, for nothing was committed" in end.err
    assert "rank 0: killed by us, it did not stop in time; it was at" in end.err
    assert "in wait_forever" in end.err, "where the program hung, and not a thread of ours"


def test_ranks_that_cannot_agree_say_that_nothing_was_committed(room: Room) -> None:
    script = LOOP + "worker.train_loop(state, step, commit_every=1000)"
    job = room.start(("--nproc-per-node=2",), script)
    room.open_gate("step", 4)
    room.hear("step 2", 2)
    job.signal(signal.SIGTERM)
    end = job.wait()
    assert end.status == 128 + signal.SIGTERM, end.err
    assert "has committed" not in end.err
    said = "this rank stops at the last commit that all ranks have; 3 steps are lost, for nothing was committed"
    assert end.err.count(f"{said}: this node drains (SIGTERM)") == 2, end.err
    assert end.err.count("ranks cannot agree on a step to stop at") == 1


def test_a_rank_that_is_stopped_because_another_failed_does_not_wait_for_its_step(room: Room) -> None:
    """Also one that hangs where no handler of Python runs: in a library that waits for the dead."""
    hang = """
import ctypes
def step(state):
    if RANK == 1 and LIFE == 0:
        wait_at("fail")
        os.kill(os.getpid(), signal.SIGKILL)
    if LIFE == 1:
        raise StopIteration
    tell("hangs")
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)  # no signal ends this wait
"""
    room.make_gate("fail")
    flags = ("--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=600")
    job = room.start(flags, LOOP + hang + "worker.train_loop(state, step)")
    room.hear("hangs")
    room.open_gate("fail")
    end = job.wait()
    assert end.status == 0, end.err
    assert end.report["lives"][0]["failures"][0]["rank"] == 1


def test_a_signal_that_nobody_announced_ends_a_worker_as_ever(room: Room) -> None:
    job = room.start(("--nproc-per-node=1",), LOOP + "tell(f'pid {os.getpid()}')\nworker.train_loop(state, step)")
    pid = room.hear_value("pid")
    room.hear("step 0")
    kill(pid, signal.SIGTERM)
    end = job.wait()
    assert end.status == 1, end.err
    assert "SIGTERM" in end.report["first_cause"]["message"]


def test_children_that_a_loop_forked_obey_signals_and_their_parent_does_not_die_with_them(room: Room) -> None:
    forked = """
def child():
    if pid := os.fork():
        return pid
    wait_forever()

def step(state):
    for _ in range(20):
        pid = child()
        os.kill(pid, signal.SIGTERM)  # at once: perhaps before it has left what it shares with us
        _, status = os.waitpid(pid, 0)
        tell(f"ended {os.waitstatus_to_exitcode(status)}")
    raise StopIteration
"""
    end = room.run(("--nproc-per-node=1",), LOOP + forked + "worker.train_loop(state, step)")
    assert end.status == 0, end.err
    room.hear(f"ended {-signal.SIGTERM}", 20)


def test_status_shows_step_samples_and_loss(room: Room) -> None:
    port = free_port()
    sampled = """
from planaria.worker.data import ElasticSampler
sampler = ElasticSampler(1000, 8)
state = ElasticState(step=0, sampler=sampler)
batches = iter(sampler.count())
def step(state):
    tell("step")
    wait_at("step")
    next(batches)
    return {"loss": 0.25}
worker.train_loop(state, step)
"""
    job = room.start(("--nproc-per-node=1", f"--health-check-port={port}"), LOOP + sampled)
    room.open_gate("step", 2)
    room.hear("step", 3)

    def progress() -> dict[str, object] | None:
        with (
            contextlib.suppress(OSError),  # an agent that waits for a processor does not answer
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=PATIENCE_S) as answer,
        ):
            return json.load(answer)["progress"].get("0")
        return None

    found = wait_until(lambda: (seen := progress()) and seen["step"] == 2 and seen, "two steps")
    assert found["values"] == {"samples": 16.0, "loss": 0.25}
    job.signal(signal.SIGKILL)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    room.is_littered = True


SIGNALLED = """
import os, signal, sys
# Registered before the library's own: what comes to the child here comes before it has left the group.
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
from planaria.worker.deferral import DEFERRAL

DEFERRAL.begin()
found = []
for where in (DEFERRAL.setting_apart, contextlib.nullcontext):
    with where():
        child = os.fork()
    if not child:
        os._exit(os.getpgid(0) != os.getpid())
    found.append(os.waitpid(child, 0)[1])
print(found)
"""


def test_a_signal_that_meets_a_loaders_process_before_it_has_left_the_group_does_not_end_it() -> None:
    argv = [sys.executable, "-c", "import contextlib" + SIGNALLED]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == f"[0, {signal.SIGTERM}]\n", ended.stderr
