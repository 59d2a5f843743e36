"""A small process beside an agent that lives in somebody else's: what a dead or stopped agent cannot do, it does.

    agent (a thread of the caller's process)  --pipe: pids of the workers, as they change-->  sentry
                                              --board: no worker may live from this moment on-->

The guardian of `planaria run` stands above its agent and adopts what it leaves. A sentry cannot: it stands beside. It knows
the workers' sessions and the mark in their environment (`own.py`). When the agent's process ends it kills what is left and
removes the run's folder; when the moment on the board passes it kills the workers, once, and leaves the agent alone.
"""

from __future__ import annotations

import os
import select
import time

from planaria.base.files import remove_tree
from planaria.process.own import kill_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

LOOK_S = 0.25  # how late a first deadline may be seen; later ones lie a lease ahead
SLACK_S = 0.05  # an agent that runs kills its workers itself, in time, and knows then why they died
LOOK_AGAIN_S = 0.01  # a process that forks while it is being killed is met at the second look
END_TIMEOUT_S = 5.0
_NS = 1_000_000_000
_START = "import sys; sys.path.insert(0, sys.argv[1]); from planaria.process.sentry import main; main(sys.argv[2:])"


class Sentry:
    """The agent's hand on its sentry."""

    def __init__(self, board: int, mark: bytes, scratch_dir: str) -> None:
        import subprocess

        from planaria.process.functions import interpreter

        hear, self._tell = os.pipe()
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        words = (root, str(hear), str(board), str(os.getpid()), os.fsdecode(mark), scratch_dir)
        try:
            self._process: Popen[bytes] = subprocess.Popen(
                [interpreter(), "-I", "-S", "-c", _START, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(hear, board),
                start_new_session=True,
            )
        except OSError:
            os.close(self._tell)
            raise
        finally:
            os.close(hear)

    def know(self, workers: frozenset[int]) -> None:
        """Tell it which workers live now, instead of those before."""
        try:
            os.write(self._tell, f"{' '.join(map(str, sorted(workers)))}\n".encode())
        except BrokenPipeError:  # somebody ended it; workers still die with the agent
            return

    def dismiss(self) -> None:
        """Let it go home: nothing lives any more."""
        self.know(frozenset())
        os.close(self._tell)
        self._process.wait()


def main(argv: list[str]) -> None:
    """Watch until the agent is gone or has said that it is done."""
    hear, board, agent, mark, scratch_dir = argv
    _Watch(int(hear), int(board), mark.encode("utf-8", "surrogateescape")).run(int(agent))
    remove_tree(scratch_dir)


class _Watch:
    """What the sentry knows: who the workers are, and until when they may live."""

    def __init__(self, hear: int, board: int, mark: bytes) -> None:
        self._hear = hear
        self._board = board
        self._mark = mark
        self._sessions: frozenset[int] = frozenset()
        self._partial = b""
        self._kept = 0

    def run(self, agent: int) -> None:
        """Look until the agent's process has ended or its pipe has; then end what is left."""
        poll = select.poll()
        poll.register(self._hear, select.POLLIN)
        ended = _pidfd(agent)
        if ended is not None:  # the pipe alone does not tell: a forked worker has its end too
            poll.register(ended, select.POLLIN)
        while os.getppid() == agent:
            ready = dict(poll.poll(LOOK_S * 1000))
            if (self._hear in ready and not self._listen()) or (ended is not None and ended in ready):
                break
            self._look()
        os.set_blocking(self._hear, False)
        while self._listen():  # it may have died before we first listened
            continue
        self._end()

    def _listen(self) -> bool:
        """Take what was said; False when there is no more, or nobody to say it."""
        try:
            chunk = os.read(self._hear, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if lines:
            self._sessions = frozenset(map(int, lines[-1].split()))
        return bool(chunk)

    def _look(self) -> None:
        """Read the board. A moment that has passed costs the workers their lives, once; a new one is waited for."""
        fence = self._newest()
        if fence not in (0, self._kept) and time.monotonic() >= fence / _NS + SLACK_S:
            self._kept = fence
            self._end(lambda: self._newest() == fence)

    def _newest(self) -> int:
        return int.from_bytes(os.pread(self._board, 8, 0), "little")

    def _end(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Kill until a look finds nobody new. What the kernel holds is left to it."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while is_wanted() and kill_own(self._sessions, self._mark) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)  # noqa: TID251  this process has nothing else to do


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
