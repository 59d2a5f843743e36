"""A node that is checked before it joins."""

from __future__ import annotations

import os

import pytest

from planaria.agent.machine import step
from planaria.agent.membership import GoodbyeSaid, LeaveRun, MeetOthers, ReportStopped
from planaria.agent.model import (
    CHECKING,
    DONE,
    FINISHING,
    STARTING,
    WAITING,
    Begun,
    CheckNode,
    DeadlinePassed,
    EndRequested,
    EndTree,
    Finish,
    Group,
    Job,
    LauncherDied,
    Meeting,
    NodeChecked,
    SetDeadline,
    Shelter,
    StartWorkers,
    StopRequested,
    TellSetAside,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.preflight import doctor_argv
from planaria.agent.quarantine import MOST_SETBACKS, cooldown_s
from planaria.base.value import replace
from planaria.errors import InvalidTransition
from planaria.process.model import Command

FULL = "disk.space: the disk is full"


def checking(*, alone: bool = False, **changes: object) -> Group:
    group = Group(size=2, max_restarts=3, grace_s=30.0, phase=CHECKING, alone=alone, has_met=False, cooldown_s=60.0)
    return replace(group, **changes)


def test_a_node_that_passes_meets_the_others() -> None:
    group, effects = step(checking(), Begun(0.0))
    assert effects == (CheckNode(),)
    group, effects = step(group, NodeChecked("", 1.0))
    assert (group.phase, group.has_met) == (WAITING, True)
    assert effects == (MeetOthers(), ReportStopped())


def test_a_node_alone_that_passes_starts_its_workers() -> None:
    group, effects = step(checking(alone=True), NodeChecked("", 1.0))
    assert (group.phase, effects) == (STARTING, (StartWorkers(0, 0, ""),))
    assert step(group, WorkersStarted(1.1))[0].phase == "running"


def test_a_node_that_fails_is_set_aside_checked_again_and_joins_when_it_passes() -> None:
    group, effects = step(checking(), NodeChecked(FULL, 1.0))
    assert effects == (TellSetAside(FULL, 60.0), SetDeadline(60.0))
    assert (group.phase, group.set_aside) == (CHECKING, FULL)
    group, effects = step(group, DeadlinePassed(61.0))
    assert effects == (CheckNode(),)
    group, effects = step(group, NodeChecked(FULL, 61.0))
    assert effects[1] == SetDeadline(120.0)
    group, _ = step(group, DeadlinePassed(181.0))
    group, effects = step(group, NodeChecked("", 181.0))
    assert (group.phase, group.set_aside, group.setbacks) == (WAITING, "", 0)


def test_the_cool_down_doubles_up_to_ten_minutes_and_one_that_was_longer_stays() -> None:
    assert [cooldown_s(60.0, n) for n in range(1, 7)] == [60, 120, 240, 480, 600, 600]
    assert cooldown_s(3600.0, 5) == 3600.0
    assert cooldown_s(1.0, 10_000) == 600.0


@pytest.mark.parametrize(("alone", "setbacks"), [(True, 0), (False, MOST_SETBACKS - 1)])
def test_a_node_alone_or_one_that_fails_too_often_ends_with_71(alone: bool, setbacks: int) -> None:
    group, effects = step(checking(alone=alone, setbacks=setbacks), NodeChecked(FULL, 1.0))
    assert (group.phase, effects) == (FINISHING, (EndTree(5.0),))
    group, (finish,) = step(group, TreeEnded(1.1))
    assert isinstance(finish, Finish)
    assert (finish.outcome.kind, finish.outcome.status) == ("failed", 71)
    assert FULL in finish.outcome.explanation


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        (StopRequested(15, 2.0), "signal", 143),
        (EndRequested("its owner asked", 3.0, 2.0), "stopped", 143),
        (LauncherDied(2.0), "abandoned", 137),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_whoever_wants_the_end_gets_it_at_once_and_nobody_is_told_goodbye(
    event: StopRequested | EndRequested | LauncherDied, kind: str, status: int, alone: bool
) -> None:
    group, _ = step(checking(alone=alone), event)
    group, late = step(group, NodeChecked(FULL, 2.0))
    assert late == ()
    group, effects = step(group, TreeEnded(2.1))
    assert group.phase == DONE
    assert not any(isinstance(effect, LeaveRun) for effect in effects)
    [finish] = [effect for effect in effects if isinstance(effect, Finish)]
    assert (finish.outcome.kind, finish.outcome.status) == (kind, status)


@pytest.mark.parametrize("event", [WorkersStarted(1.0), WorkerExited(0, 1.0), TreeEnded(1.0), GoodbyeSaid()])
def test_what_cannot_happen_to_a_node_that_is_being_checked_is_a_bug(event: object) -> None:
    with pytest.raises(InvalidTransition):
        step(checking(), event)  # type: ignore[arg-type]


JOB = Job(Command("script", "a.py", ()), 2, "job7", "default", 3, 30.0, (15,), {}, preflight=("disk", "ports"))


def flags(**changes: object) -> list[str]:
    argv = doctor_argv(replace(JOB, **changes))
    assert argv[5:7] == ["--json", f"--parent={os.getpid()}"]
    return argv[7:]


def test_the_doctor_is_asked_about_what_the_job_would_use() -> None:
    assert flags() == ["--checks=disk,ports", "--nproc-per-node=2"]
    assert "--snapshot-dir=/data" in flags(shelter=Shelter("/data"))
    meeting = Meeting("embedded", ("n0:29400", "[::1]:5"), "job7", 1, 2)
    assert flags(meeting=meeting)[2:] == ["--rdzv-endpoint=n0:29400,[::1]:5", "--rdzv-backend=c10d"]
    assert flags(meeting=replace(meeting, backend="static"))[2] == "--rdzv-endpoint=n0:29401,[::1]:6"
    assert flags(meeting=replace(meeting, options={"tls_cert": "c"}))[3] == "--rdzv-backend=etcd"
    assert flags(meeting=replace(meeting, backend="kubernetes"))[2:] == []
