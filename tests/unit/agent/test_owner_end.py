"""The owner wants the end of the whole job: what a node alone does, and what one of many passes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from groupsim import failure, place

from planaria.agent.machine import TREE_S, step
from planaria.agent.membership import MeetOthers, ReportStopped, RequestEnd, RoundStarted, RunEnded
from planaria.agent.model import (
    DONE,
    DRAINING,
    WAITING,
    Begun,
    DeadlinePassed,
    DumpStacks,
    EndRequested,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    Outcome,
    SetDeadline,
    SignalWorkers,
    StopRequested,
    TellDrain,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)

if TYPE_CHECKING:
    from planaria.agent.model import Event

WHY = "its owner asked for the end of the run"
STOPPED = Outcome("stopped", 143, explanation=WHY)


def feed(group: Group, *events: Event) -> tuple[Group, tuple[object, ...]]:
    effects: tuple[object, ...] = ()
    for event in events:
        group, effects = step(group, event)
    return group, effects


def lone() -> Group:
    group, _ = feed(Group(size=2, max_restarts=3, grace_s=30.0), Begun(0.0), WorkersStarted(0.0))
    return group


def asked(grace_s: float = 0.0, *, listening: bool = False) -> EndRequested:
    return EndRequested(WHY, grace_s, 5.0, listening)


def test_alone_it_is_as_sigterm_but_for_the_name_of_the_outcome() -> None:
    group, effects = step(lone(), asked())
    assert group.phase == DRAINING
    assert effects == (TellDrain(15, 30.0), SignalWorkers(15), SetDeadline(30.0))
    gone = [WorkerExited(rank, 6.0, failure(rank, -15, 6.0, "signal", ())) for rank in range(2)]
    group, (finish,) = feed(group, *gone, TreeEnded(6.0))
    assert finish == Finish(STOPPED)
    assert group.lives[0].failures == (), "they ended as they were asked to"


def test_workers_that_listen_may_end_before_the_first_signal() -> None:
    group, effects = step(lone(), asked(10.0, listening=True))
    assert effects == (TellDrain(15, 10.0), SetDeadline(10.0))
    group, (finish,) = feed(group, WorkerExited(0, 6.0), WorkerExited(1, 7.0), TreeEnded(7.0))
    assert (group.phase, finish) == (DONE, Finish(STOPPED))


def test_those_who_do_not_end_climb_the_ladder() -> None:
    group, _ = step(lone(), asked(10.0, listening=True))
    group, effects = step(group, DeadlinePassed(15.0))
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    group, (dump, _) = step(group, DeadlinePassed(45.0))
    assert dump == DumpStacks()
    group, (kill, _) = step(group, DeadlinePassed(45.3))
    assert kill == KillWorkers()


def test_workers_that_do_not_listen_are_not_waited_for() -> None:
    _, effects = step(lone(), asked(10.0, listening=False))
    assert SignalWorkers(15) in effects


@pytest.mark.parametrize("number", [15, 2])
def test_a_signal_while_workers_were_only_told_is_passed_on_at_once(number: int) -> None:
    group, _ = step(lone(), asked(10.0, listening=True))
    group, effects = step(group, StopRequested(number, 6.0))
    assert effects == (SignalWorkers(number), SetDeadline(30.0))
    group, effects = step(group, StopRequested(2, 7.0))
    assert effects in ((SignalWorkers(2),), (KillWorkers(), SetDeadline(10.0)))
    group, (finish,) = feed(group, WorkerExited(0, 8.0), WorkerExited(1, 8.0), TreeEnded(8.0))
    assert finish == Finish(STOPPED)


def test_asked_twice_is_asked_once_and_before_the_workers_run_there_is_nothing_to_stop() -> None:
    group, _ = step(lone(), asked())
    assert step(group, asked()) == (group, ())
    starting, effects = step(Group(size=1, max_restarts=0, grace_s=1.0), asked())
    assert effects == (EndTree(TREE_S),)
    assert feed(starting, TreeEnded(5.0))[1] == (Finish(STOPPED),)


def test_a_signal_that_came_first_names_the_outcome() -> None:
    group, _ = feed(lone(), StopRequested(15, 1.0), asked())
    _, (finish,) = feed(group, WorkerExited(0, 6.0), WorkerExited(1, 6.0), TreeEnded(6.0))
    assert finish == Finish(Outcome("signal", 143, 15))


def test_one_of_many_asks_the_others_and_goes_on_until_it_is_told() -> None:
    waiting = Group(size=2, max_restarts=3, grace_s=30.0, alone=False, phase=WAITING)
    waiting, effects = step(waiting, Begun(0.0))
    assert effects == (MeetOthers(), ReportStopped())
    assert step(waiting, asked(3.0)) == (waiting, (RequestEnd(WHY, 3.0),))
    running, _ = feed(waiting, RoundStarted(place(), 1.0), WorkersStarted(1.0))
    assert step(running, asked()) == (running, (RequestEnd(WHY, 0.0),))


def test_the_end_that_all_are_told_is_the_same_for_all() -> None:
    waiting = Group(size=2, max_restarts=3, grace_s=30.0, alone=False, phase=WAITING)
    waiting, _ = step(waiting, Begun(0.0))
    group, effects = step(waiting, RunEnded("stopped", WHY, (), 1, 9.0))
    assert effects == (EndTree(TREE_S),)
    _, (finish,) = step(group, TreeEnded(9.1))
    assert finish == Finish(STOPPED), "and no goodbye: everybody goes"
