"""Mistakes that could be made: each breaks the shipped code in one place, and some world has to notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitsim.node import Worker
from planaria.agent.chores import Chores
from planaria.agent.council import Council
from planaria.agent.delegate import Delegate
from planaria.agent.guests import Guests
from planaria.agent.slots import LODGER, Slots
from planaria.agent.tally import Tally
from planaria.worker.tenancy import Tenancy

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from planaria.agent.council_messages import Copy, Plan
    from planaria.agent.slots import Slot
    from planaria.contract.commit import Order


def the_safe_commit_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slots, "safe", property(lambda _: None, lambda _slots, _order: None), raising=False)


def the_commit_on_its_way_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slots, "copying", property(lambda _: None, lambda _slots, _order: None), raising=False)


def the_complete_commit_is_overwritten(patch: pytest.MonkeyPatch) -> None:
    def choose(self: Slots, local_rank: int, *, may_add: bool) -> Slot | int | None:
        slots = self.of(local_rank)
        free = [slot for slot in slots if not slot.pins]
        return len(slots) if len(slots) < 2 or (may_add and not free) else free[0] if free else None

    patch.setattr(Slots, "choose", choose)


def copies_of_neighbours_are_dropped_too_soon(patch: pytest.MonkeyPatch) -> None:
    def gone(self: Slots) -> list[Slot]:
        return [slot for slot in self.of(LODGER) if slot.stamp is not None and slot.stamp.order < (self.complete or ())]

    patch.setattr(Slots, "lodgers_gone", gone)


def nobody_looks_at_the_disk_when_memory_has_something(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Council) -> object:
        best = self._best()
        return self._announce("none" if best is None else "memory", best)

    patch.setattr(Council, "_decide", decide)


def a_plan_that_is_said_again_makes_members_forget(patch: pytest.MonkeyPatch) -> None:
    original = Delegate._on_plan

    def on_plan(self: Delegate, plan: Plan) -> None:
        self.plan = None
        original(self, plan)

    patch.setattr(Delegate, "_on_plan", on_plan)


def a_copy_is_claimed_and_not_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chores, "copy", _claim)


def who_leaves_takes_what_others_hand_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guests, "_why_nothing_new", lambda _: "")


def a_part_that_is_out_of_reach_is_taken_for_a_damaged_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Council, "_on_unreached", Council._on_damage)


def a_refused_commit_gives_its_number_back(patch: pytest.MonkeyPatch) -> None:
    def refused(self: Worker, _generation: int) -> None:
        self.tenancy.generation -= 1
        self.step()

    patch.setattr(Worker, "refused", refused)
    steps_are_not_compared(patch)  # which would notice it as well


def who_goes_back_counts_on_in_the_same_line(patch: pytest.MonkeyPatch) -> None:
    def restored(self: Tenancy, order: Order | None) -> None:
        self.generation = order[2] if order is not None else 0

    patch.setattr(Tenancy, "restored", restored)


def steps_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    original = Tally.seal
    patch.setattr(Tally, "seal", lambda self, who, order, _step, rank: original(self, who, order, 0, rank))


def what_somebody_passed_over_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tally, "_declare", lambda _self, _found: None)
    patch.setattr(Slots, "_forget", lambda _self, _orders: None)


def _claim(chores: Chores, asked: Copy) -> None:
    chores._stock.slots.copying = asked.order  # type: ignore[assignment]
    chores._on_copied(asked.number, "")


BUGS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    the_safe_commit_is_overwritten,
    the_commit_on_its_way_is_overwritten,
    the_complete_commit_is_overwritten,
    copies_of_neighbours_are_dropped_too_soon,
    nobody_looks_at_the_disk_when_memory_has_something,
    a_plan_that_is_said_again_makes_members_forget,
    a_copy_is_claimed_and_not_made,
    who_leaves_takes_what_others_hand_over,
    a_part_that_is_out_of_reach_is_taken_for_a_damaged_one,
    a_refused_commit_gives_its_number_back,
    who_goes_back_counts_on_in_the_same_line,
    steps_are_not_compared,
    what_somebody_passed_over_is_waited_for,
)
