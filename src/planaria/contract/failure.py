"""One worker's bad end, with everything known about it. The report, the restart policy and the JSON file share it."""

from __future__ import annotations

from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    FailureKind = Literal["exception", "exit", "signal", "spawn"]
    Killer = Literal["", "us", "oom", "other"]


class Failure(Value):
    """`status` is the exit code or minus the signal; `at` is when it happened on the node's monotonic clock.

    `stopped_for` names the rank whose failure made the agent stop this worker; it is None for a failure of its own.
    """

    rank: int
    local_rank: int
    host: str
    pid: int
    status: int
    at: float
    age_s: float
    kind: FailureKind
    type: str = ""
    bases: tuple[str, ...] = ()
    message: str = ""
    traceback: str = ""
    where: str = ""
    killer: Killer = ""
    stopped_for: int | None = None
    stderr_tail: str = ""
    error_file: str = ""
    log_files: tuple[str, ...] = ()


def first_cause_first(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Order failures: those of the workers' own making by time, then those we caused ourselves."""
    return tuple(sorted(failures, key=lambda one: (one.stopped_for is not None, one.at, one.rank)))


def stopped(failure: Failure, culprit_rank: int) -> Failure:
    """Return the same end, marked as caused by us after `culprit_rank` failed."""
    return replace(failure, stopped_for=culprit_rank)


MISTAKES = frozenset(
    {"ImportError", "SyntaxError", "NameError", "AttributeError", "TypeError", "ValueError", "LookupError"}
    | {"NotImplementedError", "AssertionError", "FileNotFoundError", "PermissionError", "NotADirectoryError"}
)
"""Exception types that say the program or its arguments are wrong. RuntimeError and network errors may pass by themselves."""

USAGE_STATUS = 2
"""What argparse and most programs exit with after a wrong argument."""


def is_mistake(failure: Failure) -> bool:
    """Tell whether running the same program again is bound to fail the same way, as far as its error says."""
    if failure.kind == "exception":
        return not MISTAKES.isdisjoint(failure.bases)
    return failure.kind == "spawn" or (failure.kind == "exit" and failure.status == USAGE_STATUS)


def are_alike(failures: Iterable[Failure]) -> bool:
    """Tell whether these failures are one error met in several places."""
    return len({(one.kind, one.type, one.where, one.status) for one in failures}) <= 1
