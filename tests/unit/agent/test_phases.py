from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from typing import Any

import groupsim
import pytest
from groupsim import failure, place
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent.membership import Fenced, ReportStopped, RoundStarted, RoundStopped, TakePlace
from planaria.agent.model import (
    EndTree,
    Finish,
    Outcome,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.phases import KINDS, PHASES, Restart, SignsGivenUp, Watch, WorkerSigned, follow, kind_of
from planaria.base.value import as_dict
from planaria.contract.failure import Failure
from planaria.rendezvous import verdict, words
from planaria.rendezvous.messages import Failed, Join
from planaria.rendezvous.model import Standing

EVERYBODY = frozenset({0, 1})
START = StartWorkers(1, 1, "rank 0 failed")
STOP = (SignalWorkers(15), SetDeadline(30.0))


def told(*rows: tuple[Any, tuple[Any, ...], float], signing: frozenset[int] = EVERYBODY) -> list[Restart]:
    """Fold rows of event, effects and the moment they were ordered; return the restarts that came of them."""
    watch, found = Watch(), []
    for event, effects, now in rows:
        watch, restart = follow(
            watch, event, effects, now, signing if isinstance(event, WorkersStarted) else frozenset()
        )
        found += [restart] if restart is not None else []
    return found


def phases(restart: Restart) -> list[float]:
    return [getattr(restart, f"{phase}_s") for phase in PHASES]


FIRST_LIFE = (WorkersStarted(10.0), (), 10.0)
A_CRASH = (
    FIRST_LIFE,
    (WorkerExited(0, 20.5, failure(0, at=20.0)), STOP, 20.75),
    (WorkerExited(1, 21.0, failure(1, -15, at=21.0)), (EndTree(5.0),), 21.0),
    (TreeEnded(22.75), (TellRestart(True), START), 22.75),
    (WorkersStarted(23.0), (), 23.0),
)


def test_a_crash_on_a_node_alone_is_one_restart_with_its_phases() -> None:
    restart, *others = told(*A_CRASH, (WorkerSigned(1, 23.5), (), 24.0), (WorkerSigned(0, 25.0), (), 26.0))
    assert others == []
    assert phases(restart) == [0.5, 0.25, 2.0, 0.0, 0.25, 2.0]
    assert restart.total_s == 5.0
    assert restart.began_at == 20.0
    assert (restart.round, restart.restart_count, restart.reason) == (1, 1, "rank 0 failed")
    assert (restart.kind, restart.charged, restart.signed) == ("failed", True, 2)


def test_the_first_start_is_no_restart() -> None:
    assert told(FIRST_LIFE, (WorkerSigned(0, 10.5), (), 10.5), (WorkerSigned(1, 10.5), (), 10.5)) == []


def test_a_job_that_ends_instead_of_starting_again_leaves_no_restart() -> None:
    end = (TreeEnded(22.75), (Finish(Outcome("failed", 1)),), 22.75)
    assert told(*A_CRASH[:3], end) == []


def test_workers_that_give_no_signs_are_ready_once_they_are_started() -> None:
    (restart,) = told(*A_CRASH, signing=frozenset())
    assert restart.ready_s == 0.0
    assert restart.total_s == 3.0


@pytest.mark.parametrize(
    ("event", "effects"),
    [
        (SignsGivenUp(), ()),
        (WorkerExited(1, 90.0, failure(1, at=90.0)), STOP),
        (RoundStopped(3, "node b joined", 0.0, 90.0), STOP),
        (Fenced("no leader answered", 90.0), (EndTree(5.0),)),
        (TreeEnded(90.0), (Finish(Outcome("done", 0)),)),
    ],
)
def test_a_restart_ends_with_the_signs_there_are_when_there_will_be_no_others(event: Any, effects: Any) -> None:
    (restart,) = told(*A_CRASH, (WorkerSigned(0, 23.5), (), 24.0), (event, effects, 90.0))
    assert restart.ready_s == 0.5
    assert restart.signed == 1


def test_a_worker_that_signs_twice_counts_once() -> None:
    twice = ((WorkerSigned(0, 23.5), (), 24.0), (WorkerSigned(0, 24.5), (), 24.5))
    (restart,) = told(*A_CRASH, *twice, (WorkerSigned(1, 24.0), (), 25.0))
    assert restart.signed == 2
    assert restart.ready_s == 1.0


def test_a_restart_that_costs_nothing_is_not_charged() -> None:
    free = StartWorkers(1, 0, "the master port was taken by another program")
    rows = (*A_CRASH[:3], (TreeEnded(22.75), (TellRestart(True), free), 22.75), A_CRASH[4])
    (restart,) = told(*rows, signing=frozenset())
    assert (restart.kind, restart.charged, restart.restart_count) == ("port", False, 0)


def test_a_round_that_is_called_off_before_there_was_a_life_is_no_restart() -> None:
    called_off = (RoundStopped(1, "node b joined", 0.0, 5.0), (ReportStopped(),), 5.0)
    assert told(called_off, FIRST_LIFE, signing=frozenset()) == []


def test_a_stop_of_the_round_does_not_make_a_failure_that_came_first_begin_later() -> None:
    (restart,) = told(
        FIRST_LIFE,
        (WorkerExited(0, 20.5, failure(0, at=20.0)), (SetDeadline(1.0),), 20.5),
        (RoundStopped(4, "node b joined", 0.0, 21.0), STOP, 21.0),
        (TreeEnded(22.0), (ReportStopped(),), 22.0),
        (RoundStarted(place(4), 23.0), (TakePlace(place(4)),), 23.0),
        (WorkersStarted(23.5), (), 23.5),
        signing=frozenset(),
    )
    assert restart.began_at == 20.0
    assert phases(restart) == [0.5, 0.5, 1.0, 1.0, 0.5, 0.0]


def test_a_worker_that_ends_well_before_its_sign_is_not_waited_for() -> None:
    (restart,) = told(*A_CRASH, (WorkerSigned(0, 23.5), (), 24.0), (WorkerExited(1, 24.5), (), 24.5))
    assert restart.signed == 1


def test_a_failure_before_the_signs_is_the_beginning_of_the_next_restart() -> None:
    again = StartWorkers(2, 2, "rank 1 failed")
    first, second = told(
        *A_CRASH,
        (WorkerExited(1, 24.0, failure(1, at=23.5)), STOP, 24.0),
        (WorkerExited(0, 24.5, failure(0, -15, at=24.5)), (EndTree(5.0),), 24.5),
        (TreeEnded(25.0), (TellRestart(True), again), 25.0),
        (WorkersStarted(25.25), (), 25.25),
        (SignsGivenUp(), (), 90.0),
    )
    assert first.total_s == 3.0
    assert phases(second) == [0.5, 0.0, 1.0, 0.0, 0.25, 0.0]
    assert second.began_at == 23.5


def test_waiting_for_the_other_ranks_to_make_the_same_mistake_is_part_of_deciding() -> None:
    (restart,) = told(
        FIRST_LIFE,
        (WorkerExited(0, 10.5, failure(0, at=10.25)), (SetDeadline(0.5),), 10.5),
        (WorkerExited(1, 10.75, failure(1, at=10.0)), (EndTree(5.0),), 10.75),
        *A_CRASH[3:],
        signing=frozenset(),
    )
    assert restart.began_at == 10.0  # the second one seen had failed first
    assert (restart.detect_s, restart.decide_s) == (0.5, 0.25)


@pytest.mark.parametrize(("own", "detect_s"), [(math.nan, 0.0), (99.0, 0.0), (-5.0, 10.5), (math.inf, 0.0)])
def test_a_moment_that_a_worker_made_up_does_no_harm(own: float, detect_s: float) -> None:
    (restart,) = told(
        FIRST_LIFE,
        (WorkerExited(0, 20.5, failure(0, at=own)), STOP, 20.75),
        *A_CRASH[2:],
        (WorkerSigned(0, 1e300), (), 24.0),
        (WorkerSigned(1, 0.0), (), 24.0),
    )
    assert restart.detect_s == detect_s
    assert restart.ready_s == 1.0


def test_among_others_the_wait_for_the_next_round_is_the_rendezvous() -> None:
    here = place(4, restart_count=0, reason="node b fell silent")
    (restart,) = told(
        (RoundStarted(place(3), 9.0), (TakePlace(place(3)),), 9.0),
        FIRST_LIFE,
        (RoundStopped(4, "node b fell silent", 0.0, 20.0), STOP, 20.0),
        (WorkerExited(0, 20.5, failure(0, -15, at=20.5)), (EndTree(5.0),), 20.5),
        (TreeEnded(21.0), (ReportStopped(),), 21.0),
        (RoundStarted(here, 24.0), (TakePlace(here),), 24.0),
        (WorkersStarted(24.5), (), 24.5),
        signing=frozenset(),
    )
    assert phases(restart) == [0.0, 0.0, 1.0, 3.0, 0.5, 0.0]
    assert (restart.kind, restart.charged, restart.round) == ("lost", False, 4)


def test_a_node_whose_workers_were_done_has_nothing_to_stop() -> None:
    (restart,) = told(
        FIRST_LIFE,
        (WorkerExited(0, 15.0), (EndTree(5.0),), 15.0),
        (TreeEnded(16.0), (ReportStopped(),), 16.0),
        (RoundStopped(4, "rank 3 failed on b", 0.0, 20.0), (ReportStopped(),), 20.0),
        (RoundStarted(place(4), 22.0), (TakePlace(place(4)),), 22.0),
        (WorkersStarted(22.5), (), 22.5),
        signing=frozenset(),
    )
    assert phases(restart) == [0.0, 0.0, 0.0, 2.0, 0.5, 0.0]


def test_a_round_that_ends_while_a_finished_life_is_cleaned_up_is_a_restart_too() -> None:
    (restart,) = told(
        FIRST_LIFE,
        (WorkerExited(0, 15.0), (EndTree(5.0),), 15.0),
        (RoundStopped(4, "node b joined", 0.0, 15.5), (), 15.5),
        (TreeEnded(16.0), (ReportStopped(),), 16.0),
        (RoundStarted(place(4), 17.0), (TakePlace(place(4)),), 17.0),
        (WorkersStarted(17.0), (), 17.0),
        signing=frozenset(),
    )
    assert phases(restart) == [0.0, 0.5, 0.0, 1.0, 0.0, 0.0]


def report(host: str, *failures: Failure, free: bool = False) -> tuple[Failed, Join, float]:
    """What a leader hears of a node whose workers failed, or that wants a new round."""
    texts = tuple(json.dumps(as_dict(one)) for one in failures)
    count = len(failures)
    join = Join("none", host, host, f"{host}:1", 1, "default", None, Standing(), "failed", 1, False, 0.0, 9.0)
    return Failed(0, texts, (0.5,) * count, (False,) * count, free=free), join, 100.0


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("rank 3 failed", "failed"),
        (verdict.reason([report("left", failure(3, host="left"))]), "failed"),
        (verdict.reason([report("left")]), "failed"),
        (verdict.reason([report("left", failure(3), free=True)]), "port"),
        (verdict.reason([report("left", free=True)]), "other"),
        (words.joined(["left"]), "joined"),
        (words.joined(list("abcdefgh")), "joined"),
        ("node joined left", "left"),
        ("node h is leaving", "left"),
        ("node h is gone", "lost"),
        ("node g, h fell silent", "lost"),
        ("node h had lost touch and stopped its workers", "lost"),
        ("the moon is full", "other"),
        ("", "other"),
    ],
)
def test_every_reason_has_its_kind(reason: str, kind: str) -> None:
    assert kind_of(reason) == kind
    assert kind in KINDS


