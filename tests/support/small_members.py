"""A group of two workers on a node among others, at the start of a test, and what its leader tells it."""

from __future__ import annotations

from groupsim import place

from planaria.agent.machine import step
from planaria.agent.membership import (
    MeetOthers,
    ReportStopped,
    RoundStarted,
    RoundStopped,
    RunEnded,
    TakePlace,
)
from planaria.agent.model import (
    RUNNING,
    WAITING,
    Begun,
    Group,
    WorkersStarted,
)


def waiting(**settings):
    fields = {"size": 2, "max_restarts": 3, "grace_s": 30.0, "alone": False, "phase": WAITING}
    group, effects = step(Group(**(fields | settings)), Begun(0.0))
    assert effects == (MeetOthers(), ReportStopped())
    return group


def running(number=0, at=0.0, master_port=4711, **settings):
    group, effects = step(waiting(**settings), RoundStarted(place(number, master_port=master_port), at))
    assert effects == (TakePlace(place(number, master_port=master_port)),)
    group, effects = step(group, WorkersStarted(at, master_port))
    assert (group.phase, effects) == (RUNNING, ())
    return group


def stop(at=50.0, grace_s=0.0, **more):
    return RoundStopped(1, "node b joined", grace_s, at, **more)


def ended(kind="failed", *failures):
    return RunEnded(kind, "told by the leader", failures, 2, 60.0)
