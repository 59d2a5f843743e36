"""Which commit of the training state is which, which one counts, and what it costs in memory.

A commit is *complete* when every rank of its world has sealed it. Commits are ordered by (run, round, generation):
`run` counts the starts of the job that began from an older commit, `round` is the agreed membership, `generation` counts the
commits along the line of states that led to this one. So a commit of a later round wins over a higher step of an earlier
one that its world never completed.

Every call of commit() has a generation of its own, also one that is refused, so ranks that make the same calls count alike. Who
goes back in the middle of a life counts on in the next *line*: in a round no order is ever used twice.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Literal

    Order = tuple[int, int, int]
    Tier = Literal["node", "buddy", "disk"]

TIERS: tuple[Tier, ...] = ("node", "buddy", "disk")
LINE = 10**12  # generations in a line
BRANCH = 10**7  # those of a line that goes on from one commit; powers of ten, so that people can read them
_BRANCHES = 99_991  # the largest prime below LINE / BRANCH
ONE_COMMIT = "go back by sync() with a process group: it brings all ranks to the same commit"
ONE_STEP = "a value called step is the step of the whole job: call what a rank counts for itself otherwise"
MOST_WAIT_S = 10 * 86_400.0  # a socket counts its milliseconds in 32 bits, which is 24 days


def anew(what: str) -> str:
    """Say of a program that commits before it has restored what it does."""
    return (
        f"commits and has not restored {what}, which is there: newer commits take its place. sync() or restore() comes before "
        "the first commit() (said once)"
    )


class Stamp(Value):
    """Which commit of which rank a snapshot is."""

    run: int
    round: int
    generation: int
    step: int
    world_size: int
    rank: int

    @property
    def order(self) -> Order:
        """Return what makes this commit newer than another; equal for all ranks of one commit."""
        return self.run, self.round, self.generation

    def __str__(self) -> str:
        line = self.generation // LINE
        which = f"{self.generation % BRANCH} of line {line}" if line else f"{self.generation}"
        return f"commit {which} (step {self.step}, round {self.round}, rank {self.rank} of {self.world_size})"


class Origin(Value):
    """Where the commits of this worker come from: what a stamp says beside generation and step.

    Of the workers of a node that have the same model, one `keeps_shared` for all.
    """

    run: int = 1
    round: int = 0
    rank: int = 0
    world_size: int = 1
    keeps_shared: bool = True

    def stamp(self, generation: int, step: int) -> Stamp:
        """Return the stamp of a commit that is made here."""
        return Stamp(self.run, self.round, generation, step, self.world_size, self.rank)


def next_line(generation: int, restored: Order | None) -> int:
    """Return the generation from which the next line counts on; `generation` is the highest that was used.

    Ranks that went back to different commits, since each node has its own knowledge of what is complete, get into different
    branches of the line, so that what they make then is never taken for one commit. (In one of 99,991 cases they meet.)
    """
    branch = sum(part * weight for part, weight in zip(restored or (0, 0, 0), (7919, 613, 1), strict=True)) % _BRANCHES
    return (generation // LINE + 1) * LINE + branch * BRANCH


class OtherStep(ValueError):
    """Parts of one commit are of different steps."""


def other_step(step: int, rank: int, other: int, other_rank: int) -> str:
    """Say what is wrong with a commit whose parts are of different steps."""
    return f"step is {step} on rank {rank} and {other} on rank {other_rank}; it must be the same on all ranks"


def went_apart(rank: int, other_rank: int) -> str:
    """Say what is wrong with ranks that go on from different commits."""
    return f"rank {rank} and rank {other_rank} have gone back to different commits; what they make now does not fit together"


def hint_for(why: str) -> str:
    """Return what to do about a commit that is void by a mistake of the program."""
    return ONE_STEP if why.startswith("step") else ONE_COMMIT


def slot_to_write(slots: Sequence[Stamp | None], complete: Order | None, pinned: Collection[int] = ()) -> int | None:
    """Return the slot that the next commit may overwrite, or None: wait until a newer commit is complete, or add a slot.

    Kept are the newest complete commit, since nobody may be left without it, every later one, since it may become complete,
    and those `pinned` by a reader. What is not sealed is used first, then the oldest.
    """
    free = [
        (stamp.order if stamp else (), number)
        for number, stamp in enumerate(slots)
        if number not in pinned and (stamp is None or (complete is not None and stamp.order < complete))
    ]
    return min(free)[1] if free else None


def check_memory(own_bytes: int, buddy_bytes: int, free_bytes: int) -> None:
    """See that two copies of a rank's own snapshot and two of a buddy's fit into the memory that is free for them.

    Two of a buddy's: the one that is whole here is kept until the next one is.

    Raises:
        StateRefused: They do not; with the numbers.
    """
    needed = 2 * own_bytes + 2 * buddy_bytes
    if needed > free_bytes:
        buddy = f" and twice {size_text(buddy_bytes)} of a buddy's" if buddy_bytes else ""
        off = ", --snapshot-buddy=off" if buddy_bytes else ""
        raise StateRefused(
            f"a snapshot of {size_text(own_bytes)} does not fit: it takes {size_text(needed)} of memory "
            f"(twice {size_text(own_bytes)} of its own{buddy}), and {size_text(free_bytes)} are free",
            hint=f"raise the memory limit{off}, or keep less in the ElasticState",
        )


def checked_wait(timeout_s: object) -> float:
    """Return how long a commit is waited for: as long as was asked for, or ten days, which is for ever.

    Raises:
        StateRefused: It is no time to wait.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not timeout_s >= 0:
        raise StateRefused(f"timeout_s takes a number of seconds, from 0 on, not {timeout_s!r}")
    return float(min(timeout_s, MOST_WAIT_S))


def size_text(size_bytes: int) -> str:
    """Return a size for readers: 1.60 GB, 12.0 MB, 640 bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size_bytes >= unit:
            number = size_bytes / unit
            return (
                f"{number:.2f} {name}"
                if number < 10
                else f"{number:.1f} {name}"
                if number < 100
                else f"{number:.0f} {name}"
            )
    return f"{size_bytes} bytes"
