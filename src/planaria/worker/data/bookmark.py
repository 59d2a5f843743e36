"""Where a loop stands in the stream, and the safe data that says it.

A bookmark has no rank and no world size in it: every rank of a world stands at the same, and so does the next world.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.worker.data.order import Order
    from planaria.worker.data.portions import Portion, Shape

VERSION = 1


class Bookmark(Value):
    """What the loop has taken out of the loader."""

    epoch: int = 0
    cursor: int = 0  # the beginning of the step that is being taken, as a position in the stream
    turns: int = 0  # taken of that step; their gradients are not in the weights yet
    steps: int = 0  # whole steps taken in this epoch, in worlds of whatever size


def after(bookmark: Bookmark, portion: Portion) -> Bookmark:
    """Return the bookmark once a turn was taken. The cursor moves with the last turn of a step."""
    if portion.closes:
        return Bookmark(bookmark.epoch, portion.reach, 0, bookmark.steps + 1)
    return Bookmark(bookmark.epoch, bookmark.cursor, bookmark.turns + 1, bookmark.steps)


def epoch_begins(bookmark: Bookmark, epoch: int, samples: int, shape: Shape) -> Bookmark:
    """Return the beginning of an epoch. What the one before dropped opens the next."""
    begin = epoch * samples
    if shape.tail == "drop" and epoch == bookmark.epoch + 1 and begin - bookmark.cursor < shape.global_batch:
        begin = bookmark.cursor
    return Bookmark(epoch, begin)


def encode(bookmark: Bookmark, order: Order) -> dict[str, object]:
    """Return a bookmark as safe data. A step that was taken in part is not in it, as its gradients are not in the weights."""
    where = {"epoch": bookmark.epoch, "cursor": bookmark.cursor, "steps": bookmark.steps}
    return {"version": VERSION, **where, "order": order.describe()}


def decode(found: Mapping[str, object], order: Order) -> Bookmark:
    """Read a bookmark.

    Raises:
        UsageError: It is not one, or the data or its order is another: the cursor would mean other samples.
    """
    if not hasattr(found, "get") or found.get("version") != VERSION:
        raise UsageError(f"this is no state of a sampler, version {VERSION}: {str(found)[:200]}")
    was, now = found.get("order"), order.describe()
    if was != now:
        differing = sorted(name for name in now if not isinstance(was, dict) or was.get(name) != now[name])
        saved = {name: was.get(name) for name in differing} if isinstance(was, dict) else was
        here = {name: now[name] for name in differing}
        raise UsageError(
            f"the sampler's state belongs to another order of data: it has {saved}, here it is {here}",
            hint="a position means the same samples only if data, seed and shuffling are the same",
        )
    epoch, cursor, steps = (_whole(found, name) for name in ("epoch", "cursor", "steps"))
    if cursor > (epoch + 1) * order.samples:
        raise UsageError(f"the sampler's state is damaged: cursor {cursor} lies behind the end of epoch {epoch}")
    return Bookmark(epoch, cursor, 0, steps)


def _whole(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise UsageError(f"the sampler's state is damaged: {name} expects a whole number from 0 on, got {value!r}")
    return value
