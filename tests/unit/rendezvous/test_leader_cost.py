"""What a leader costs: how often it speaks, and what a renewal takes."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from court import OWN, Court, join_of, to_whom

from planaria.base.value import replace
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import Placed, Renew, Waiting
from planaria.rendezvous.model import Held, Standing

# What it costs.


def test_what_is_waited_for_is_not_told_more_often_than_twice_a_second() -> None:
    court = Court(min_nodes=99, max_nodes=99)
    told_at: list[float] = []
    for index in range(40):
        court.join(chr(ord("a") + index))
        told = court.look(0.05)
        if to_whom(told, Waiting):
            told_at.append(court.now)
    assert len(told_at) >= 3
    assert all(later - earlier >= 0.5 - 1e-9 for earlier, later in pairwise(told_at))
    assert court.wake_at <= told_at[-1] + 0.5 + 1e-9


def test_the_same_thing_is_not_told_twice() -> None:
    court = Court(min_nodes=5, max_nodes=9)
    court.join("a")
    assert to_whom(court.look(1.0), Waiting) == ["a"]
    assert to_whom(court.look(1.0), Waiting) == []
    court.join("b")
    assert to_whom(court.look(1.0), Waiting) == ["a", "b"]


def crowd(size: int) -> Leader:
    """Return a leader of so many members that all run."""
    leader = Leader(replace(OWN, max_nodes=size), 0.0, term=1, standing=Standing(), held=Held())
    for index in range(size):
        leader.received(f"in-{index}", join_of(f"n{index}", rules=leader.office.settings.rules), 0.0)
    leader.advance(1.0)
    for index in range(size):
        leader.received(f"in-{index}", Placed(0), 1.0)
    leader.advance(1.0)
    assert leader.office.phase == "running"
    leader.take_orders()
    return leader


def steps_of_a_renewal(leader: Leader, conn: str, renew: Renew, now: float) -> int:
    """Count the instructions that a renewal costs."""
    count = 0

    def trace(frame: object, event: str, _arg: object) -> object:
        nonlocal count
        frame.f_trace_opcodes = True  # type: ignore[attr-defined]
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        leader.received(conn, renew, now)
    finally:
        sys.settrace(before)
    return count


def test_a_renewal_costs_the_same_with_ten_members_and_a_thousand() -> None:
    costs = []
    for size in (10, 1000):
        leader = crowd(size)
        leader.received("in-1", Renew(1, 0), 1.5)
        costs.append(steps_of_a_renewal(leader, "in-2", Renew(1, 0), 1.5))
        assert not leader.office.orders.is_dirty
        assert len(leader.take_orders()) == 2
    assert 0 < costs[1] <= costs[0] + 20, costs


def test_a_thousand_renewals_in_a_turn_cost_one_count_of_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = crowd(1000)
    counted = []
    honest = leader.office.roll.valid_until
    monkeypatch.setattr(leader.office.roll, "valid_until", lambda now: counted.append(now) or honest(now))
    for index in range(1000):
        leader.received(f"in-{index}", Renew(1, 0), 1.5)
    assert len(counted) <= 1
    assert {order.message.left_s for order in leader.take_orders()} == {3.5}  # type: ignore[union-attr]
