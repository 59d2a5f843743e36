from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from planaria.base import linux
from planaria.process import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

TREE = """
import os, signal, sys
from planaria.base import linux, signals
from planaria.process import descendants

ready, told = os.pipe()

def sleeper(detached=False, stubborn=False):
    '''Start a process that sleeps for ever; return its pid.'''
    pid = os.fork()
    if pid == 0:
        if not detached:
            linux.set_parent_death_signal(signal.SIGKILL)
        if detached:
            os.setsid()
            if os.fork():
                os._exit(0)
        if stubborn:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        os.write(told, b"x")
        while True:
            signal.pause()
    os.read(ready, 1)
    return pid
"""


def output_of(source: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TREE + source], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as found:
        yield found


def test_children_are_found(child: subprocess.Popen[bytes]) -> None:
    assert child.pid in descendants.children_of(os.getpid())
    assert child.pid in descendants.descendants_of(os.getpid())
    assert descendants.children_of(child.pid) == []


def test_a_process_that_is_gone_has_no_children() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    assert descendants.children_of(done.pid) == []
    assert descendants.descendants_of(done.pid) == []


def test_kernels_without_a_list_of_children_are_asked_process_by_process(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = linux.read_file
    monkeypatch.setattr(linux, "read_file", lambda path: b"" if path.endswith("/children") else real(path))
    monkeypatch.setattr(os.path, "exists", lambda path: not path.endswith("/children"))
    assert child.pid in descendants.children_of(os.getpid())


def test_children_of_every_thread_are_found() -> None:
    source = """
import threading
found = []
thread_done, go = threading.Event(), threading.Event()
def fork_here():
    found.append(sleeper())
    thread_done.set()
    go.wait()
thread = threading.Thread(target=fork_here)
thread.start()
thread_done.wait()
print(descendants.children_of(os.getpid()) == found)
go.set()
thread.join()
print(descendants.end_descendants(60, __import__("time").monotonic))
"""
    assert output_of(source) == "True\nTrue\n"


def test_parents_come_before_their_children() -> None:
    source = """
all_here, say = os.pipe()
pid = os.fork()
if pid == 0:
    sleeper()
    sleeper()
    os.write(say, b"x")
    signal.pause()
os.read(all_here, 1)
found = descendants.descendants_of(os.getpid())
print(len(found), found[0] == pid)
print(descendants.end_descendants(60, __import__("time").monotonic))
print(descendants.descendants_of(os.getpid()))
"""
    assert output_of(source) == "3 True\nTrue\n[]\n"


def test_a_subreaper_ends_whatever_it_ever_caused() -> None:
    source = """
linux.become_subreaper()
for detached in (False, True):
    for stubborn in (False, True):
        sleeper(detached, stubborn)
print(len(descendants.descendants_of(os.getpid())) >= 4)
print(descendants.end_descendants(60, __import__("time").monotonic))
print(descendants.descendants_of(os.getpid()))
"""
    assert output_of(source) == "True\nTrue\n[]\n"


def test_ending_nobody_is_quick_and_complete() -> None:
    assert output_of("print(descendants.end_descendants(0, lambda: 0.0))") == "True\n"


def test_ending_gives_up_when_its_time_is_over() -> None:
    source = """
sleeper()
descendants.kill_descendants = lambda pid, spared: 1
times = iter([0.0, 1.0, 2.0])
print(descendants.end_descendants(1.5, lambda: next(times)))
os.kill(descendants.children_of(os.getpid())[0], 9)
"""
    assert output_of(source) == "False\n"
