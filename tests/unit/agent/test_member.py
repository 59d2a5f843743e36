import groupsim
import pytest
from groupsim import failure, place, random_member
from small_groups import feed
from small_members import ended, running, stop, waiting

from planaria.agent import member
from planaria.agent.blame import PORT_TRIES
from planaria.agent.machine import KILL_S, TREE_S, step
from planaria.agent.membership import (
    Fenced,
    GoodbyeSaid,
    LeaseMoved,
    LeaveRun,
    ReportDone,
    ReportFailed,
    ReportStopped,
    RequestEnd,
    RoundStarted,
    TakePlace,
    TellFence,
    TellLife,
    TellResize,
)
from planaria.agent.model import (
    DONE,
    DRAINING,
    FINISHING,
    LEAVING,
    RESIZING,
    RESTARTING,
    RUNNING,
    SETTLING,
    STARTING,
    STOPPING,
    WAITING,
    Begun,
    DeadlinePassed,
    DumpStacks,
    EndRequested,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    LauncherDied,
    ProgressReported,
    ScopeExpired,
    SetDeadline,
    SignalWorkers,
    StopRequested,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base.value import replace
from planaria.contract.failure import ROUND_OVER, are_one_mistake
from planaria.errors import InvalidTransition

LOST_PEER = {"message": "RuntimeError: Connection closed by peer [10.0.0.2]:4711"}


def test_a_node_waits_for_its_round_and_says_that_it_has_no_workers():
    assert waiting().phase == WAITING


def test_ranks_count_and_reason_are_those_of_the_place():
    group, _ = step(waiting(), RoundStarted(place(7, restart_count=2, reason="node b left"), 1.0))
    assert (group.phase, group.round, group.restarts, group.reason) == (STARTING, 7, 2, "node b left")


def test_workers_that_end_well_are_reported_once_nothing_is_left():
    group, effects = feed(running(), WorkerExited(0, 1.0), WorkerExited(1, 2.0))
    assert (group.phase, effects) == (RESTARTING, (EndTree(TREE_S),))
    group, effects = step(group, TreeEnded(2.1))
    assert (group.phase, effects) == (WAITING, (TellLife(clean=True), ReportStopped(), ReportDone()))


def test_a_failure_stops_the_others_here_is_reported_and_restarts_nothing():
    group, effects = step(running(), WorkerExited(1, 100.0, failure(1, at=100.0)))
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    killed = failure(0, -15, 100.1, "signal", ())
    group, effects = feed(group, WorkerExited(0, 100.1, killed), TreeEnded(100.2))
    assert (group.phase, effects[:2]) == (WAITING, (TellLife(clean=True), ReportStopped()))
    assert [one.rank for one in effects[2].failures] == [1]
    assert [one.stopped_for for one in group.lives[0].failures] == [None, 1]


def test_a_failure_tells_whether_progress_was_made():
    for events, expected in (((), False), ((ProgressReported(0, 1),), True)):
        group, _ = feed(running(size=1), *events)
        _, effects = feed(group, WorkerExited(0, 9.0, failure(0, at=9.0)), TreeEnded(9.0))
        assert effects[2].failures[0].progressed is expected


def test_lives_of_this_node_without_progress_are_reported_as_failures_that_no_other_life_mends():
    group, _ = feed(running(stall_restarts=2), ProgressReported(0, 7), WorkerExited(0, 5.0, failure(0, at=5.0)))
    for number in (1, 2):
        group, _ = feed(group, WorkerExited(1, 5.1), TreeEnded(5.2), RoundStarted(place(number), 5.3))
        group, _ = feed(group, WorkersStarted(6.0), WorkerExited(0, 7.0, failure(0, at=7.0)))
    group, effects = feed(group, WorkerExited(1, 7.1), TreeEnded(7.2))
    (report,) = [effect for effect in effects if isinstance(effect, (RequestEnd, ReportFailed))]
    assert [one.rank for one in report.failures] == [0]
    assert report.why.startswith("2 lives in a row have ended without getting beyond step 7")


def port_taken(at):
    said = "DistNetworkError: ... port: 4711, code: -98, name: EADDRINUSE"
    return WorkerExited(0, at, failure(0, 1, at, message=said, bases=("DistNetworkError",)))


def test_a_stolen_master_port_is_reported_as_free_a_few_times():
    group = running(size=1)
    for tries in range(PORT_TRIES + 1):
        group, effects = feed(group, port_taken(9.0), TreeEnded(9.0))
        assert (effects[2].free, effects[2].why) == (tries < PORT_TRIES, "")
        group, _ = feed(group, RoundStarted(place(tries + 1), 9.0), WorkersStarted(9.0, 4711))


def test_a_mistake_settles_so_that_the_leader_hears_of_all_ranks_of_this_node():
    wrong = [failure(rank, 1, 0.5, bases=("ImportError",)) for rank in range(2)]
    group, _ = step(running(), WorkerExited(1, 0.5, wrong[1]))
    assert group.phase == SETTLING
    _, effects = feed(group, WorkerExited(0, 0.6, wrong[0]), TreeEnded(0.7))
    assert are_one_mistake(effects[2].failures, 2)
    assert not are_one_mistake(effects[2].failures, 4)


def test_a_round_that_ends_stops_workers_that_do_not_listen_at_once():
    assert step(running(), stop(has_listeners=True))[0].phase == STOPPING
    group, effects = step(running(), stop(grace_s=10.0))
    assert (group.phase, effects) == (STOPPING, (SignalWorkers(15), SetDeadline(30.0)))
    quick = WorkerExited(0, 50.1, failure(0, -15, 50.1, "signal", ()))
    group, effects = feed(group, quick, WorkerExited(1, 50.2, failure(1, 143, 50.2, "exit", ())), TreeEnded(50.3))
    assert (group.phase, effects) == (WAITING, (TellLife(clean=True), ReportStopped()))
    assert group.lives[0].failures == ()


def test_workers_that_listen_may_end_by_themselves_first():
    group, effects = step(running(), stop(grace_s=10.0, has_listeners=True))
    assert (group.phase, effects) == (RESIZING, (TellResize("node b joined", 10.0), SetDeadline(10.0)))
    _, effects = feed(group, WorkerExited(0, 51.0), WorkerExited(1, 52.0), TreeEnded(52.1))
    assert effects == (TellLife(clean=True), ReportStopped())


@pytest.mark.parametrize("event", [DeadlinePassed(60.0), stop(at=52.0)])
def test_the_ladder_comes_after_the_grace_or_when_there_is_no_time_any_more(event):
    group, _ = step(running(), stop(grace_s=10.0, has_listeners=True))
    group, effects = step(group, event)
    assert (group.phase, effects) == (STOPPING, (SignalWorkers(15), SetDeadline(30.0)))
    late = failure(0, 1, 51.0, "exception", ("RuntimeError",))  # between the notice and the signal
    group, _ = feed(group, WorkerExited(0, 60.1, late), WorkerExited(1, 60.2), TreeEnded(60.3))
    assert [one.stopped_for for one in group.lives[0].failures] == [ROUND_OVER]


def test_a_second_notice_changes_nothing_while_there_is_time():
    group, _ = step(running(), stop(grace_s=10.0, has_listeners=True))
    assert step(group, stop(at=51.0, grace_s=10.0, has_listeners=True)) == (group, ())


def test_a_failure_from_before_the_stop_is_still_reported_but_not_one_that_names_a_lost_peer():
    for more, reported in (({}, True), (LOST_PEER, False)):
        group, _ = step(running(), stop())
        early = failure(0, 1, 49.9, "exception", ("RuntimeError",), **more)
        _, effects = feed(group, WorkerExited(0, 50.1, early), WorkerExited(1, 50.2), TreeEnded(50.3))
        assert (ReportFailed in map(type, effects)) is reported


@pytest.mark.parametrize(("status", "reported"), [(-11, True), (-6, False)])
def test_a_crash_in_the_moment_of_the_stop_is_its_own_unless_a_library_aborts_for_lost_peers(status, reported):
    group, _ = step(running(), stop())
    crash = failure(0, status, 50.1, "signal", ())
    _, effects = feed(group, WorkerExited(0, 50.1, crash), WorkerExited(1, 50.2), TreeEnded(50.3))
    assert (ReportFailed in map(type, effects)) is reported


def test_a_failure_that_names_a_lost_peer_is_taken_back_when_the_round_turns_out_to_be_over():
    failing = WorkerExited(1, 50.0, failure(1, 1, 49.0, "exception", ("RuntimeError",), **LOST_PEER))
    rest = WorkerExited(0, 50.2, failure(0, -15, 50.2, "signal", ()))
    for before, after in (((failing, stop(), rest), ()), ((failing, rest, stop()), ())):
        _, effects = feed(running(), *before, *after, TreeEnded(50.3))
        assert effects == (TellLife(clean=True), ReportStopped())


def test_what_we_stopped_for_a_failure_that_is_taken_back_stays_as_it_was_told():
    failing = WorkerExited(2, 50.0, failure(2, 1, 49.0, "exception", ("RuntimeError",), **LOST_PEER))
    next_one = WorkerExited(1, 50.1, failure(1, 3, 50.1, "exit", ()))
    group, _ = feed(running(size=3), failing, next_one, stop(at=50.2), WorkerExited(0, 50.3))
    assert [(one.rank, one.stopped_for) for one in group.lives[0].failures] == [(1, 2), (2, ROUND_OVER)]


def test_workers_that_were_done_before_the_round_ended_are_done():
    group, _ = feed(running(), WorkerExited(0, 1.0), WorkerExited(1, 2.0), stop(at=2.0))
    assert step(group, TreeEnded(2.1))[1][-1] == ReportDone()


def test_a_failure_of_its_own_is_not_taken_back():
    group, _ = feed(running(), WorkerExited(1, 50.0, failure(1, at=50.0)), stop(at=50.1), WorkerExited(0, 50.2))
    _, effects = step(group, TreeEnded(50.3))
    assert effects[2].failures[0].rank == 1


def test_a_round_that_ends_while_no_worker_runs_is_answered_at_once():
    assert step(waiting(), stop()) == (waiting(), (ReportStopped(),))
    assert step(waiting(), Fenced("", 1.0)) == (waiting(), (ReportStopped(),))


@pytest.mark.parametrize("before", [(), (stop(),), (WorkerExited(1, 49.0, failure(1, at=49.0)),)])
def test_a_lease_that_runs_out_kills_at_once(before):
    group, _ = feed(running(), *before)
    group, effects = step(group, Fenced("no leader answered", 51.0))
    assert (group.phase, effects) == (RESTARTING, (KillWorkers(), TellFence("no leader answered"), EndTree(TREE_S)))
    group, effects = feed(group, WorkerExited(0, 51.0, failure(0, -9, 51.0, "signal", ())), TreeEnded(51.1))
    assert (group.phase, effects[:2]) == (WAITING, (TellLife(clean=True), ReportStopped()))
    assert (len(effects) == 3) == (bool(before) and isinstance(before[0], WorkerExited))


def test_a_drain_that_is_fenced_kills_and_still_leaves():
    group, effects = feed(running(), StopRequested(15, 50.0), Fenced("", 51.0))
    assert (group.phase, effects) == (DRAINING, (KillWorkers(), SetDeadline(KILL_S)))


def test_workers_that_died_after_the_lease_were_killed_by_the_guardian_and_have_not_failed():
    dead = WorkerExited(0, 99.0, failure(0, -9, 99.0, "signal", (), killer="other"))
    group, effects = feed(running(), LeaseMoved(54.0), dead)
    assert (group.phase, effects[0], effects[2]) == (RESTARTING, KillWorkers(), EndTree(TREE_S))
    assert "while this agent was stopped" in effects[1].reason
    _, effects = step(group, TreeEnded(99.1))
    assert effects == (TellLife(clean=True), ReportStopped())


@pytest.mark.parametrize("lease", [LeaseMoved(100.0), LeaseMoved(None)])
def test_workers_that_died_within_the_lease_have_failed(lease):
    dead = WorkerExited(0, 99.0, failure(0, -9, 99.0, "signal", (), killer="other"))
    group, _ = feed(running(), LeaseMoved(54.0), lease, dead)
    assert group.phase == STOPPING


def test_a_failure_within_the_lease_that_was_seen_late_is_one():
    seen_late = WorkerExited(0, 99.0, failure(0, 1, 53.0))
    assert feed(running(), LeaseMoved(54.0), seen_late)[0].phase == STOPPING


def phases():
    base = running()
    stopping, _ = step(base, stop())
    resizing, _ = step(base, stop(grace_s=10.0, has_listeners=True))
    settling, _ = step(base, WorkerExited(1, 0.5, failure(1, 1, 0.5, bases=("ImportError",))))
    restarting, _ = feed(base, WorkerExited(0, 0.5), WorkerExited(1, 0.5))
    draining, _ = step(base, StopRequested(15, 0.5))
    finishing, _ = feed(draining, WorkerExited(0, 0.5), WorkerExited(1, 0.5))
    leaving, _ = step(finishing, TreeEnded(0.6))
    done, _ = step(leaving, GoodbyeSaid())
    starting, _ = step(waiting(), RoundStarted(place(), 0.0))
    found = (waiting(), starting, base, settling, resizing, stopping, restarting, draining, finishing, leaving, done)
    return {group.phase: group for group in found}


LATE = ScopeExpired(failure(0, -15, 1.0, "watchdog", ()), 100, 15)


def test_a_worker_that_hangs_is_reported_to_the_others_as_a_failure_of_this_node():
    group, effects = step(phases()["running"], LATE)
    assert effects[1] == DumpStacks()
    group, _ = feed(group, DeadlinePassed(1.5), WorkerExited(1, 1.6), WorkerExited(0, 1.6, LATE.failure))
    _, effects = step(group, TreeEnded(1.7))
    assert [one.kind for one in effects[-1].failures] == ["watchdog"]


def test_a_worker_that_hung_is_a_failure_also_when_the_round_ends_before_it_does():
    group, _ = feed(phases()["running"], LATE, stop(1.2), DeadlinePassed(1.5))
    group, _ = feed(group, WorkerExited(1, 1.6, failure(1, -15, 1.6, "signal", ())), WorkerExited(0, 1.6, LATE.failure))
    _, effects = step(group, TreeEnded(1.7))
    assert [one.rank for one in effects[-1].failures] == [0]


def test_a_worker_that_was_told_to_end_by_itself_is_left_to_its_grace():
    resizing = phases()["resizing"]
    assert step(resizing, LATE) == (resizing, ())


EVERY = frozenset(phases())
EVENTS = (
    Begun(1.0),
    WorkersStarted(1.0),
    WorkerExited(0, 1.0),
    WorkerExited(0, 1.0, failure(0, at=1.0)),
    ProgressReported(0, 1),
    StopRequested(15, 1.0),
    StopRequested(2, 1.0),
    LauncherDied(1.0),
    DeadlinePassed(1.0),
    TreeEnded(1.0),
    RoundStarted(place(1), 1.0),
    stop(1.0),
    stop(1.0, 10.0, has_listeners=True),
    LeaseMoved(5.0),
    Fenced("", 1.0),
    ended("done"),
    ended("failed", failure(0)),
    GoodbyeSaid(),
    EndRequested("", 3.0, 1.0),
    LATE,
)
POSSIBLE = {
    "Begun": {WAITING},
    "WorkersStarted": {STARTING},
    "WorkerExited": {RUNNING, SETTLING, RESIZING, STOPPING, RESTARTING, DRAINING, FINISHING},
    "DeadlinePassed": {SETTLING, RESIZING, STOPPING, DRAINING, LEAVING},
    "TreeEnded": {RESTARTING, FINISHING},
    "RoundStarted": {WAITING, DRAINING, FINISHING, LEAVING, DONE},
    "RoundStopped": EVERY - {STARTING},  # that its workers run is the next thing a starting group hears
    "Fenced": EVERY - {STARTING},
    "RunEnded": EVERY - {STARTING},
}


@pytest.mark.parametrize("phase", sorted(EVERY))
def test_every_pair_of_phase_and_event_has_a_rule_or_is_listed_as_impossible(phase):
    group = phases()[phase]
    for event in EVENTS:
        if phase in POSSIBLE.get(type(event).__name__, EVERY):
            step(group, event)
        else:
            with pytest.raises(InvalidTransition):
                step(group, event)


def test_every_phase_is_covered():
    assert len(EVERY) == 11


@pytest.mark.parametrize("event", EVENTS[10:-2], ids=lambda event: type(event).__name__)
def test_a_node_alone_knows_nothing_of_rounds_that_others_decide(event):
    lone, _ = step(Group(size=2, max_restarts=3, grace_s=30.0), Begun(0.0))
    lone, _ = step(lone, WorkersStarted(0.0))
    with pytest.raises(InvalidTransition):
        step(lone, event)


@pytest.mark.parametrize("block", range(3))
def test_whatever_leader_owner_and_workers_do_a_node_keeps_the_rules(block):
    for seed in range(block * 100, block * 100 + 100):
        sim = random_member(seed)
        try:
            sim.run()
        except (AssertionError, InvalidTransition) as problem:
            pytest.fail(f"seed {seed}: {problem}\n" + "\n".join(sim.story))


def without(kind):
    return lambda group, effects: (group, tuple(one for one in effects if not isinstance(one, kind)))


PLANTED = {
    "forget to say that nobody lives": without(ReportStopped),
    "forget to kill when fenced": without((KillWorkers, EndTree)),
    "forget to stop the workers": without(SignalWorkers),
    "report before the end": lambda g, fx: (g, tuple(reversed(fx)) if ReportStopped() in fx else fx),
    "forget the deadline": without(SetDeadline),
    "restart by itself": lambda g, fx: (g, (*fx, TakePlace(place(9)))) if ReportFailed in map(type, fx) else (g, fx),
    "leave while workers live": lambda g, fx: (
        (g, (*fx, ReportStopped(), LeaveRun(""))) if g.phase == DRAINING else (g, fx)
    ),
    "blame those we stopped": lambda g, fx: (
        g,
        tuple(
            ReportFailed((replace(failure(0), stopped_for=1),)) if isinstance(one, ReportFailed) else one for one in fx
        ),
    ),
    "call it done alone": lambda g, fx: (
        g,
        tuple(Finish(replace(one.outcome, kind="done")) if isinstance(one, Finish) else one for one in fx),
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_catches_planted_bugs(bug, monkeypatch):
    monkeypatch.setattr(groupsim, "step", lambda group, event: PLANTED[bug](*step(group, event)))
    for seed in range(100):
        try:
            random_member(seed).run()
        except (AssertionError, InvalidTransition, TypeError):
            return
    pytest.fail("not caught")


def test_what_differs_for_a_node_among_others_is_in_one_file():
    assert member.step_among_others(running(), WorkerExited(0, 1.0)) is None
