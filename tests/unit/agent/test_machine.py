import os

import groupsim
import pytest
from groupsim import failure, random_run
from small_groups import feed, mistake, running, usage_error

from planaria.agent.blame import PORT_TRIES, settle_s
from planaria.agent.machine import KILL_S, TREE_S, step
from planaria.agent.model import (
    DONE,
    MOST_LIVES,
    SETTLING,
    STARTING,
    STOPPING,
    Begun,
    DeadlinePassed,
    DumpStacks,
    EndRequested,
    EndTree,
    Group,
    KillWorkers,
    LauncherDied,
    ProgressReported,
    ScopeExpired,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base.value import replace
from planaria.contract.failure import EARLY_LIFE_S
from planaria.errors import InvalidTransition


def test_a_group_whose_workers_all_exit_0_is_done():
    group, effects = feed(running(), WorkerExited(0, 1.0), WorkerExited(1, 2.0))
    assert effects == (EndTree(TREE_S),)
    group, (finish,) = step(group, TreeEnded(2.0))
    assert (group.phase, finish.outcome.kind, finish.outcome.status) == (DONE, "done", 0)


def test_a_worker_that_fails_stops_the_others_and_starts_all_again():
    group, effects = step(running(), WorkerExited(1, 100.0, failure(1, at=100.0)))
    assert effects == (SignalWorkers(15), SetDeadline(30.0))
    group, effects = step(group, WorkerExited(0, 100.1, failure(0, -15, 100.1, "signal", ())))
    assert effects == (EndTree(TREE_S),)
    group, effects = step(group, TreeEnded(100.1))
    assert effects == (TellRestart(clean=True), StartWorkers(1, 1, "rank 1 failed"))
    assert [one.stopped_for for one in group.lives[0].failures] == [None, 1]


def test_of_a_job_that_restarts_for_months_the_newest_lives_are_kept():
    group = running(size=1, max_restarts=1000)
    for _ in range(MOST_LIVES + 10):
        group, _ = feed(group, WorkerExited(0, 99.0, failure(0, at=99.0)), TreeEnded(99.0), WorkersStarted(99.0))
    assert [life.round for life in group.lives] == list(range(10, MOST_LIVES + 10))


def test_the_budget_is_spent_before_the_job_fails():
    group = running(size=1, max_restarts=2)
    for round_number in range(2):
        group, effects = feed(group, WorkerExited(0, 99.0, failure(0, at=99.0)), TreeEnded(99.0))
        assert effects[1].restart_count == round_number + 1
        group, _ = step(group, WorkersStarted(100.0))
    group, (finish,) = feed(group, WorkerExited(0, 199.0, failure(0, at=199.0)), TreeEnded(199.0))
    assert (finish.outcome.status, group.restarts, len(group.lives)) == (1, 2, 3)


def test_exit_code_worker_passes_the_first_failed_workers_status_on():
    for status, passes_on, expected in ((3, True, 3), (-11, True, 139), (3, False, 1), (-11, False, 1)):
        group = running(size=1, max_restarts=0, worker_exit_code=passes_on)
        _, (finish,) = feed(group, WorkerExited(0, 99.0, failure(0, status, 99.0)), TreeEnded(99.0))
        assert finish.outcome.status == expected


@pytest.mark.parametrize("made", [mistake, usage_error])
def test_a_mistake_that_every_rank_makes_at_start_up_ends_the_job_at_once(made):
    group, effects = step(running(), WorkerExited(1, 0.5, made(1, 0.5)))
    assert (group.phase, effects) == (SETTLING, (SetDeadline(settle_s(0.5)),))
    group, effects = feed(group, WorkerExited(0, 0.6, made(0, 0.6)))
    _, (finish,) = step(group, TreeEnded(0.6))
    assert finish.outcome.kind == "failed"
    assert "--always-restart" in finish.outcome.explanation


@pytest.mark.parametrize(
    ("settings", "first", "events"),
    [
        ({"always_restart": True}, mistake(1, 0.5), ()),
        ({"max_restarts": 0}, mistake(1, 0.5), ()),
        ({}, failure(1, 1, 0.5), ()),  # a RuntimeError may pass by itself
        ({}, failure(1, -9, 0.5, "signal", ()), ()),
        ({}, mistake(1, 0.5), (ProgressReported(0, 1),)),
        ({}, mistake(1, EARLY_LIFE_S + 1), ()),
    ],
)
def test_nothing_settles_when_another_life_may_help_or_none_is_left(settings, first, events):
    group, _ = feed(running(**settings), *events)
    group, effects = step(group, WorkerExited(1, first.at, first))
    assert (group.phase, effects[0]) == (STOPPING, SignalWorkers(15))


@pytest.mark.parametrize(
    "second",
    [
        WorkerExited(0, 0.6),
        WorkerExited(0, 0.6, mistake(0, 0.6, where="elsewhere.py:3")),
        DeadlinePassed(0.8),
    ],
)
def test_a_rank_that_does_not_make_the_same_mistake_gets_the_job_another_life(second):
    group, _ = feed(running(size=3), WorkerExited(1, 0.5, mistake(1, 0.5)), second)
    assert group.phase == STOPPING


def test_a_rank_that_succeeds_last_while_settling_leaves_a_restart_to_do():
    group, _ = feed(running(), WorkerExited(1, 0.5, mistake(1, 0.5)), WorkerExited(0, 0.6), TreeEnded(0.6))
    assert (group.phase, group.restarts) == (STARTING, 1)


def test_settling_goes_on_while_every_rank_so_far_made_the_same_mistake():
    group, effects = feed(running(size=3), WorkerExited(1, 0.5, mistake(1, 0.5)), WorkerExited(2, 0.6, mistake(2, 0.6)))
    assert (group.phase, effects) == (SETTLING, ())


def test_settling_grows_with_age_and_stays_below_a_second():
    assert settle_s(0.0) < settle_s(1.0) < settle_s(100.0) == 1.0


def test_the_stop_ladder_asks_then_looks_then_kills():
    group, _ = step(running(), WorkerExited(1, 100.0, failure(1, at=100.0)))
    group, effects = step(group, DeadlinePassed(130.0))
    assert effects[0] == DumpStacks()
    group, effects = step(group, DeadlinePassed(130.3))
    assert effects == (KillWorkers(), SetDeadline(KILL_S))


def test_an_end_without_grace_does_not_wait_for_workers_that_listen():
    now = EndRequested("enough", 0.0, 1.0)
    assert step(running(), replace(now, has_listeners=True)) == step(running(), now)
    assert step(running(), replace(now, has_listeners=True, grace_s=1.0)) != step(running(), now)


@pytest.mark.parametrize(("first", "effect"), [(2, KillWorkers()), (15, SignalWorkers(2))])
def test_the_signal_that_workers_get_who_were_only_told_counts_as_the_first_ctrl_c_if_it_is_one(first, effect):
    group, _ = step(running(), EndRequested("enough", 30.0, 1.0, has_listeners=True))
    group, effects = step(group, StopRequested(first, 2.0))
    assert effects[0] == SignalWorkers(first)
    _, effects = step(group, StopRequested(2, 3.0))
    assert effects[0] == effect


def test_a_worker_that_even_sigkill_does_not_end_is_not_waited_for():
    group, _ = step(running(), WorkerExited(1, 100.0, failure(1, at=100.0)))
    group, effects = feed(group, DeadlinePassed(130.0), DeadlinePassed(130.3), DeadlinePassed(140.3))
    assert effects == (EndTree(TREE_S),)
    late, effects = step(group, WorkerExited(0, 141.0, failure(0, -9, 141.0, "signal", (), killer="us")))
    assert effects == ()
    group, effects = step(late, TreeEnded(145.3, clean=False))
    assert effects == (TellRestart(clean=False), StartWorkers(1, 1, "rank 1 failed"))


def test_a_failure_that_came_before_our_stop_was_heard_is_the_workers_own():
    group, _ = step(running(size=3), WorkerExited(1, 100.0, failure(1, at=100.0)))
    late = WorkerExited(0, 100.2, failure(0, 1, 99.9, "exception", ("OSError",)))
    caused = WorkerExited(2, 100.3, failure(2, 1, 100.1, "exception", ("OSError",)))
    group, _ = feed(group, late, caused)
    assert [(one.rank, one.stopped_for) for one in group.lives[0].failures] == [(0, None), (1, None), (2, 0)]


def test_a_crash_long_after_our_stop_is_a_consequence_of_it():
    group, _ = step(running(), WorkerExited(1, 100.0, failure(1, 1, 100.0, bases=("ConnectionError",))))
    group, _ = step(group, WorkerExited(0, 101.0, failure(0, -6, 101.0, "signal", ())))
    assert [(one.rank, one.stopped_for) for one in group.lives[0].failures] == [(1, None), (0, 1)]


def test_a_crash_of_another_kind_while_we_stop_is_the_workers_own():
    group, _ = step(running(), WorkerExited(1, 100.0, failure(1, -11, 100.0, "signal", ())))
    group, _ = step(group, WorkerExited(0, 100.0, failure(0, -11, 100.0, "signal", ())))
    assert [one.stopped_for for one in group.lives[0].failures] == [None, None]


def test_an_abort_in_the_moment_of_our_stop_is_the_workers_own_when_no_other_node_can_have_caused_it():
    group, _ = step(running(), WorkerExited(1, 100.0, failure(1, at=100.0)))
    group, _ = step(group, WorkerExited(0, 100.1, failure(0, -6, 100.1, "signal", ())))
    assert sorted((one.rank, one.stopped_for) for one in group.lives[0].failures) == [(0, None), (1, None)]


def test_nothing_happens_after_the_end():
    group, _ = feed(running(size=1), WorkerExited(0, 1.0), TreeEnded(1.0))
    assert step(group, LauncherDied(2.0)) == (group, ())
    assert step(group, StopRequested(15, 2.0)) == (group, ())


def port_taken(at, port=4711):
    said = f"DistNetworkError: ... port: {port}, useIpv6: false, code: -98, name: EADDRINUSE"
    return WorkerExited(0, at, failure(0, 1, at, message=said, bases=("DistNetworkError",)))


def test_a_master_port_taken_by_somebody_else_costs_no_restart_a_few_times():
    group = running(size=1, max_restarts=0, master_port=4711)
    for tries in range(PORT_TRIES):
        group, (_, start) = feed(group, port_taken(9.0), TreeEnded(9.0))
        assert (start.restart_count, start.round) == (0, tries + 1)
        group, _ = step(group, WorkersStarted(9.0, 4711))
    _, (finish,) = feed(group, port_taken(9.0), TreeEnded(9.0))
    assert finish.outcome.kind == "failed"


def test_a_master_port_the_user_named_is_not_replaced():
    group = running(size=1, max_restarts=0, fixed_port=True, master_port=4711)
    _, (finish,) = feed(group, port_taken(9.0), TreeEnded(9.0))
    assert finish.outcome.kind == "failed"


@pytest.mark.parametrize(
    ("said", "is_free"),
    [
        ("OSError: [Errno 98] Address already in use: ('0.0.0.0', 4711)", True),
        ("TimeoutError: 127.0.0.1:4711 did not answer", False),
    ],
)
def test_only_an_address_in_use_makes_another_life_free(said, is_free):
    group = running(size=1, max_restarts=0, master_port=4711)
    bad = failure(0, 1, 9.0, message=said, bases=("OSError",))
    group, _ = feed(group, WorkerExited(0, 9.0, bad), TreeEnded(9.0))
    assert (group.phase == STARTING) == is_free


def test_a_port_of_the_users_own_that_is_taken_is_the_users_failure():
    group = running(size=1, max_restarts=0, master_port=4711)
    _, (finish,) = feed(group, port_taken(9.0, port=8080), TreeEnded(9.0))
    assert finish.outcome.kind == "failed"


EVENTS = (
    Begun(1.0),
    WorkersStarted(1.0),
    WorkerExited(0, 1.0),
    WorkerExited(0, 1.0, failure(0, at=1.0)),
    ProgressReported(0, 1),
    ScopeExpired(failure(0, -15, 1.0, "watchdog", ()), 100, 15),
    StopRequested(15, 1.0),
    EndRequested("", 0.0, 1.0),
    EndRequested("", 3.0, 1.0, has_listeners=True),
    LauncherDied(1.0),
    DeadlinePassed(1.0),
    TreeEnded(1.0),
)
IMPOSSIBLE = {
    "Begun": {"running", "settling", "stopping", "restarting", "draining", "finishing", "done"},
    "WorkersStarted": {"running", "settling", "stopping", "restarting", "draining", "finishing", "done"},
    "WorkerExited": {"starting", "done"},
    "DeadlinePassed": {"starting", "running", "restarting", "finishing", "done"},
    "TreeEnded": {"starting", "running", "settling", "stopping", "draining", "done"},
}


def phases():
    base = running()
    stopping, _ = step(base, WorkerExited(1, 0.5, failure(1, at=0.5)))
    settling, _ = step(base, WorkerExited(1, 0.5, mistake(1, 0.5)))
    restarting, _ = step(stopping, WorkerExited(0, 0.6))
    draining, _ = step(base, StopRequested(15, 0.5))
    finishing, _ = feed(base, WorkerExited(0, 0.5), WorkerExited(1, 0.5))
    done, _ = step(finishing, TreeEnded(0.6))
    starting = Group(size=2, max_restarts=3, grace_s=30.0)
    return {g.phase: g for g in (starting, base, settling, stopping, restarting, draining, finishing, done)}


def test_every_pair_of_phase_and_event_has_a_rule_or_is_listed_as_impossible():
    found = phases()
    assert len(found) == 8
    for phase, group in found.items():
        for event in EVENTS:
            if phase in IMPOSSIBLE.get(type(event).__name__, ()):
                with pytest.raises(InvalidTransition):
                    step(group, event)
            else:
                step(group, event)


def test_an_invalid_transition_leaves_the_group_as_it_was():
    group = running()
    with pytest.raises(InvalidTransition, match="no rule for TreeEnded"):
        step(group, TreeEnded(1.0))
    assert group == running()


BLOCKS = int(os.environ.get("PLANARIA_TEST_GROUPS", "500")) // 100


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whatever_happens_the_group_ends_once_within_its_budget(block):
    for seed in range(block * 100, block * 100 + 100):
        sim = random_run(seed)
        try:
            sim.run()
        except (AssertionError, InvalidTransition) as problem:
            pytest.fail(f"seed {seed}: {problem}\n" + "\n".join(sim.story))
        assert sim.starts[0].restart_count == 0
        assert sim.starts[-1].restart_count <= sim.group.max_restarts
        assert all(later.round == earlier.round + 1 for earlier, later in zip(sim.starts, sim.starts[1:], strict=False))
        if sim.finished.kind == "done":
            assert not sim.group.lives[-1].failures


PLANTED = {
    "forget to stop the others": lambda g, fx: (g, tuple(x for x in fx if not isinstance(x, SignalWorkers))),
    "forget the deadline": lambda g, fx: (g, tuple(x for x in fx if not isinstance(x, SetDeadline))),
    "forget to end the tree": lambda g, fx: (g, tuple(x for x in fx if not isinstance(x, EndTree))),
    "kill at once": lambda g, fx: (g, tuple(KillWorkers() if isinstance(x, SignalWorkers) else x for x in fx)),
    "never charge a restart": lambda g, fx: (replace(g, restarts=0), fx),
    "charge twice": lambda g, fx: (replace(g, restarts=g.restarts * 2), fx),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_catches_planted_bugs(bug, monkeypatch):
    honest = step
    monkeypatch.setattr(groupsim, "step", lambda group, event: PLANTED[bug](*honest(group, event)))
    caught = 0
    for seed in range(100):
        sim = random_run(seed)
        try:
            sim.run()
        except (AssertionError, InvalidTransition, TypeError):
            caught += 1
    assert caught
