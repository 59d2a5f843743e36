"""What must hold in every world: nothing that was promised to be kept is lost, and everybody begins from the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.agent.council_messages import Complete, Failed, Plan, Reached, order_of

if TYPE_CHECKING:
    from commitsim.node import Node
    from commitsim.world import World
    from planaria.agent.council_messages import Ruling
    from planaria.agent.slots import Slot
    from planaria.contract.commit import Order, Stamp


PLENTY_BYTES = 10**9


class Violation(Exception):
    """A promise was broken."""


class Checks:
    def __init__(self, world: World) -> None:
        self.world = world
        self.stamps: dict[tuple[Order, int], Stamp] = {}
        self.moments: dict[tuple[Order, int], str] = {}  # where the program of that rank was
        self.calls: dict[Order, int] = {}
        self.contents: dict[Order, bytes] = {}
        self.plans: dict[tuple[int, int], tuple[str, Order | None]] = {}
        self.complete: Order | None = None
        self.complete_losses = 0
        self.safe: Order | None = None
        self.safe_losses = 0
        self.written: Order | None = None
        self.rotten: dict[int, Order] = {}
        self.counts = {"memory": 0, "disk": 0, "none": 0, "unknown": 0, "buddy": 0, "written": 0, "complete": 0}

    def sealed(self, stamp: Stamp, moment: str, calls: int) -> None:
        if (stamp.order, stamp.rank) in self.stamps:
            raise Violation(f"two commits are called {stamp}")
        self.stamps[stamp.order, stamp.rank] = stamp
        self.moments[stamp.order, stamp.rank] = moment
        self.calls[stamp.order] = calls

    def read(self, order: Order, content: bytes) -> None:
        """A rank has restored this part of a commit."""
        if self.contents.setdefault(order, content) != content:
            raise Violation(f"{order} was restored, and is of two moments: {content!r} and {self.contents[order]!r}")

    def step_of(self, order: Order) -> int:
        return next(stamp.step for (one, _), stamp in self.stamps.items() if one == order)

    def lost(self, node: Node, *, is_there: bool = False) -> None:
        """A node goes; what it had `is_there`, at its buddy."""
        self.complete_losses += node.holds(self.complete) and not is_there
        self.safe_losses += node.holds(self.safe)

    def damaged(self, slot: Slot) -> None:
        assert slot.stamp is not None
        self.rotten[id(slot)] = slot.stamp.order
        self.complete_losses += slot.stamp.order == self.complete
        self.safe_losses += slot.stamp.order == self.safe

    def ruled(self, round_: int, slot: int, ruling: Ruling) -> None:
        if round_ < max((number for number, _ in self.plans), default=round_):
            return  # of a round that is over: nobody hears it any more
        match ruling:
            case Plan():
                self._planned(round_, ruling)
            case Complete(numbers, _) if slot == 0:
                self.counts["complete"] += 1
                self.complete = order_of(numbers)
                self._check_sealed(self.complete)
                self.complete_losses = self._gone(round_, self.complete)
            case Reached("buddy", numbers, _, _) if slot == 0:
                self.counts["buddy"] += 1
                order = order_of(numbers)
                if self.safe is None or (order is not None and order >= self.safe):
                    self.safe, self.safe_losses = order, self._gone(round_, order)
            case Failed("buddy", _, _) if self.world.free_bytes < PLENTY_BYTES:
                self.safe = None  # without room for a third slot it is given up rather than that training stops
            case Reached("disk", numbers, _, _) if slot == 0 and self.world.has_disk:
                self.counts["written"] += 1
                if max(self.world.directory.whole, default=()) < numbers:
                    raise Violation(f"{numbers} is said to be on disk")
                self._check_sealed(order_of(numbers))
                self.written = max(order_of(numbers) or (0, 0, 0), self.written or (0, 0, 0))

    def _gone(self, round_: int, order: Order | None) -> int:
        dead = sum(not node.alive or node.is_leaving for node in self.world.rosters[round_])
        return dead + sum(one == order for one in self.rotten.values())

    def _planned(self, round_: int, plan: Plan) -> None:
        order = order_of(plan.order)
        known = self.plans.get((round_, plan.version))
        if known is not None:
            if known != (plan.kind, order):
                raise Violation(f"two plans in round {round_}: {known} and {plan}")
            return
        self.plans[round_, plan.version] = plan.kind, order
        self.counts[plan.kind] += 1
        if plan.kind == "unknown":
            return
        if plan.kind == "memory":
            self._check_sealed(order)
        written = (
            self.written
        )  # another may be whole there that an old round's writer has just finished, and nobody was told
        if written is not None and not self.world.directory.fails and (order is None or order < written):
            raise Violation(f"{written} is on disk, and all begin from {order}")
        if self.safe is not None and self.safe_losses <= 1 and (order is None or order < self.safe):
            raise Violation(f"{self.safe} had reached a buddy, {self.safe_losses} lost since; all begin from {order}")
        if self.complete is not None and not self.complete_losses and (order is None or order < self.complete):
            raise Violation(f"{self.complete} was complete, nothing was lost, and all begin from {order}")
        if self.safe is not None and (order is None or order < self.safe):
            self.safe = None
        if self.complete is not None and (order is None or order < self.complete):
            self.complete = None
        self._begin_from(round_, order if plan.kind == "memory" else None)

    def _begin_from(self, round_: int, order: Order | None) -> None:
        """What all begin from counts, also if nobody had said before that it is complete."""
        if order is not None and (self.complete is None or order > self.complete):
            self.complete, self.complete_losses = order, self._gone(round_, order)

    def _check_sealed(self, order: Order | None) -> None:
        parts = [stamp for (one, _), stamp in self.stamps.items() if one == order]
        if not parts or len(parts) != parts[0].world_size:
            raise Violation(f"{order} counts, and only {[part.rank for part in parts]} have sealed it")
        if len({part.step for part in parts}) > 1:
            raise Violation(f"{order} counts, and has the steps {[part.step for part in parts]}")
        moments = {moment for (one, _), moment in self.moments.items() if one == order}
        if len(moments) > 1:
            raise Violation(f"{order} counts, and its parts are of {moments}")

    def is_settled(self) -> bool:
        newest = self.complete
        if newest is None or not self.world.is_done(newest):
            return False
        if (
            self.world.has_buddies
            and len(self.world.alive) > 1
            and self.world.free_bytes == PLENTY_BYTES
            and self.safe != newest
        ):
            return False
        return not self.world.has_disk or newest in self.world.directory.whole

    def check_settled(self) -> None:
        if not self.is_settled():
            where = [
                (node.name, node.delegate and (node.delegate.plan, node.delegate.is_ready)) for node in self.world.alive
            ]
            raise Violation(f"the job stands still: complete {self.complete}, safe {self.safe}; {where}")
