"""Who of several has sealed which commits of a round: what all of them have, and what they never will. Pure.

Used twice: for the workers of a node, and by the anchor for the nodes of a round. Everybody seals in the order of commits, so
what one has passed over it never seals; and parts with different steps are not of one moment. Either makes a commit *void*: it
can never be complete, and nobody keeps memory for it.
"""

from __future__ import annotations

from planaria.contract.commit import BRANCH, LINE, other_step, went_apart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.commit import Order

NOTHING: Order = (0, 0, 0)
MOST_KEPT = 64  # void commits and gaps that are remembered before it is looked which of them are behind everybody


class Tally:
    """That of one round, of members that are counted from 0."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[Order, set[int]] = {}  # who has sealed what is neither complete nor void
        self._first: dict[Order, tuple[int, int]] = {}  # step and rank of who sealed it first
        self._last = [NOTHING] * size  # what each has sealed last
        self._gaps: set[tuple[Order, Order]] = set()  # what lies between two commits that somebody sealed
        self._void: dict[Order, str] = {}
        self._floor = NOTHING  # what is older, and not complete, is void
        self._entered: dict[int, tuple[int, int]] = {}  # by line: the generation and rank of who came into it first
        self._split: dict[int, str] = {}  # the lines that went apart, and how

    def seal(self, who: int, order: Order, step: int, rank: int) -> dict[Order, str]:
        """Take in that somebody has sealed a commit; `rank` is where that step was. What is said twice changes nothing.

        Return the commits that are void now, and why where that is a mistake of the program.
        """
        before = self._last[who]
        if order <= before:
            return {}
        self._last[who] = order
        found = {one: "" for one in self._open if before < one < order}
        if before[:2] != order[:2] or before[2] + 1 != order[2]:
            self._gaps.add((before, order))
            if before == NOTHING or before[2] // LINE != order[2] // LINE:
                found |= self._look_where(order, rank)
        if order not in self._void:
            found |= self._count(who, order, step, rank)
        self._declare(found)
        return found

    def _look_where(self, order: Order, rank: int) -> dict[Order, str]:
        """See that all go on from the same commit. If not, nothing of that line can be complete.

        Without this, who counts higher would wait for the others, all of whose commits are older, for ever.
        """
        line = order[2] // LINE
        first, at = self._entered.setdefault(line, (order[2], rank))
        if abs(order[2] - first) < BRANCH // 2 or line in self._split:
            return {}
        why = self._split[line] = went_apart(at, rank)
        return {one: why for one in self._open if one[2] // LINE == line}

    def _count(self, who: int, order: Order, step: int, rank: int) -> dict[Order, str]:
        if order < self._floor or any(low < order < high for low, high in self._gaps):
            return {order: self._split.get(order[2] // LINE, "")}
        if order[2] // LINE in self._split:
            return {order: self._split[order[2] // LINE]}
        first, at = self._first.setdefault(order, (step, rank))
        if first != step:
            return {order: other_step(first, at, step, rank)}
        self._open.setdefault(order, set()).add(who)
        return {}

    def reject(self, order: Order, why: str = "") -> bool:
        """Take in that a commit is void; tell whether that, or why, is new."""
        if order in self._void and (self._void[order] or not why):
            return False
        self._declare({order: why})
        return True

    def _declare(self, found: Mapping[Order, str]) -> None:
        self._void.update(found)
        for order in found:
            self._open.pop(order, None)
            self._first.pop(order, None)
        if len(self._void) + len(self._gaps) > MOST_KEPT:
            behind = min(self._last)  # nobody seals what is older any more, or waits for it
            self._void = {order: why for order, why in self._void.items() if order >= behind}
            self._gaps = {gap for gap in self._gaps if gap[1] > behind}
        if len(self._void) > 2 * MOST_KEPT:  # somebody is refused every commit, and never leaves any behind
            newest = sorted(self._void)[-MOST_KEPT:]
            self._floor, self._void = newest[0], {order: self._void[order] for order in newest}
            self._gaps = {gap for gap in self._gaps if gap[1] > self._floor}

    def has_sealed(self, who: int, order: Order) -> bool:
        """Tell whether somebody has sealed a commit that may become complete."""
        return who in self._open.get(order, ())

    def is_whole(self, order: Order) -> bool:
        """Tell whether all have sealed a commit."""
        return len(self._open.get(order, ())) == self._size

    def count(self, who: int) -> int:
        """Return how many commits of somebody's the others have not sealed yet."""
        return sum(who in sealed for sealed in self._open.values())

    def step(self, order: Order) -> int:
        """Return the step of a commit that somebody has sealed."""
        return self._first[order][0]

    @property
    def void(self) -> Mapping[Order, str]:
        """Return the commits that are void, and why; those that everybody has left behind may be forgotten."""
        return self._void

    def missing(self) -> tuple[int, ...]:
        """Return who has not sealed the oldest commit that others have; none where there is no such."""
        oldest = min(self._open, default=None)
        return tuple(who for who in range(self._size) if oldest is not None and who not in self._open[oldest])

    def complete(self, order: Order) -> None:
        """Take in that a commit is complete: it and all older ones are settled."""
        self._open = {one: sealed for one, sealed in self._open.items() if one > order}
        self._first = {one: first for one, first in self._first.items() if one > order}
        self._void = {one: why for one, why in self._void.items() if one > order}
        self._gaps = {gap for gap in self._gaps if gap[1] > order}
