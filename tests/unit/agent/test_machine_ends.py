"""What ends a life or a run from outside of its workers: expired scopes, changed members, signals, the launcher's death."""

import pytest
from groupsim import failure
from small_groups import feed, mistake, running

from planaria.agent.machine import KILL_S, LOOK_S, TREE_S, step
from planaria.agent.model import (
    DRAINING,
    STARTING,
    STOPPING,
    BlameWorker,
    DeadlinePassed,
    DumpStacks,
    EndTree,
    Group,
    KillWorkers,
    LauncherDied,
    MembersChanged,
    ScopeExpired,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TellDrain,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base.value import replace
from planaria.errors import InvalidTransition


def test_members_that_change_stop_the_workers_in_order_and_start_them_again_free_of_charge():
    group, effects = step(running(max_restarts=0), MembersChanged(50.0))
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    group, _ = step(group, WorkerExited(0, 50.1, failure(0, -15, 50.1, "signal", ())))
    group, effects = step(group, WorkerExited(1, 50.2))
    assert effects == (EndTree(TREE_S),)
    group, effects = step(group, TreeEnded(50.3))
    assert effects == (TellRestart(clean=True), StartWorkers(1, 0, "the members of the run changed"))
    group, effects = feed(group, WorkersStarted(51.0), WorkerExited(0, 60.0), WorkerExited(1, 61.0), TreeEnded(61.0))
    assert effects[0].outcome.kind == "done"


@pytest.mark.parametrize("event", [StopRequested(15, 1.0), WorkerExited(0, 1.0, failure(0, at=1.0))])
def test_members_are_nobodys_business_while_a_group_does_not_run(event):
    group, _ = step(running(always_restart=True), event)
    with pytest.raises(InvalidTransition):
        step(group, MembersChanged(2.0))


def test_an_end_the_owner_asked_for_is_not_a_failure_but_a_crash_or_a_kill_on_the_way_is():
    group, _ = step(running(size=4), StopRequested(15, 50.0))
    group, _ = feed(
        group,
        WorkerExited(0, 50.1, failure(0, -15, 50.1, "signal", ())),
        WorkerExited(1, 50.2, failure(1, 143, 50.2, "exit", ())),
        WorkerExited(2, 50.3, failure(2, -11, 50.3, "signal", ())),
        WorkerExited(3, 80.3, failure(3, -9, 80.3, "signal", (), killer="us")),
    )
    assert [one.rank for one in group.lives[0].failures] == [2, 3]


def test_a_signal_is_passed_on_and_the_exit_status_says_so():
    group, effects = step(running(), StopRequested(15, 50.0))
    assert effects == (TellDrain(15, 30.0), SignalWorkers(15), SetDeadline(30.0))
    _, (finish,) = feed(group, WorkerExited(0, 51.0), WorkerExited(1, 52.0), TreeEnded(52.0))
    assert (finish.outcome.kind, finish.outcome.status) == ("signal", 143)


@pytest.mark.parametrize(
    ("second", "effects"),
    [
        (StopRequested(2, 51.0), (KillWorkers(), SetDeadline(KILL_S))),
        (StopRequested(15, 51.0), ()),
        (StopRequested(2, 51.0, by_owner=False), ()),
    ],
)
def test_only_a_second_ctrl_c_of_the_owner_cuts_the_grace(second, effects):
    group, _ = step(running(), StopRequested(2, 50.0))
    assert step(group, second)[1] == effects


def test_the_first_ctrl_c_after_a_sigterm_is_passed_on_and_the_second_kills():
    group, _ = step(running(), StopRequested(15, 50.0))
    group, effects = step(group, StopRequested(2, 51.0))
    assert effects == (SignalWorkers(2),)
    group, effects = step(group, StopRequested(2, 52.0))
    assert effects == (KillWorkers(), SetDeadline(KILL_S))
    group, _ = feed(group, WorkerExited(0, 52.0, failure(0, -2, 52.0, "signal", ())), WorkerExited(1, 52.0))
    assert group.lives[0].failures == ()
    _, (finish,) = step(group, TreeEnded(52.0))
    assert finish.outcome.status == 143


def test_a_sigint_that_nobody_asked_us_for_is_a_failure_also_during_a_drain():
    group, _ = step(running(size=1), StopRequested(15, 50.0))
    group, _ = step(group, WorkerExited(0, 51.0, failure(0, -2, 51.0, "signal", ())))
    assert [one.status for one in group.lives[0].failures] == [-2]


def test_what_a_worker_does_wrong_during_a_drain_is_its_own():
    group, _ = step(running(), StopRequested(15, 50.0))
    group, _ = feed(group, WorkerExited(0, 60.0, failure(0, 1, 60.0)), WorkerExited(1, 61.0))
    assert [(one.rank, one.stopped_for) for one in group.lives[0].failures] == [(0, None)]


def test_our_own_sigterm_is_no_failure_when_ctrl_c_comes_after_it():
    group, _ = feed(
        running(),
        WorkerExited(1, 9.0, failure(1, at=9.0)),
        StopRequested(2, 9.1),
        WorkerExited(0, 9.2, failure(0, -15, 9.2, "signal", ())),
    )
    assert [one.rank for one in group.lives[0].failures] == [1]


def test_a_signal_while_a_failed_group_stops_wins_over_the_restart():
    group, _ = feed(running(), WorkerExited(1, 9.0, failure(1, at=9.0)), StopRequested(15, 9.1))
    assert group.phase == DRAINING
    _, (finish,) = feed(group, WorkerExited(0, 9.2), TreeEnded(9.2))
    assert finish.outcome.status == 143


def test_a_signal_between_two_lives_means_no_second_life():
    group, _ = feed(running(size=1), WorkerExited(0, 99.0, failure(0, at=99.0)))
    group, effects = step(group, StopRequested(2, 99.1))
    assert effects == ()
    _, (finish,) = step(group, TreeEnded(99.2))
    assert finish.outcome.status == 130


def test_without_a_launcher_everything_is_killed_at_once():
    group, effects = step(running(), LauncherDied(5.0))
    assert effects == (EndTree(TREE_S),)
    _, (finish,) = feed(group, WorkerExited(0, 5.0, failure(0, -9, 5.0)), TreeEnded(5.0))
    assert finish.outcome.kind == "abandoned"


def test_a_launcher_that_dies_between_two_lives_is_not_a_reason_to_end_the_tree_twice():
    group, _ = feed(running(size=1), WorkerExited(0, 99.0, failure(0, at=99.0)))
    group, effects = step(group, LauncherDied(99.1))
    assert effects == ()
    _, (finish,) = step(group, TreeEnded(99.2))
    assert finish.outcome.kind == "abandoned"


def test_a_signal_before_the_first_life_means_no_life_at_all():
    group, effects = step(Group(size=2, max_restarts=3, grace_s=30.0), StopRequested(15, 0.0))
    assert effects == (EndTree(TREE_S),)
    _, (finish,) = step(group, TreeEnded(0.1))
    assert finish.outcome.status == 143


def late(rank, at, signal=15):
    said = "watchdog: scope 'step' ran 61 s, limit 60 s"
    return ScopeExpired(failure(rank, -signal, at, "watchdog", (), message=said), 100 + rank, signal)


def test_a_scope_that_expires_has_all_show_their_stacks_before_anybody_is_asked_to_stop():
    expired = late(1, 61.0)
    group, effects = step(running(), expired)
    assert group.phase == STOPPING
    assert effects == (BlameWorker(expired.failure, 101), DumpStacks(), SetDeadline(LOOK_S))
    group, effects = step(group, DeadlinePassed(61.5))
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    group, effects = step(group, DeadlinePassed(91.5))
    assert effects[0] == DumpStacks()
    _, effects = step(group, DeadlinePassed(91.8))
    assert effects == (KillWorkers(), SetDeadline(KILL_S))


def test_the_worker_that_hung_is_the_first_cause_whoever_ends_first():
    group, _ = feed(running(), late(1, 61.0), DeadlinePassed(61.5))
    group, _ = step(group, WorkerExited(0, 61.6, failure(0, -15, 61.6, "signal", ())))
    stacks = replace(late(1, 61.0).failure, traceback="its stacks")
    group, effects = feed(group, WorkerExited(1, 61.7, stacks), TreeEnded(61.7))
    assert effects == (TellRestart(clean=True), StartWorkers(1, 1, "rank 1 failed"))
    assert [(one.rank, one.stopped_for, one.traceback) for one in group.lives[0].failures] == [
        (1, None, "its stacks"),
        (0, 1, ""),
    ]


def test_a_signal_that_a_scope_asks_for_is_sent_to_its_worker_alone():
    group, _ = feed(running(size=4), late(1, 61.0, 9), late(2, 61.1, 2), late(3, 61.2))
    _, effects = step(group, DeadlinePassed(61.5))
    assert effects == (
        SignalWorkers(15, frozenset({0, 3})),
        SignalWorkers(2, frozenset({2})),
        SignalWorkers(9, frozenset({1})),
        SetDeadline(30.0),
    )


def test_workers_that_hang_in_the_same_moment_all_failed_by_themselves_and_cost_one_restart():
    group, _ = step(running(), late(1, 61.0, 9))
    group, effects = step(group, late(0, 61.2, 9))
    assert effects == (BlameWorker(late(0, 61.2, 9).failure, 100),)
    assert step(group, late(0, 61.3, 9)) == (group, ())
    group, effects = step(group, DeadlinePassed(61.5))
    assert effects == (SignalWorkers(9, frozenset({0, 1})), SetDeadline(30.0))
    group, _ = feed(group, *(WorkerExited(rank, 61.6, late(rank, 61.0 + (1 - rank) / 5, 9).failure) for rank in (0, 1)))
    group, _ = step(group, TreeEnded(61.7))
    assert (group.restarts, [one.rank for one in group.lives[0].failures], group.expired) == (1, [1, 0], ())


def test_a_worker_that_hangs_in_the_kernel_is_still_the_reason_of_the_restart():
    group, _ = feed(running(size=1), late(0, 61.0), DeadlinePassed(61.5), DeadlinePassed(91.5), DeadlinePassed(91.8))
    group, _ = feed(group, DeadlinePassed(101.8), TreeEnded(106.8, clean=False))
    assert (group.phase, group.restarts, group.lives[0].failures[0].kind) == (STARTING, 1, "watchdog")


def test_a_worker_that_ends_well_after_its_scope_expired_has_failed_all_the_same():
    group, _ = feed(running(size=1, max_restarts=0, worker_exit_code=True), late(0, 61.0), DeadlinePassed(61.5))
    group, _ = step(group, WorkerExited(0, 61.6, replace(late(0, 61.0).failure, status=0)))
    _, (finish,) = step(group, TreeEnded(61.7))
    assert (finish.outcome.kind, finish.outcome.status) == ("failed", 1)


def test_a_scope_that_expires_while_the_group_stops_anyway_changes_nothing():
    stopping, _ = step(running(), WorkerExited(1, 60.0, failure(1, at=60.0)))
    draining, _ = step(running(), StopRequested(15, 60.0))
    for group in (stopping, draining):
        assert step(group, late(0, 61.0)) == (group, ())
    gone, _ = step(running(), WorkerExited(0, 60.0))
    assert step(gone, late(0, 61.0)) == (gone, ())


def test_a_scope_that_expires_while_others_settle_ends_the_wait():
    group, _ = feed(running(), WorkerExited(1, 0.5, mistake(1, 0.5)), late(0, 0.6), DeadlinePassed(1.1))
    assert group.phase == STOPPING
    group, _ = feed(group, WorkerExited(0, 1.2, late(0, 0.6).failure), TreeEnded(1.2))
    assert [one.rank for one in group.lives[0].failures] == [1, 0]


def test_a_drain_that_comes_while_stacks_are_collected_goes_its_own_way():
    group, _ = step(running(), late(1, 61.0))
    group, effects = step(group, StopRequested(15, 61.2))
    assert (group.phase, effects) == (DRAINING, (TellDrain(15, 30.0), SignalWorkers(15), SetDeadline(30.0)))
    group, _ = feed(group, WorkerExited(1, 61.3, late(1, 61.0).failure), WorkerExited(0, 61.3))
    assert [one.kind for one in group.lives[0].failures] == ["watchdog"]