def watched(sim: groupsim.GroupSim, rng: random.Random) -> tuple[list[Restart], int]:
    """Run a simulated job with workers that sign, or do not, as they like; return its restarts and how many there were."""
    honest, found, watch, starts = groupsim.step, [], Watch(), 0

    def follow_it(event: Any, effects: Any, signing: frozenset[int] = frozenset()) -> None:
        nonlocal watch
        watch, restart = follow(watch, event, effects, sim.now, signing)
        found.extend([restart] if restart is not None else [])

    def step(group: Any, event: Any) -> Any:
        nonlocal starts
        after, effects = honest(group, event)
        starts += isinstance(event, WorkersStarted)
        for rank in watch.silent:
            if rng.random() < 0.3:
                follow_it(WorkerSigned(rank, rng.choice([sim.now, sim.now - 1, 1e300, 0.0])), ())
        if rng.random() < 0.01:
            follow_it(SignsGivenUp(), ())
        follow_it(event, effects, frozenset(rank for rank in range(group.size) if rng.random() < 0.8))
        return after, effects

    groupsim.step = step
    try:
        sim.run()
    finally:
        groupsim.step = honest
    return found, starts


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), among_others=st.booleans())
def test_every_restart_of_any_job_is_told_once_and_its_phases_are_its_time(seed: int, among_others: bool) -> None:
    sim = (groupsim.random_member if among_others else groupsim.random_run)(seed)
    found, starts = watched(sim, random.Random(seed))
    assert len(found) == max(0, starts - 1)
    assert [one.round for one in found] == sorted({one.round for one in found})
    for before, after in pairwise(found):
        assert before.began_at + before.total_s <= after.began_at + 1e-5
    for restart in found:
        assert min(phases(restart)) >= 0
        assert round(sum(phases(restart)), 6) == restart.total_s
        assert restart.began_at + restart.total_s <= sim.now + 1e-5
        assert among_others or restart.rendezvous_s == 0
