"""A process that finds something out: what it says, its time, and its end with all that it runs."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from waiting import wait_until

from planaria.base import linux
from planaria.process import helper as room
from planaria.process.helper import MOST_BYTES, Helper, Order

if TYPE_CHECKING:
    from planaria.base.loop import Loop

PAUSE = "import signal; signal.pause()"


class Asked:
    """A helper that runs a program, and what it calls."""

    def __init__(self, loop: Loop, program: str, within_s: float = 60.0, kept_fds: tuple[int, ...] = ()) -> None:
        self.loop = loop
        self.heard: list[bytes] = []
        self.ends = 0
        order = Order((sys.executable, "-ISc", program), {}, within_s, kept_fds)
        self.helper = Helper(loop, order, self._hear, self._end)

    def _hear(self) -> None:
        self.heard.append(self.helper.heard)

    def _end(self) -> None:
        self.ends += 1

    def wait(self) -> int:
        """Let it come to its end; return its status."""
        while not self.ends:
            self.loop.run_once(1.0)
        return os.waitstatus_to_exitcode(os.waitpid(self.helper.pid, 0)[1])


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_what_it_says_is_heard_and_it_has_what_it_was_given(loop: Loop) -> None:
    before = descriptors()
    given = os.memfd_create("given")
    os.write(given, b"a question")
    asked = Asked(loop, f"import os; print(os.pread({given}, 99, 0).decode(), 'answered')", kept_fds=(given,))
    asked.wait()
    os.close(given)
    assert (asked.heard[-1], asked.ends, asked.helper.is_late) == (b"a question answered\n", 1, False)
    asked.helper.dismiss()
    assert descriptors() == before


def test_its_time_is_limited_and_so_is_what_it_may_say(loop: Loop) -> None:
    asked = Asked(loop, PAUSE, 0.05)
    assert asked.wait() == -signal.SIGKILL
    assert asked.helper.is_late
    asked = Asked(loop, "while True: print('x' * 65536)")
    assert asked.wait() != 0  # killed, or it has noticed before that nobody hears it any more
    assert (asked.helper.is_late, len(asked.helper.heard) < 2 * MOST_BYTES) == (False, True)


def test_who_dismisses_it_is_called_no_more(loop: Loop) -> None:
    asked = Asked(loop, PAUSE)
    asked.helper.dismiss()
    os.waitpid(asked.helper.pid, 0)
    loop.run_once(0.0)
    assert (asked.heard, asked.ends) == ([], 0)


def test_a_tool_that_it_runs_ends_with_it_although_it_was_reaped_before(loop: Loop) -> None:
    """One that was killed leaves its tool behind, which may hold a worker that it looks at."""
    tool = "import os, signal; os.fork() and signal.pause(); print(os.getpid(), flush=True); signal.pause()"
    asked = Asked(loop, tool)
    while not asked.heard or not asked.heard[-1].endswith(b"\n"):
        loop.run_once(1.0)
    left = int(asked.heard[-1])
    os.kill(asked.helper.pid, signal.SIGKILL)
    os.waitpid(asked.helper.pid, 0)
    assert linux.is_running(left)
    asked.helper.dismiss()
    wait_until(lambda: not linux.is_running(left), "the end of what it ran")


def test_a_number_that_belongs_to_another_by_now_is_left_alone(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(loop, "")
    os.waitpid(asked.helper.pid, 0)
    monkeypatch.setattr(room, "signal_group", lambda *_: pytest.fail("it was killed"))
    asked.helper.pid = os.getppid()
    asked.helper.dismiss()


@pytest.mark.parametrize("failing", ["open", "fork"])
def test_without_a_descriptor_or_a_process_nothing_is_left_open(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(errno.EMFILE, "no more")

    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, refuse)
        with pytest.raises(OSError, match="no more"):
            Asked(loop, PAUSE)
    assert descriptors() == before
