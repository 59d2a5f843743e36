"""The learner of gaps and the detector of hangs, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent.gaps import FACTOR, FEW, LASTING, PATIENCE, SPAN, Gaps
from planaria.agent.hangs import Call, Hangs

FLOOR_S = 2.0


class Clock:
    """A node whose detector looks exactly when it wants to."""

    def __init__(self, ranks: int = 2, floor_s: float = FLOOR_S) -> None:
        self.now = 100.0
        self.hangs = Hangs(floor_s)
        self.ranks = range(ranks)
        self.calls: list[Call] = []
        self.begin()

    def begin(self) -> None:
        self.hangs.begin((rank, self.now) for rank in self.ranks)

    def pass_s(self, seconds: float) -> None:
        """Let time go by."""
        until = self.now + seconds
        while (when := self.hangs.next_look(self.now)) is not None and when <= until:
            assert when > self.now, "a detector that looks without end"
            self.now = when
            call = self.hangs.call(self.now)
            if call is not None:
                self.calls.append(call)
        self.now = until

    def steps(self, count: int, step_s: float, first: int = 0) -> None:
        for step in range(first, first + count):
            self.pass_s(step_s)
            for rank in self.ranks:
                self.hangs.progressed(rank, step, None, self.now)

    def mark(self, phase: str, *ranks: int) -> None:
        for rank in ranks or self.ranks:
            self.hangs.entered(rank, phase, self.now)

    def names(self) -> list[int]:
        return [one.local_rank for call in self.calls for one in call.still]


def test_a_rank_that_stands_still_is_called_once_and_at_the_floor_when_steps_are_short() -> None:
    clock = Clock()
    clock.steps(20, 0.1)
    began = clock.now
    clock.pass_s(1000)
    (call,) = clock.calls
    assert FLOOR_S < call.at - began < FLOOR_S + 0.01
    assert (call.still[0].phase, call.still[0].step) == ("step", 19)
    assert call.still[0].usual_s == pytest.approx(0.1)


@settings(max_examples=40)
@given(st.floats(0.01, 30), st.floats(1, 120), st.integers(FEW + 1, 9))
def test_a_hang_is_called_within_three_usual_gaps_and_a_floor(step_s: float, floor_s: float, count: int) -> None:
    clock = Clock(1, floor_s)
    clock.steps(count, step_s)
    began = clock.now
    assert not clock.calls
    clock.pass_s(500)
    (call,) = clock.calls
    waited_s = call.at - began
    assert floor_s <= waited_s <= 3 * step_s + floor_s + 0.01
    assert waited_s >= FACTOR * step_s


@given(st.lists(st.floats(0.01, 2.4), min_size=1, max_size=30), st.floats(0.01, 5))
def test_steps_that_vary_by_less_than_the_factor_are_never_called(factors: list[float], step_s: float) -> None:
    clock = Clock(1, 1.0)
    clock.steps(FEW + 1, step_s)
    for number, factor in enumerate(factors):
        clock.steps(1, factor * step_s, first=number + 10)
    assert not clock.calls


@given(st.floats(1.0, 1.6), st.integers(1, 10))
def test_steps_that_grow_are_never_called(growth: float, count: int) -> None:
    clock = Clock(3)
    clock.steps(5, 0.5)
    for number in range(count):
        clock.steps(1, 0.5 * growth**number, first=number + 5)
    assert not clock.calls


def test_a_job_that_never_reports_is_never_called() -> None:
    clock = Clock()
    assert clock.hangs.next_look(clock.now) is None
    clock.pass_s(1e6)
    assert not clock.calls


def test_a_job_that_marks_phases_and_reports_no_step_is_never_called() -> None:
    clock = Clock()
    for _ in range(10):
        clock.pass_s(1.0)
        clock.mark("checkpoint")
        clock.pass_s(0.1)
        clock.mark("")
    clock.pass_s(1e5)
    clock.mark("checkpoint")
    clock.pass_s(1e5)
    assert not clock.calls


def test_a_rank_that_never_reports_beside_one_that_does_is_never_called() -> None:
    clock = Clock()
    for step in range(10):
        clock.pass_s(0.1)
        clock.hangs.progressed(0, step, None, clock.now)
    clock.pass_s(1000)
    assert clock.names() == [0]


def test_the_rank_with_the_lowest_step_is_behind() -> None:
    clock = Clock(3)
    clock.steps(10, 0.1)
    for rank in (0, 2):
        clock.hangs.progressed(rank, 10, None, clock.now)
    clock.pass_s(1000)
    assert clock.names() == [1, 0, 2]


def test_a_report_of_the_same_step_is_no_sign_of_progress_but_of_samples_it_is() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    for _ in range(40):
        clock.pass_s(0.1)
        clock.hangs.progressed(0, 9, None, clock.now)
    assert len(clock.calls) == 1
    for samples in range(100):
        clock.pass_s(0.1)
        clock.hangs.progressed(0, 9, samples, clock.now)
    assert len(clock.calls) == 1


def test_a_phase_that_was_never_seen_has_ten_floors_and_then_its_own_pace() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.mark("evaluation")
    clock.pass_s(PATIENCE * FLOOR_S - 0.1)
    assert not clock.calls
    clock.mark("")
    clock.steps(5, 0.1, first=10)
    clock.mark("evaluation")
    clock.pass_s(1000)
    (call,) = clock.calls
    assert call.still[0].phase == "evaluation"
    assert call.still[0].silent_s > 1.6 * (PATIENCE * FLOOR_S - 0.1)


def test_reports_in_a_marked_phase_are_signs_and_do_not_teach_it_their_pace() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.mark("checkpoint")
    clock.steps(50, 0.1, first=10)
    clock.pass_s(3 * FLOOR_S)
    assert not clock.calls, "nobody knows yet how long one takes"
    clock.mark("")
    clock.steps(5, 0.1, first=60)
    clock.mark("checkpoint")
    clock.pass_s(1000)
    (call,) = clock.calls
    assert call.still[0].usual_s > 7


def test_ranks_that_wait_for_one_in_a_marked_phase_are_not_called_and_learn_nothing_from_it() -> None:
    clock = Clock(3)
    clock.steps(10, 0.1)
    clock.mark("checkpoint", 0)
    clock.pass_s(15)
    clock.mark("", 0)
    clock.steps(1, 0.1, first=10)
    assert not clock.calls
    clock.pass_s(100)
    (call,) = clock.calls
    assert call.still[0].usual_s == pytest.approx(0.1, abs=0.05)


def test_a_marked_phase_that_hangs_itself_is_called_with_those_who_wait_for_it() -> None:
    clock = Clock(3)
    for step in range(0, 40, 4):
        clock.steps(4, 0.1, first=step)
        clock.mark("checkpoint", 1)
        clock.pass_s(0.5)
        clock.mark("", 1)
    clock.mark("checkpoint", 1)
    clock.pass_s(1000)
    assert clock.names()[0] == 1 or clock.calls[0].still[0].step == clock.calls[0].still[1].step
    assert sorted(clock.names()) == [0, 1, 2]


def test_a_hang_that_was_none_is_not_called_a_second_time() -> None:
    clock = Clock(1)
    for epoch in range(5):
        clock.steps(1200, 0.1, first=epoch * 2000)
        clock.pass_s(30)
    assert len(clock.calls) == 1


def test_a_rank_that_goes_on_is_told_of_and_may_be_called_again() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.pass_s(5)
    assert clock.hangs.progressed(0, 10, None, clock.now)
    assert not clock.hangs.progressed(0, 11, None, clock.now)
    clock.pass_s(1000)
    assert len(clock.calls) == 2


def test_the_start_of_a_later_life_is_judged_by_those_before_and_never_below_ten_floors() -> None:
    clock = Clock(1)
    clock.pass_s(500)
    clock.steps(10, 0.1)
    clock.begin()
    clock.pass_s(FACTOR * 500 / 1.5)
    assert not clock.calls
    clock.pass_s(1000)
    (call,) = clock.calls
    assert (call.still[0].phase, call.still[0].step) == ("start", None)


def test_a_life_that_ended_in_a_hang_teaches_nothing() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.pass_s(900)
    clock.begin()
    clock.steps(4, 0.1)
    clock.pass_s(FLOOR_S + 0.5)
    assert len(clock.calls) == 2


def test_time_in_which_the_agent_was_stopped_counts_for_nobody() -> None:
    clock = Clock()
    clock.steps(10, 0.1)
    clock.now += 500
    clock.hangs.forgive(500)
    assert clock.hangs.call(clock.now) is None
    clock.pass_s(FLOOR_S + 0.1)
    assert len(clock.calls) == 1


def test_a_worker_that_has_ended_is_not_waited_for() -> None:
    clock = Clock()
    clock.steps(10, 0.1)
    clock.mark("checkpoint", 1)
    clock.hangs.ended(1)
    clock.pass_s(1000)
    assert clock.names() == [0]


@pytest.mark.parametrize("goes_on_with", ["a report", "a phase"])
def test_what_a_rank_did_since_it_was_judged_no_more_is_no_gap(goes_on_with: str) -> None:
    clock = Clock(1)
    clock.steps(10, 1.0)
    clock.hangs.ended(0)
    count = clock.hangs._pace("step").count
    clock.pass_s(1000)
    if goes_on_with == "a phase":
        clock.mark("saving")
        clock.mark("")
    clock.hangs.progressed(0, 10, None, clock.now)
    assert not clock.calls
    assert clock.hangs._pace("step").count == count
    assert clock.hangs._pace("step").usual_s == pytest.approx(1.0)
    clock.pass_s(FACTOR + 0.1)
    assert len(clock.calls) == 1


def test_the_same_step_reported_again_is_judged_from_then_on() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.hangs.ended(0)
    clock.pass_s(1000)
    clock.hangs.progressed(0, 9, None, clock.now)
    clock.pass_s(FLOOR_S - 0.1)
    assert not clock.calls
    clock.pass_s(0.2)
    assert len(clock.calls) == 1


def test_a_gap_that_is_nobodys_pace_is_not_learned() -> None:
    clock = Clock(1)
    clock.steps(10, 0.1)
    clock.pass_s(50)
    assert clock.hangs.progressed(0, 10, None, clock.now, learns=False)
    clock.pass_s(50)
    assert clock.hangs.entered(0, "evaluation", clock.now, learns=False)
    clock.mark("")
    clock.pass_s(FLOOR_S + 0.1)
    assert len(clock.calls) == 3


def test_without_a_floor_nobody_is_called_and_the_books_are_kept() -> None:
    clock = Clock(1, 0.0)
    clock.steps(30, 0.5)
    assert clock.hangs.next_look(clock.now) is None
    assert clock.hangs.call(clock.now + 1e6) is None
    found = clock.hangs.standing(0, clock.now)
    assert found is not None
    assert (found.step, found.usual_s) == (29, pytest.approx(0.5))


def test_a_program_that_makes_up_phases_costs_no_memory() -> None:
    clock = Clock(1)
    clock.steps(5, 0.1)
    for number in range(1000):
        clock.mark(f"phase {number}")
        clock.pass_s(0.01)
        clock.mark("")
    assert len(clock.hangs._paces) < 40


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["report", "phase", "over"]), st.floats(0, 30)), max_size=12)
)
def test_whatever_is_reported_every_stand_still_is_called_once(story: list[tuple[int, str, float]]) -> None:
    clock = Clock(3)
    for number, (rank, what, seconds) in enumerate(story):
        before = len(clock.calls)
        clock.pass_s(seconds)
        assert len(clock.names()) == len({(id(call), one.local_rank) for call in clock.calls for one in call.still})
        assert len(clock.calls) - before <= 3
        if what == "report":
            clock.hangs.progressed(rank, number, None, clock.now)
        else:
            clock.hangs.entered(rank, "evaluation" if what == "phase" else "", clock.now)
    clock.pass_s(300)
    before = len(clock.calls)
    clock.pass_s(300)
    assert len(clock.calls) == before


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=300), st.floats(1, 100))
def test_a_limit_is_never_below_the_floor_nor_beyond_what_was_promised(gaps: list[float], floor_s: float) -> None:
    pace = Gaps()
    for gap_s in gaps:
        pace.add(gap_s)
    limit_s = pace.limit_s(floor_s, 1)
    assert floor_s <= limit_s
    assert pace.usual_s <= max(gaps)
    if len(gaps) >= FEW:
        assert limit_s <= 3 * pace.usual_s + floor_s


def test_a_long_gap_is_forgotten_in_time_and_one_that_was_called_later() -> None:
    pace = Gaps()
    pace.add(100.0)
    for _ in range(2 * SPAN):
        pace.add(1.0)
    assert pace.usual_s == 1.0
    pace.add(100.0, was_called=True)
    for _ in range(LASTING - 1):
        pace.add(1.0)
    assert pace.usual_s > 60
    pace.add(1.0)
    pace.add(1.0)
    assert pace.usual_s == 1.0
