"""Workers end with the process that started them, whichever of its threads did, and whatever it forked itself."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

PATIENCE_S = 60.0
# The worker, a shell, holds the write end of a pipe: its end of file is the worker's death.
PROGRAM = """
import os, signal, sys, threading
from planaria.process.leash import hold
from planaria.process.spawn import Start, spawn

kind, alive = sys.argv[1], int(sys.argv[2])
box = os.memfd_create("box")
order = Start(("/bin/sleep", "600"), dict(os.environ), box, leash_fd=hold(), kept_fds=(alive,))
if kind == "thread":
    started = []
    thread = threading.Thread(target=lambda: started.append(spawn(order)))
    thread.start()
    thread.join()
    pid = started[0]
else:
    pid = spawn(order)
if kind == "fork" and os.fork() == 0:
    os.close(alive)
    os.close(1)
    signal.pause()  # a copy of the caller, which must not keep the worker alive
os.close(alive)
print(pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("kind", ["main", "thread", "fork"])
def test_a_worker_dies_with_its_caller_and_not_with_the_thread_that_forked_it(kind: str) -> None:
    alive, held = os.pipe()
    pid = 0
    caller = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, str(held)],
        stdout=subprocess.PIPE,
        pass_fds=(held,),
        start_new_session=True,
    )
    os.close(held)
    assert caller.stdout is not None
    try:
        assert is_readable(caller.stdout.fileno()), "the caller never said a word"
        pid = int(caller.stdout.readline())
        with open(f"/proc/{pid}/stat") as file:
            assert file.read().rpartition(")")[2].split()[0] in "SR"
        caller.kill()
        caller.wait()
        assert is_readable(alive), "the worker outlived its caller"
        assert os.read(alive, 1) == b""
        pid = 0
    finally:
        os.close(alive)
        caller.stdout.close()
        for end, number in ((os.killpg, caller.pid), (os.kill, pid)):  # its session has the copy of the caller
            if number:
                with contextlib.suppress(ProcessLookupError):
                    end(number, signal.SIGKILL)
        caller.wait()


def is_readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], PATIENCE_S)[0])


def test_who_comes_too_late_does_not_start_at_all() -> None:
    code = """
import os
from planaria.process.spawn import PARENT_GONE, Start, spawn
read, write = os.pipe()
os.close(write)
pid = spawn(Start(("/bin/true",), {}, os.memfd_create("box"), leash_fd=read))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == PARENT_GONE)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True\n"
