"""The phases of a restart that the watchdog began: the look is a part of deciding, the ladder of stopping."""

from __future__ import annotations

from typing import Any

import pytest
from groupsim import failure

from planaria.agent.model import (
    BlameWorker,
    DeadlinePassed,
    DumpStacks,
    EndTree,
    ScopeExpired,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.phases import PHASES, Restart, Watch, follow

START = (TellRestart(True), StartWorkers(1, 1, "rank 0 failed"))
EXPIRED = ScopeExpired(failure(0, at=20.0), 7, 15)
LOOK = (BlameWorker(EXPIRED.failure, 7), DumpStacks(), SetDeadline(1.0))
LADDER = (SignalWorkers(15), SetDeadline(30.0))


def told(*rows: tuple[Any, tuple[Any, ...], float]) -> list[Restart]:
    watch, found = Watch(), []
    for event, effects, now in rows:
        watch, restart = follow(watch, event, effects, now, frozenset())
        found += [restart] if restart is not None else []
    return found


def phases(restart: Restart) -> list[float]:
    return [getattr(restart, f"{phase}_s") for phase in PHASES]


def test_the_look_is_decided_in_and_the_ladder_is_the_stop() -> None:
    (restart,) = told(
        (WorkersStarted(10.0), (), 10.0),
        (EXPIRED, LOOK, 20.0),
        (DeadlinePassed(21.0), LADDER, 21.0),
        (WorkerExited(1, 21.5, failure(1, -15, at=21.5)), (), 21.5),
        (WorkerExited(0, 51.5, failure(0, -9, at=20.0)), (EndTree(5.0),), 51.5),
        (TreeEnded(52.0), START, 52.0),
        (WorkersStarted(52.25), (), 52.25),
    )
    assert phases(restart) == [0.0, 1.0, 31.0, 0.0, 0.25, 0.0]
    assert (restart.began_at, restart.total_s) == (20.0, 32.25)


def test_workers_that_end_while_they_are_looked_at_are_not_signalled() -> None:
    (restart,) = told(
        (WorkersStarted(10.0), (), 10.0),
        (EXPIRED, LOOK, 20.0),
        (WorkerExited(0, 20.5, failure(0, at=20.5)), (EndTree(5.0),), 20.5),
        (TreeEnded(21.0), START, 21.0),
        (WorkersStarted(21.25), (), 21.25),
    )
    assert phases(restart) == [0.0, 0.5, 0.5, 0.0, 0.25, 0.0]


@pytest.mark.parametrize("first", [20.0, 19.5])
def test_a_scope_that_changes_nothing_is_no_beginning(first: float) -> None:
    (restart,) = told(
        (WorkersStarted(10.0), (), 10.0),
        (WorkerExited(1, first, failure(1, at=first)), LADDER, first),
        (EXPIRED, (), 20.25),
        (WorkerExited(0, 21.0, failure(0, -15, at=21.0)), (EndTree(5.0),), 21.0),
        (TreeEnded(21.0), START, 21.0),
        (WorkersStarted(21.0), (), 21.0),
    )
    assert restart.began_at == first
    assert restart.decide_s == 0.0
