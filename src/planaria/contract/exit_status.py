"""The one table of exit statuses. Help texts, docs and restart policies of orchestrators are made from it."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.errors import AwsError, FetchFailed, InternalError, KubeError, PlanariaError, UsageError

DONE = 0
WORKER_FAILED = 1
USAGE = 2
UNAVAILABLE = 69
INTERNAL = 70
NODE_FAILED = 71
DRAINED = 75
NO_ROUND = 124
SIGNAL_BASE = 128


class ExitStatus(Value):
    """One row: what the launcher's exit status means and whether running the job again makes sense."""

    status: int
    name: str
    meaning: str
    retry: bool


TABLE: tuple[ExitStatus, ...] = (
    ExitStatus(DONE, "done", "every worker finished with status 0", False),
    ExitStatus(WORKER_FAILED, "worker failed", "a worker failed and the restart budget is spent", False),
    ExitStatus(USAGE, "usage", "a flag, variable or script is wrong; nothing was started", False),
    ExitStatus(
        UNAVAILABLE,
        "unavailable",
        "the code could not be fetched, or AWS or Kubernetes refused or did not answer; no `planaria run` ends so",
        True,
    ),
    ExitStatus(INTERNAL, "internal", "a bug in planaria; please report what was printed", False),
    ExitStatus(NODE_FAILED, "node failed", "the system refused the agent something: this node's trouble alone", True),
    ExitStatus(
        DRAINED,
        "drained",
        "drained after a notice, and what only this node had is on disk or with another node: run the job again",
        True,
    ),
    ExitStatus(NO_ROUND, "no round", "the first round did not open within join_timeout", True),
)
# Signals that come from outside (a shell, an owner, the kernel short of memory): the job may be run again. The others
# (a fault in memory, an abort) are the program's own.
RETRY_SIGNALS = (1, 2, 9, 10, 12, 15)  # HUP, INT, KILL, USR1, USR2, TERM
SIGNAL_ROW = "128+n | ended by signal | signal n ended the launcher or its agent (143 after SIGTERM)"


def by_signal(number: int) -> int:
    """Return the status of a launcher that ended because of signal `number`."""
    return SIGNAL_BASE + number


def of_worker(status: int) -> int:
    """Return the shell's form of a worker's status, where a negative one is minus the signal's number."""
    return by_signal(-status) if status < 0 else status


def of_error(problem: PlanariaError | OSError) -> int:
    """Return the status of a command that ended because of an error."""
    match problem:
        case UsageError():
            return USAGE
        case AwsError() | FetchFailed() | KubeError():
            return UNAVAILABLE
        case InternalError():
            return INTERNAL
        case _:  # the machine refused something: a process, a port, room on a disk
            return NODE_FAILED


def may_run_again(status: int) -> bool:
    """Tell whether running the job again makes sense after a launcher ended with this status."""
    if status >= SIGNAL_BASE:
        return status - SIGNAL_BASE in RETRY_SIGNALS
    return any(row.retry for row in TABLE if row.status == status)


def meaning(status: int) -> str:
    """Say in a few words what a status means; empty for one that is nobody's but the program's."""
    if status >= SIGNAL_BASE:
        return f"signal {status - SIGNAL_BASE}"
    return next((row.meaning for row in TABLE if row.status == status), "")
