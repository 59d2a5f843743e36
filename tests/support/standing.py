"""Start one program both ways an agent can: cold, and by promoting a standby. Everything else is the same."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.contract import blackbox
from planaria.process.command import worker_argv
from planaria.process.model import Command
from planaria.process.spares import Plan
from planaria.process.spawn import Start, spawn_on_lifeline
from planaria.process.standby import Standby

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from planaria.process.standbys import Standbys

PATIENCE_S = 60.0
BLACK_BOX_FD = 1023
_CHANNEL_FD, _PAPERS_FD = 1022, 1021  # of a standby of an agent: the second is closed when its report is written
RANKS = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "ROLE_RANK": "3",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_WORLD_SIZE": "8",
    "MASTER_ADDR": "node-a",
    "MASTER_PORT": "4711",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_ERROR_FILE": "",
    "PLANARIA_ROUND": "5",
    "PLANARIA_RESTART_REASON": "rank 1 failed",
}
LOCAL_RANK = 1
KNOWN = {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}


class Ended(NamedTuple):
    """How a program ended, and all it left."""

    status: int
    stdout: str
    stderr: str
    box: bytes
    learned: blackbox.Learned


class Job:
    """A program in a folder, with the environment and command line of a worker."""

    def __init__(self, folder: Path, kind: str, target: str, *args: str, **variables: str) -> None:
        self.folder = folder
        dropped = ("PYTHON", "PET_", "TORCHELASTIC_", "PLANARIA_", "OMP_", "COV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self.command = Command(kind, target, args, sys.executable)  # type: ignore[arg-type]
        self.environment = {**kept, **KNOWN, **RANKS, **variables}

    def order(self, black_box: int = -1, stdout: int | None = None, stderr: int | None = None) -> Start:
        argv = worker_argv(self.command, LOCAL_RANK, BLACK_BOX_FD, learn=True)
        return Start(argv, self.environment, black_box, stdout, stderr, inherit_black_box_as=BLACK_BOX_FD)

    def standby(self, plan: Plan) -> Standby:
        with contextlib.chdir(self.folder):
            return Standby(LOCAL_RANK, self.order(), plan)

    def cold(self) -> Ended:
        def start_cold(start: Start) -> int:
            pid, lifeline = spawn_on_lifeline(start)
            os.close(lifeline)
            return pid

        return self._run(start_cold)

    def promoted(self, plan: Plan | None = None, before: Callable[[Standby], object] = lambda _standby: None) -> Ended:
        standby = self.standby(plan or Plan())
        try:
            assert ready(standby), standby.last_words()
            before(standby)
        except BaseException:
            end(standby)
            raise

        def promote(start: Start) -> int:
            assert standby.staleness() == standby.refusal(start) == ""
            assert standby.promote(start)
            return standby.pid

        return self._run(promote)

    def _run(self, begin: Callable[[Start], int]) -> Ended:
        box = os.memfd_create("box", os.MFD_CLOEXEC)
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        with contextlib.chdir(self.folder):
            pid = begin(replace(self.order(box), stdout_fd=out_end, stderr_fd=err_end))
        os.close(out_end)
        os.close(err_end)
        stderr: list[str] = []
        reader = threading.Thread(target=lambda: stderr.append(_all(err)))
        reader.start()
        stdout = _all(out)
        reader.join()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        data = os.pread(box, blackbox.LIMIT_BYTES, 0)
        os.close(box)
        return Ended(status, stdout, stderr[0], data, blackbox.learned(data, LOCAL_RANK))


def ready(standby: Standby) -> bool:
    """Wait until a standby is ready; False: it is gone."""
    is_talking = True
    while is_talking:
        found, _, _ = select.select([standby], [], [], PATIENCE_S)
        assert found, "the standby says nothing"
        is_talking = standby.hear()
    return standby.is_ready


def end(standby: Standby) -> int:
    """End a standby, or bury it; return its status."""
    standby.end()
    status = os.waitstatus_to_exitcode(os.waitpid(standby.pid, 0)[1])
    standby.close()
    return status


def died(standby: Standby) -> int:
    """Wait until a standby is dead; return its status."""
    assert not ready(standby)
    return os.waitstatus_to_exitcode(os.waitpid(standby.pid, 0)[1])


def turn_until(loop: Loop, is_so: Callable[[], bool]) -> None:
    """Turn a loop until something is so."""
    deadline = loop.now() + PATIENCE_S
    while not is_so():
        assert loop.now() < deadline, "it never came"
        loop.run_once(0.05)


@contextlib.contextmanager
def looping() -> Iterator[Loop]:
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


def _all(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def stands_ready(pid: int) -> bool:
    """Tell whether a process is a standby that waits for its order, seen from outside."""
    channel, papers = (os.path.lexists(f"/proc/{pid}/fd/{number}") for number in (_CHANNEL_FD, _PAPERS_FD))
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return channel and not papers and state == b"S"


def all_ready(standbys: Standbys, count: int) -> bool:
    """Tell whether so many stand by, and all are ready."""
    return len(standbys.seen) == count and all(one.is_ready for one in standbys.seen)
