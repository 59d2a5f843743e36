"""What lies where in the directory, and what may go: pure."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from planaria.contract.commit import Order, Stamp

    World = tuple[int, int]  # run and round

MANIFEST = "manifest.json"
DRAFT = ".tmp"
_PREFIX = "commit"


class Written(Value):
    """A rank's file is on disk; `complete` when it was the last of its commit, and the manifest is there too."""

    stamp: Stamp
    complete: bool


class Skipped(Value):
    """Nothing was written, and nothing is wrong: something newer is there already."""

    stamp: Stamp
    why: str


class Failed(Value):
    """The commit could not be written. Training goes on; the next one is tried."""

    stamp: Stamp
    why: str


class Unfinished(Value):
    """Commits that were not complete when this process had done with them: it could not write its part, or it could.

    Of those since the last that it saw become complete: `failed` is empty where the disk does what it should.
    """

    failed: tuple[Order, ...] = ()
    written: tuple[Order, ...] = ()

    def after(self, order: Order, *, is_written: bool) -> Unfinished:
        """Return what there is when one more was tried, or the same once more."""
        failed, written = (tuple(one for one in known if one != order) for known in (self.failed, self.written))
        return Unfinished(failed, (*written, order)) if is_written else Unfinished((*failed, order), written)

    def among(self, present: Collection[Order]) -> Unfinished:
        """Return what is left of them; and the newest that failed, which may have left nothing."""
        failed = tuple(one for one in self.failed if one in present or one == self.failed[-1])
        return Unfinished(failed, tuple(one for one in self.written if one in present))


MOST_UNFINISHED = (
    4  # that others may be slower by; and an end of a run writes as many as a node has in memory at the most
)

if TYPE_CHECKING:
    Outcome = Written | Skipped | Failed


def never() -> bool:
    """Tell that something was not given up: of what nobody gives up."""
    return False


def folder_name(order: Order) -> str:
    """Return the folder of a commit. In one line of commits names sort by age, for people; code uses `order_of`."""
    run, round_, generation = order
    return f"{_PREFIX}-{run:06d}-{round_:06d}-{generation:010d}"


def order_of(name: str) -> Order | None:
    """Return which commit a folder is of, or None when it is not ours: then we leave it alone."""
    prefix, *numbers = name.split("-")
    if prefix != _PREFIX or len(numbers) != 3 or not all(part.isascii() and part.isdigit() for part in numbers):
        return None
    run, round_, generation = (int(part[:20]) for part in numbers)
    return (run, round_, generation) if folder_name((run, round_, generation)) == name else None


def file_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank:05d}.snapshot"


def superseded(present: Collection[Order], complete: Collection[Order], keep: int) -> list[Order]:
    """Return the commits that may be deleted, oldest first: all but the `keep` newest complete ones and what is newer.

    An unfinished commit older than the newest complete one will never be finished, or nobody would want it.
    """
    kept = sorted(complete, reverse=True)[: max(keep, 1)]
    return sorted(order for order in present if kept and order < kept[0] and order not in kept)


def forsaken(order: Order, run: int, unfinished: Collection[Order], mine: Unfinished) -> list[Order]:
    """Return which of the `unfinished` commits will never be complete, oldest first: for a process that writes `order` now.

    Those are what this process could not write, what others have not finished while it wrote many newer ones, and, where the
    disk fails, what earlier runs have left. A full disk would stay full of them, and nothing could be completed that supersedes
    them. Where it does not fail, an earlier run's are not touched: a run may write the commit that it began from under the
    order of an earlier one, and others may be about to add to it.
    """
    dead = {*mine.failed, *mine.written[:-MOST_UNFINISHED]}
    if mine.failed:
        dead |= {one for one in unfinished if one[0] < run}.difference(mine.written)
    return sorted(one for one in unfinished if one < order and one in dead)


def is_fenced(writer: World, present: Collection[Order]) -> bool:
    """Tell whether a writer belongs to a world that is over: a later run or round has left a folder, whole or not.

    A world writes, under its old order, the commit that it began from, too: so what counts is in which round the writer is.
    """
    return any(order[:2] > writer for order in present)
