from __future__ import annotations

import os
import subprocess

import pytest

from planaria.elastic.utils.process_state import is_uninterruptible_state, read_proc_state


def test_our_own_state_is_running() -> None:
    assert read_proc_state(os.getpid()) == "R"


def test_the_state_of_a_process_that_waits_is_seen() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
        assert read_proc_state(cat.pid) in ("R", "S", "D")
        assert cat.stdin is not None
        cat.stdin.close()
        os.waitid(os.P_PID, cat.pid, os.WEXITED | os.WNOWAIT)
        assert read_proc_state(cat.pid) == "Z"


def test_a_process_that_is_none_has_no_state() -> None:
    assert read_proc_state(0) is None


@pytest.mark.parametrize(("state", "stuck"), [("D", True), ("D+", True), ("S", False), ("R", False), (None, False)])
def test_only_a_process_in_the_kernel_is_stuck(state: str | None, stuck: bool) -> None:
    assert is_uninterruptible_state(state) is stuck
