"""Ends that are heard of before the kernel has cleaned up, through lifelines."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from waiting import wait_until

from planaria.base.loop import Loop
from planaria.process.children import Children

if TYPE_CHECKING:
    from collections.abc import Iterator

LEADER_GONE = """
import ctypes, os, sys, threading, time
status, held = int(sys.argv[1]), int(sys.argv[2])

def stay():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.001)  # nobody tells a thread that the first one has ended
    os.close(held)
    sys.stdin.read()
    os._exit(status)

threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], status)
"""


class Lingering:
    """A process whose first thread has ended and whose last one waits for a word: as if a device held it."""

    def __init__(self, family: SimpleNamespace, status: int) -> None:
        self.lifeline, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEADER_GONE, str(status), str(theirs)], stdin=subprocess.PIPE, pass_fds=(theirs,)
        )
        os.close(theirs)
        self.pid = self.process.pid
        family.children.add(self.pid, lifeline=self.lifeline)

    def let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.returncode = 0  # it is not Popen's to wait for


@pytest.fixture
def family() -> Iterator[SimpleNamespace]:
    loop = Loop()
    family = SimpleNamespace(ends=[], childless=[], replaced=True)
    family.children = Children(
        loop,
        lambda pid, status: family.ends.append((pid, status)),
        lambda: family.childless.append(True),
        is_replaced=lambda _pid: family.replaced,
    )
    family.turn = lambda is_so: wait_until(lambda: loop.run_once(0.01) or is_so(), "it")
    family.look = lambda: (family.children.on_sigchld(), [loop.run_once(0) for _ in range(3)])
    yield family
    loop.close()


def test_the_end_of_one_that_is_replaced_is_told_before_it_is_gone_and_only_once(family: SimpleNamespace) -> None:
    child = Lingering(family, 3)
    family.turn(lambda: family.ends)
    assert family.ends == [(child.pid, 3)]
    assert os.path.exists(f"/proc/{child.pid}")
    family.look()
    assert family.childless, "one that is dying does not count"
    family.childless.clear()
    family.children.count_the_dying()
    family.look()
    assert not family.childless
    child.let_go()
    family.turn(lambda: not os.path.exists(f"/proc/{child.pid}"))
    family.look()
    assert family.ends == [(child.pid, 3)]
    assert family.childless


@pytest.mark.parametrize("why", ["nobody takes its place", "its status may be hidden"])
def test_a_lifeline_that_ends_is_no_end_where(family: SimpleNamespace, why: str) -> None:
    family.replaced = why != "nobody takes its place"
    child = Lingering(family, 3 if not family.replaced else 0)
    family.turn(lambda: not family.children._lifelines)
    assert not family.ends
    child.let_go()
    family.turn(lambda: family.ends)
    assert family.ends == [(child.pid, 0 if family.replaced else 3)]


def test_a_program_that_closes_its_lifeline_has_not_ended(family: SimpleNamespace) -> None:
    lifeline, theirs = os.pipe()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    family.children.add(child.pid, lifeline=lifeline)
    os.close(theirs)
    family.turn(lambda: not family.children._lifelines)
    assert not family.ends
    assert child.stdin is not None
    child.stdin.close()
    child.returncode = 0
    family.turn(lambda: family.ends)
    assert family.ends == [(child.pid, 0)]
