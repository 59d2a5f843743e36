"""An owner who asks again: less time than before is taken at its word, more is not; who drains passes a stop on."""

from __future__ import annotations

import pytest
from groupsim import place

from planaria.agent.machine import step
from planaria.agent.membership import (
    LeaveRun,
    ReportStopped,
    RequestEnd,
    RoundStarted,
    RoundStopped,
    RunEnded,
    TellResize,
)
from planaria.agent.model import (
    DRAINING,
    LEAVING,
    RESIZING,
    STOPPING,
    WAITING,
    Begun,
    DeadlinePassed,
    EndRequested,
    Group,
    SetDeadline,
    SignalWorkers,
    StopRequested,
    TellDrain,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)

WHY = "its owner asked for the end of the run"


def lone(*, told_at: float = 5.0, grace_s: float = 3600.0) -> Group:
    group, _ = step(Group(size=1, max_restarts=3, grace_s=30.0), Begun(0.0))
    group, _ = step(group, WorkersStarted(0.0))
    group, _ = step(group, EndRequested(WHY, grace_s, told_at, has_listeners=True))
    assert group.phase == DRAINING
    return group


def among_others() -> Group:
    group, _ = step(Group(size=1, max_restarts=3, grace_s=30.0, alone=False, phase=WAITING), Begun(0.0))
    group, _ = step(group, RoundStarted(place(), 1.0))
    return step(group, WorkersStarted(1.0))[0]


def test_less_time_is_told_and_counted_from_now() -> None:
    group, effects = step(lone(), EndRequested(WHY, 10.0, 6.0, has_listeners=True))
    assert effects == (TellDrain(15, 10.0), SetDeadline(10.0))
    assert step(group, DeadlinePassed(16.0))[1] == (SignalWorkers(15), SetDeadline(30.0))


@pytest.mark.parametrize(("at", "grace_s"), [(6.0, 3600.0), (3595.0, 60.0)])
def test_more_time_than_is_left_changes_nothing(at: float, grace_s: float) -> None:
    group = lone()
    assert step(group, EndRequested(WHY, grace_s, at, has_listeners=True)) == (group, ())


@pytest.mark.parametrize("again", [EndRequested(WHY, 0.0, 6.0, True), EndRequested(WHY, 9.0, 6.0, has_listeners=False)])
def test_no_time_is_a_signal_at_once_and_only_one(again: EndRequested) -> None:
    group, effects = step(lone(), again)
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    assert step(group, again) == (group, ())


def test_a_drain_does_not_wait_for_workers_that_were_only_told() -> None:
    assert step(lone(), StopRequested(15, 6.0))[1] == (SignalWorkers(15), SetDeadline(30.0))


def test_among_others_a_round_that_stops_may_be_given_less_time() -> None:
    group, _ = step(among_others(), RoundStopped(1, "enough", 3600.0, 5.0, has_listeners=True))
    assert group.phase == RESIZING
    assert step(group, RoundStopped(1, "more", 3600.0, 6.0, has_listeners=True)) == (group, ())
    group, effects = step(group, RoundStopped(1, "less", 10.0, 6.0, has_listeners=True))
    assert effects == (TellResize("less", 10.0), SetDeadline(10.0))
    group, effects = step(group, RoundStopped(1, "now", 0.0, 7.0, has_listeners=True))
    assert (group.phase, effects) == (STOPPING, (SignalWorkers(15), SetDeadline(30.0)))
    assert step(group, RoundStopped(1, "now", 0.0, 8.0)) == (group, ())


def test_who_drains_asks_the_others_for_the_end_before_it_says_goodbye() -> None:
    asked = EndRequested(WHY, 0.0, 6.0)
    group, _ = step(among_others(), StopRequested(15, 5.0))
    assert step(group, asked) == (group, (RequestEnd(WHY, 0.0),))
    group, _ = step(group, WorkerExited(0, 7.0))
    assert step(group, asked) == (group, (RequestEnd(WHY, 0.0),)), "its workers are gone, it is not"
    group, effects = step(group, TreeEnded(7.1))
    assert [type(effect) for effect in effects[:2]] == [ReportStopped, LeaveRun]
    assert group.phase == LEAVING
    assert step(group, asked) == (group, ()), "nobody is left to be asked"


def test_a_run_that_has_ended_is_not_asked_to() -> None:
    group, _ = step(among_others(), StopRequested(15, 5.0))
    group, _ = step(group, RunEnded("done", "", (), 0, 6.0))
    assert step(group, EndRequested(WHY, 0.0, 6.5)) == (group, ())
