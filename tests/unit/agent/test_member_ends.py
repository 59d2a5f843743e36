import pytest
from groupsim import failure, place
from small_groups import feed
from small_members import ended, running, stop, waiting

from planaria.agent.machine import TREE_S, step
from planaria.agent.member import GOODBYE_S
from planaria.agent.membership import (
    AnnounceLeave,
    Fenced,
    GoodbyeSaid,
    LeaveRun,
    ReportStopped,
    RoundStarted,
)
from planaria.agent.model import (
    DONE,
    FINISHING,
    LEAVING,
    STOPPING,
    DeadlinePassed,
    EndTree,
    Finish,
    LauncherDied,
    SetDeadline,
    SignalWorkers,
    StopRequested,
    TellDrain,
    TreeEnded,
    WorkerExited,
)


@pytest.mark.parametrize(
    ("kind", "settings", "failures", "status"),
    [
        ("done", {}, (), 0),
        ("failed", {}, (failure(3, 7, 1.0),), 1),
        ("failed", {"worker_exit_code": True}, (failure(3, 7, 1.0), failure(1, 8, 1.0)), 7),
        ("failed", {"worker_exit_code": True}, (), 1),
        ("timeout", {}, (), 124),
        ("lost", {}, (), 75),
    ],
)
def test_the_outcome_is_the_runs(kind, settings, failures, status):
    group, effects = step(waiting(**settings), ended(kind, *failures))
    assert (group.phase, effects) == (FINISHING, (EndTree(TREE_S),))
    group, (finish,) = step(group, TreeEnded(60.1))
    assert (group.phase, finish.outcome.kind, finish.outcome.status) == (DONE, kind, status)
    assert (group.causes, group.restarts) == (failures, 2)
    assert finish.outcome.explanation == "told by the leader"


@pytest.mark.parametrize("before", [(), (stop(grace_s=10.0, has_listeners=True),), (stop(),)])
def test_a_run_that_ends_while_workers_run_stops_them_first(before):
    group, _ = feed(running(), *before, ended("failed", failure(3)))
    assert group.phase == STOPPING
    group, effects = feed(group, WorkerExited(0, 60.1), WorkerExited(1, 60.2))
    assert (group.phase, effects) == (FINISHING, (EndTree(TREE_S),))
    assert step(group, TreeEnded(60.3))[1][0].outcome.status == 1


def test_a_run_that_ends_while_the_tree_does_is_reported_no_more():
    group, _ = feed(running(size=1), WorkerExited(0, 59.0), ended("done"))
    assert (group.phase, step(group, TreeEnded(60.1))[1][0].outcome.kind) == (FINISHING, "done")


def left(*events):
    return feed(running(), StopRequested(15, 50.0), WorkerExited(0, 51.0), WorkerExited(1, 52.0), *events)


def test_a_node_that_its_owner_stops_says_goodbye_and_the_others_go_on():
    group, effects = step(running(), StopRequested(15, 50.0))
    announced = AnnounceLeave("its owner sent SIGTERM")
    assert effects == (announced, TellDrain(15, 30.0), SignalWorkers(15), SetDeadline(30.0))
    group, effects = left(TreeEnded(52.1))
    assert group.phase == LEAVING
    assert effects == (ReportStopped(), LeaveRun("its owner sent SIGTERM"), SetDeadline(GOODBYE_S))


@pytest.mark.parametrize(
    "event", [GoodbyeSaid(), DeadlinePassed(54.1), ended("failed", failure(0)), StopRequested(2, 53.0)]
)
def test_it_goes_when_the_goodbye_was_heard_or_need_not_be(event):
    group, effects = left(TreeEnded(52.1), event)
    assert (group.phase, effects[0].outcome.kind, effects[0].outcome.status) == (DONE, "signal", 143)


def test_nothing_else_cuts_the_goodbye_short():
    group, _ = left(TreeEnded(52.1))
    for event in (StopRequested(15, 53.0), StopRequested(2, 53.0, by_owner=False), stop(), Fenced("", 53.0)):
        assert step(group, event) == (group, ())
    assert step(group, RoundStarted(place(3), 53.0)) == (group, ())


def test_there_is_no_goodbye_once_the_run_is_over():
    group, _ = feed(running(), StopRequested(15, 50.0), ended("failed", failure(0)))
    group, effects = feed(group, WorkerExited(0, 61.0), WorkerExited(1, 61.0), TreeEnded(61.1))
    assert (group.phase, [type(effect) for effect in effects]) == (DONE, [Finish])


def test_a_node_that_waits_leaves_too():
    group, effects = step(waiting(), StopRequested(2, 5.0))
    assert (group.phase, effects) == (FINISHING, (EndTree(TREE_S),))
    assert step(group, TreeEnded(5.1))[0].phase == LEAVING


def test_without_a_launcher_nobody_says_goodbye():
    group, effects = feed(running(), LauncherDied(5.0), TreeEnded(5.1))
    assert (group.phase, effects[0].outcome.kind) == (DONE, "abandoned")
