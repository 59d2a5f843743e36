"""Start one worker: own session, dies with the agent, output where it was told to go.

Plain fork and exec instead of `subprocess`: importing that costs 11-20 ms, and the steps between fork and exec (parent
death signal, CPU binding) are what this file is about. Other threads exist while a name is looked up, with a store in etcd
or Kubernetes, or in a program that embeds an agent; the interpreter makes its own locks usable again in the child, which
takes no other.
"""

from __future__ import annotations

import _thread
import os

from planaria.base import linux, signals
from planaria.base.value import Value, replace
from planaria.contract.blackbox import LIFELINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of fork\(\) may lead to deadlocks in the child"
SPAWN_FAILED = 127
PARENT_GONE = 126


class Start(Value):
    """One process to start. What is None is inherited; `black_box_fd` says where a failed start is written.

    `leash_fd`: a pipe whose last writer's end ends this process too (see `leash`). `lifeline_fd`: the writing end of a pipe
    whose reader hears of this process's end before the kernel has cleaned up after it. `kept_fds` outlive an exec.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    black_box_fd: int
    stdout_fd: int | None = None
    stderr_fd: int | None = None
    cpus: frozenset[int] = frozenset()
    inherit_black_box_as: int | None = None
    signal_mask: frozenset[int] = frozenset()
    handled_signals: tuple[int, ...] = ()
    priority: int | None = None
    file_limit: int | None = None
    leash_fd: int | None = None
    lifeline_fd: int | None = None
    kept_fds: tuple[int, ...] = ()


def spawn(start: Start) -> int:
    """Start the process and return its pid. A failure between fork and exec shows as exit status 127."""
    return fork(start, lambda: _execute(start))


def spawn_on_lifeline(start: Start) -> tuple[int, int]:
    """Start the process; return its pid, and what becomes readable when it ends, maybe long before it is gone."""
    lifeline, theirs = os.pipe()
    try:
        return spawn(replace(start, lifeline_fd=theirs)), lifeline
    except BaseException:
        os.close(lifeline)
        raise
    finally:
        os.close(theirs)


def fork(start: Start, main: Callable[[], int]) -> int:
    """Start a copy of this process, which runs `main` and ends with the status it returns; return its pid."""
    parent = os.getpid()
    # The kernel's signal for the death of a parent comes when the forking thread ends, which only the main one outlives.
    is_lasting = _thread.get_native_id() == parent
    # A signal that reaches the child before exec must neither run the agent's handlers nor wake the agent's loop.
    before = signals.block(start.handled_signals)
    try:
        pid = _fork()
        if pid == 0:
            _become(start, parent, main, is_lasting=is_lasting)
    finally:
        signals.restore_mask(before)
    return pid


def _fork() -> int:
    """Fork, and be silent about other threads, which Python warns of since 3.12: see above why they do no harm here."""
    if (
        len(os.listdir("/proc/self/task")) == 1
    ):  # as Python counts; `_thread` does not know of one that is just starting
        return os.fork()
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_FORK_WARNING, category=DeprecationWarning)
        return os.fork()


def _become(start: Start, parent: int, main: Callable[[], int], *, is_lasting: bool) -> None:
    """Turn this forked child into the worker. Never returns."""
    status = SPAWN_FAILED
    try:
        enter(start, parent, is_lasting=is_lasting)
        status = main()
    except (OSError, ValueError) as problem:  # ValueError: a word or variable that the system cannot take
        why = problem.strerror if isinstance(problem, OSError) else problem
        os.write(start.black_box_fd, f"cannot start {start.argv[0]}: {why}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(status & 0xFF)


def enter(start: Start, parent: int, *, is_lasting: bool) -> None:
    """Give this new process, a child of `parent`, all that is wanted of it but its program."""
    signals.set_wakeup_fd(-1)
    for number in start.handled_signals:
        signals.set_handler(number, signals.SIG_DFL)
    os.setsid()
    if is_lasting:
        linux.set_parent_death_signal(signals.SIGKILL)
    if os.getppid() != parent:  # it died before the line above took effect
        os._exit(PARENT_GONE)
    if start.leash_fd is not None and not linux.end_with_writers(start.leash_fd):
        os._exit(PARENT_GONE)
    for descriptor, target in ((start.stdout_fd, 1), (start.stderr_fd, 2)):
        if descriptor is not None:
            os.dup2(descriptor, target)
    if start.cpus:
        os.sched_setaffinity(0, start.cpus)
    if start.priority is not None:
        os.setpriority(os.PRIO_PROCESS, 0, start.priority)
    if start.file_limit is not None:
        linux.set_file_limit(start.file_limit)
    signals.restore_mask(start.signal_mask)


def _execute(start: Start) -> int:
    if start.inherit_black_box_as is not None:
        os.dup2(start.black_box_fd, start.inherit_black_box_as)
        os.set_inheritable(start.inherit_black_box_as, True)  # dup2 onto itself changes nothing
    for descriptor in start.kept_fds:
        os.set_inheritable(descriptor, True)
    if start.lifeline_fd is not None and LIFELINE not in start.kept_fds:
        os.dup2(start.lifeline_fd, LIFELINE)
        os.set_inheritable(LIFELINE, True)  # as above
    # Python ignores these two, and an ignored signal stays ignored after exec.
    signals.set_handler(signals.SIGPIPE, signals.SIG_DFL)
    signals.set_handler(signals.SIGXFSZ, signals.SIG_DFL)
    os.execvpe(start.argv[0], start.argv, start.environment)
