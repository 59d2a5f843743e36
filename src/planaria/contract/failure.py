"""One worker's bad end, with everything known about it. The report, the restart policy and the JSON file share it."""

from __future__ import annotations

from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    FailureKind = Literal["exception", "exit", "signal", "spawn", "watchdog"]
    Killer = Literal["", "us", "oom", "other"]


class Failure(Value):
    """`status` is the exit code or minus the signal; `at` is when it happened on the node's monotonic clock.

    `stopped_for` names the rank whose failure made the agent stop this worker, or is `ROUND_OVER`; it is None for a failure
    of its own. `progressed`: the workers of its node had reported progress before.
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
    progressed: bool = False


HANG = "planaria.hang"
"""The type of a failure that is no end: the worker shows no progress, and its agent ends it. `where` is its phase then, and
empty where it only waits for a rank of another node."""
ENDED = "planaria.ended"
"""The type of a failure that is only late: the program had ended well, and we killed what Python does after that."""
WAITS_ELSEWHERE = "waits for a rank of another node that nobody named"
ROUND_OVER = -1
"""Stands for a rank in `stopped_for` when the round ended for a reason that is not on this node."""
EARLY_LIFE_S = 60.0  # a life this old has done something, whether or not it reported progress


def first_cause_first(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """Order failures: those of the workers' own making by time, then those that name a lost peer, then those we caused.

    Time alone does not tell: a dead worker's connections close before its end is reported, 0.2 s before with a GPU.
    """
    return tuple(
        sorted(failures, key=lambda one: (one.stopped_for is not None, names_a_lost_peer(one), one.at, one.rank))
    )


def in_words(failure: Failure) -> str:
    """Say in a few words what a rank did, as the reason of a restart."""
    if failure.type != HANG:
        return f"rank {failure.rank} failed"
    return f"rank {failure.rank} {f'hangs in phase {failure.where}' if failure.where else WAITS_ELSEWHERE}"


_LOST_PEER = (
    "broken pipe",
    "connection closed by",
    "connection reset by peer",
    "connection was likely closed",
    "ncclremoteerror",
    "remote process exited",
    "socket closed",
    "socket timeout",
)
"""What Python, Gloo, NCCL and torch's store say, in lower case, when the process at the other end is gone."""


def names_a_lost_peer(failure: Failure) -> bool:
    """Tell whether a worker failed because another had gone, as far as its exception says."""
    return tells_of_a_lost_peer(failure.kind, failure.message, failure.bases)


def tells_of_a_lost_peer(kind: str, message: str, bases: Iterable[str]) -> bool:
    """Tell the same of what is known of a failure elsewhere: in a journal, say."""
    if kind not in ("exception", "exit"):
        return False
    said = message.lower()
    return not {"ConnectionError", "EOFError"}.isdisjoint(bases) or any(text in said for text in _LOST_PEER)


def stopped(failure: Failure, culprit_rank: int) -> Failure:
    """Return the same end, marked as caused by us after `culprit_rank` failed."""
    return replace(failure, stopped_for=culprit_rank)


MISTAKES = frozenset({"ImportError", "SyntaxError", "NameError"})
"""Exception types that say the program itself is wrong. Anything else may have to do with data, network or neighbours."""

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


def are_one_mistake(failures: Iterable[Failure], world_size: int) -> bool:
    """Tell whether every rank of a world made the same mistake at start-up, so that another life cannot help."""
    own = [failure for failure in failures if failure.stopped_for is None]
    early = not any(one.progressed or one.age_s >= EARLY_LIFE_S for one in own)
    return early and len(own) == world_size > 0 and are_alike(own) and is_mistake(own[0])


def from_json(text: str) -> Failure | None:
    """Return the failure in a JSON text, or None when there is none in it; see `failure_json`."""
    from planaria.contract.failure_json import failure_from_json

    try:
        return failure_from_json(text)
    except ValueError:
        return None
