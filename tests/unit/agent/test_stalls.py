"""A job that restarts without getting any further stops early; one that reports nothing never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.agent.machine import step
from planaria.agent.model import (
    Begun,
    Finish,
    Group,
    ProgressReported,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.stalls import counted
from planaria.contract.failure import Failure

NEVER = 50


def lives(reached: list[int | None], stall_restarts: int = 3, killer: str = "", went_back: bool = False) -> Group:
    """Run a worker that fails in every life, after it has reported these steps."""
    group = Group(size=1, max_restarts=len(reached) - 1, grace_s=1.0, stall_restarts=stall_restarts)
    group, _ = step(group, Begun(0.0))
    for at, highest in enumerate(reached, 1):
        group, _ = step(group, WorkersStarted(float(at)))
        if highest is not None:
            group, _ = step(group, ProgressReported(0, highest))
            group, _ = step(group, ProgressReported(0, highest - 1, went_back))
        failure = Failure(0, 0, "h", 1, 1, float(at), 100.0, "exit", message="exit status 1", killer=killer)
        group, _ = step(group, WorkerExited(0, float(at), failure))
        group, effects = step(group, TreeEnded(float(at)))
        if any(isinstance(effect, Finish) for effect in effects):
            break
    return group


def test_a_job_that_does_not_get_beyond_a_step_stops_early_and_says_so() -> None:
    group = lives([10, 9, 10, None, *[5] * 10])
    assert len(group.lives) == 4
    assert group.outcome is not None
    assert group.outcome.kind == "failed"
    assert group.outcome.explanation.startswith("3 lives in a row have ended without getting beyond step 10")


def test_progress_begins_the_count_anew() -> None:
    assert len(lives([10, 9, 9, 11, 9, 9, 12, 9, 9, 9]).lives) == 10
    assert len(lives([10, 9, 9, 11, 9, 9, 9, 9, 9, 9, 9]).lives) == 7


@pytest.mark.parametrize(
    "how",
    [
        lambda: lives([None] * NEVER),
        lambda: lives([10, *[3] * (NEVER - 1)], stall_restarts=0),
        lambda: lives([10, *[3] * (NEVER - 1)], killer="other"),
        lambda: lives([10, *[3] * (NEVER - 1)], went_back=True),
        lambda: lives([*range(NEVER)]),
    ],
    ids=["no reports", "off", "killed by others", "steps of an epoch", "a step further each time"],
)
def test_jobs_that_are_left_alone(how: object) -> None:
    group = how()  # type: ignore[operator]
    assert len(group.lives) == NEVER
    assert group.outcome.explanation == ""


@given(st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=30), st.integers(1, 4))
def test_it_stops_exactly_after_so_many_lives_in_a_row(reached: list[int | None], most: int) -> None:
    best, stalled, expected = None, 0, len(reached)
    for number, highest in enumerate(reached, 1):
        if highest is not None and (best is None or highest > best):
            best, stalled = highest, 0
        elif best is not None:
            stalled += 1
        if stalled >= most:
            expected = number
            break
    assert len(lives(reached, most).lives) == expected


def test_a_life_that_failed_for_a_lost_peer_does_not_count() -> None:
    group = Group(size=1, max_restarts=9, grace_s=1.0, stall_restarts=1, phase="running", furthest=5)
    lost = Failure(0, 0, "h", 1, 1, 1.0, 9.0, "exception", message="Connection reset by peer")
    assert counted(group, (lost,)).stalled == 0
    assert counted(group, (Failure(0, 0, "h", 1, 1, 1.0, 9.0, "exception", message="ValueError"),)).stalled == 1


@pytest.mark.parametrize(("late", "furthest", "stalled"), [(6, 6, 0), (5, 5, 1), (4, 5, 1)])
def test_a_step_that_is_read_after_the_end_of_its_life_counts_for_that_life_and_not_for_the_next(
    late: int, furthest: int, stalled: int
) -> None:
    failure = Failure(0, 0, "h", 1, 1, 9.0, 100.0, "exit", message="exit status 1")
    group, _ = step(Group(size=1, max_restarts=9, grace_s=1.0, stall_restarts=9), Begun(0.0))
    for reports in ((5,), ()):
        group, _ = step(group, WorkersStarted(9.0))
        for report in reports:
            group, _ = step(group, ProgressReported(0, report))
        group, _ = step(group, WorkerExited(0, 9.0, failure))
        if reports:
            group, _ = step(group, TreeEnded(9.0))
    group, _ = step(group, ProgressReported(0, late))
    assert (group.reached, group.furthest, group.stalled) == (None, furthest, stalled)
