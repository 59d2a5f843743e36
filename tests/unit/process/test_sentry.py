import multiprocessing
import os
import subprocess
import sys
import textwrap
import time

import pytest
from programs import end_marked
from waiting import wait_until

from planaria.process.sentry import Sentry

PATIENCE_S = 30.0
MARK = b"PLANARIA_SENTRY_TEST=1"


@pytest.fixture
def board():
    opened = os.memfd_create("board")
    yield opened
    os.close(opened)


@pytest.fixture
def sentry(board, tmp_path):
    """Start a sentry, and end it if the test did not."""
    found = Sentry(board, MARK, str(tmp_path / "scratch"))
    yield found
    if found._process.poll() is None:
        found._process.kill()
        found._process.wait()


@pytest.fixture
def worker():
    child = subprocess.Popen(["sleep", "100"], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def until(moment_s: float) -> bytes:
    return int(moment_s * 1e9).to_bytes(8, "little")


def test_a_moment_that_passes_costs_the_workers_their_lives_and_the_agent_nothing(sentry, board, worker):
    sentry.know(frozenset({worker.pid}))
    os.pwrite(board, until(time.monotonic() + 0.1), 0)
    assert worker.wait(PATIENCE_S) == -9
    sentry.dismiss()


def test_a_moment_that_is_moved_in_time_costs_nothing(sentry, board, worker):
    sentry.know(frozenset({worker.pid}))
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        os.pwrite(board, until(time.monotonic() + 60.0), 0)
    sentry.dismiss()
    assert worker.poll() is None


def test_a_sentry_that_is_dismissed_kills_nobody_and_is_gone(sentry, board, worker):
    sentry.know(frozenset({worker.pid}))
    sentry.dismiss()
    assert worker.poll() is None
    assert sentry._process.returncode == 0


def test_when_the_agent_dies_its_workers_and_its_folder_go_too(worker, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "control").touch()
    program = f"""
    import os, signal
    from planaria.process.sentry import Sentry
    sentry = Sentry(os.memfd_create("board"), {MARK!r}, {str(scratch)!r})
    sentry.know(frozenset({{{worker.pid}}}))
    if os.fork() == 0:  # somebody who keeps our end of the pipe open
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
    """
    agent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], start_new_session=True)
    try:
        assert agent.wait(PATIENCE_S) == -9
        assert worker.wait(PATIENCE_S) == -9
        wait_until(lambda: not scratch.exists(), "its folder removed")
    finally:
        end_marked(str(scratch))  # the one who kept the pipe open, and what failed
        agent.kill()
        agent.wait()


def test_a_sentry_that_somebody_ended_does_not_hurt_the_agent(sentry):
    sentry._process.kill()
    sentry._process.wait()
    sentry.know(frozenset({1}))
    sentry.dismiss()


def test_a_sentry_runs_under_the_interpreter_that_workers_run_under(board, tmp_path, monkeypatch):
    multiprocessing.set_executable(sys.executable)
    monkeypatch.setattr(sys, "executable", "/no/python")  # as in a program that embeds Python and says where it is
    Sentry(board, MARK, str(tmp_path / "scratch")).dismiss()
