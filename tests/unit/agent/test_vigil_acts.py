"""What the watch over progress does about a hang, and when it does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vigil_rig import FIRST, FLOOR_S, LIFE, Rig, rig

from planaria.agent import charge
from planaria.agent import vigil as room
from planaria.agent.charge import STOPPED_S, WRITING_S
from planaria.agent.examiner import Found
from planaria.agent.model import EndRequested, ScopeExpired
from planaria.base.value import replace
from planaria.contract.control import Progress
from planaria.contract.failure import HANG

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rig"]


def test_restart_blames_the_suspect_and_stop_ends_the_job(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    (event,) = here.posted
    assert isinstance(event, ScopeExpired)
    failure = event.failure
    assert (failure.rank, failure.type, failure.where, failure.kind) == (3, HANG, "step", "watchdog")
    assert failure.message == "hangs at x; evidence in y"
    here = rig("stop")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    (event,) = here.posted
    assert isinstance(event, EndRequested)
    assert event.reason == "rank 3 on n hangs at x; evidence in y (--hang-policy=stop)"


def test_one_who_waits_for_another_node_gives_it_a_floor_of_time(rig: Callable[..., Rig]) -> None:
    for found in (
        Found((), (FIRST, FIRST + 1), "hangs", "ranks 2, 3 wait", elsewhere=True, is_kept=True),
        Found((FIRST, FIRST + 1), (), "hangs", "ranks 2, 3 hang", unclear=True, is_kept=True),
    ):
        here = rig("restart")
        here.pass_s(FLOOR_S + 0.5)
        here.find(found)
        here.pass_s(FLOOR_S + WRITING_S - 0.5)  # the other node acts after so long at the latest, once it has looked
        assert here.posted == []
        here.pass_s(1.0)
        assert [event.failure.rank for event in here.posted] == [2]


def test_one_that_has_the_rank_lets_the_others_look_before_all_end(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    for goes_on in (False, True):
        here = rig("restart")
        monkeypatch.setattr(charge, "OTHERS_S", 6.0)
        here.pass_s(FLOOR_S + 0.1)
        here.find()
        here.pass_s(5.0)
        assert here.posted == []
        if goes_on:
            here.vigil.progressed(1, Progress(10))
        here.pass_s(1.5)
        assert [event.failure.rank for event in here.posted] == [3] * (not goes_on)


def test_what_ends_workers_waits_for_those_who_look_at_them_but_not_for_long(rig: Callable[..., Rig]) -> None:
    here, done = rig("restart"), list[str]()
    here.vigil.once_looked(lambda: done.append("at once"))
    assert done.pop() == "at once"
    here.pass_s(FLOOR_S + 0.5)
    for name in ("stop", "end"):
        here.vigil.once_looked(lambda name=name: done.append(name))  # type: ignore[misc]
    here.find(writes=True)
    assert done == []
    here.written[-1]()
    assert done == ["stop", "end"]

    for how in ("time", "the end"):
        here, done = rig("restart"), []
        here.pass_s(FLOOR_S + 0.5)
        here.vigil.once_looked(lambda: done.append("stop"))  # noqa: B023  it is called in this turn
        here.pass_s(STOPPED_S - 0.5)
        assert done == []
        if how == "time":
            here.pass_s(1.0)
        else:
            here.vigil.end()
        assert (done, here.cancelled) == (["stop"], int(how != "time")), how


def test_of_several_suspects_those_that_go_on_are_left_out(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(0, Progress(10))
    here.find(Found((FIRST, FIRST + 1), (), "hangs at x", "ranks 2, 3 hang", is_kept=True))
    assert here.said == ["ranks 2, 3 hang; rank 2 goes on meanwhile"]
    (event,) = here.posted
    message = event.failure.message
    assert event.failure.rank == 3
    assert message.startswith("hangs in phase step: no sign for 2.0 s; evidence in "), "x was the other one's place"


def test_a_rank_that_never_reports_is_blamed_until_those_that_wait_for_it_go_on(rig: Callable[..., Rig]) -> None:
    for goes_on in (False, True):
        here = rig("restart")
        here.vigil.finished(1)  # as good as one that never reports
        here.pass_s(FLOOR_S + 0.5)
        here.find(writes=True)
        if goes_on:
            here.vigil.progressed(0, Progress(10))
        here.written[-1]()
        here.pass_s(0.1)
        assert [event.failure.rank for event in here.posted] == [3] * (not goes_on)
        assert (here.vigil.seen()["hang"] is None) is goes_on


@pytest.mark.parametrize("policy", ["restart", "stop"])
@pytest.mark.parametrize("how", ["exits", "hangs up"])
def test_a_suspect_that_ends_while_its_evidence_is_written_is_not_acted_on(
    rig: Callable[..., Rig], policy: str, how: str
) -> None:
    here = rig(policy)
    here.vigil.speaks(1)
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    if how == "exits":
        here.vigil.exited(1)
    else:
        here.control.speakers = frozenset({0})
        here.pass_s(FLOOR_S / 2)
    did = "has ended" if how == "exits" else "has closed its connection"
    assert here.said[1:] == [f"rank 3 {did}: what looked like a hang was none, or is over"]
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    assert here.vigil.seen()["hang"] is None
    here.written[-1]()
    here.pass_s(1)
    assert here.posted == []
    here.pass_s(FLOOR_S + 0.5)
    assert [one.rank for one, _, _ in here.asked[-1][0].subjects if one.still] == [2], "it stands still yet"
    assert len(here.asked) == 2


def test_a_suspect_that_never_reports_and_ends_is_not_acted_on(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.vigil.finished(1)  # as good as one that never reports
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.vigil.exited(1)
    here.written[-1]()
    here.pass_s(1)
    assert here.posted == []
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    here.pass_s(FLOOR_S + 0.5)
    assert len(here.asked) == 2


def test_what_ranks_do_in_a_life_that_is_being_ended_is_no_news(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.group = replace(here.group, phase="stopping")
    here.vigil.progressed(1, Progress(10))
    here.vigil.exited(1)
    assert (len(here.said), here.names()) == (1, ["planaria.hang"])


@pytest.mark.parametrize("is_alone", [True, False])
def test_nobody_to_look_and_no_answer_are_no_reason_not_to_act_once_other_nodes_had_their_time(
    rig: Callable[..., Rig], is_alone: bool
) -> None:
    for failing in (True, False):
        here = rig("restart")
        here.life = replace(LIFE, world_size=2) if is_alone else LIFE
        here.failing = failing
        here.pass_s(FLOOR_S + 1)
        if not failing:
            here.find(Found())
        assert here.said == ["rank 2 on n hangs in phase step: no sign for 2.0 s; nobody could look at it in time"]
        assert here.vigil.hangs[0]["evidence"] is None
        if not is_alone:
            here.pass_s(FLOOR_S + WRITING_S - 1.5)
            assert here.posted == []
            here.pass_s(2)
        assert [event.failure.rank for event in here.posted] == [2]


def test_a_hang_is_told_before_its_evidence_is_written_and_acted_on_after_that(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    assert (len(here.said), here.posted) == (1, [])
    here.written[-1]()
    here.pass_s(0.1)
    assert len(here.posted) == 1
    here.pass_s(2 * WRITING_S)
    assert len(here.posted) == 1


def test_the_evidence_of_a_hang_has_all_its_time_whenever_the_one_before_was(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.posted.clear()
    here.vigil.progressed(0, Progress(10))  # rank 3 is told of, and stands still as before
    here.pass_s(3 * FLOOR_S)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True), writes=True)
    here.pass_s(WRITING_S - 1)
    assert here.posted == []
    here.pass_s(1.5)
    assert len(here.posted) == 1


def test_evidence_that_takes_too_long_is_not_waited_for_and_neither_is_it_once_the_rank_goes_on(
    rig: Callable[..., Rig],
) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.pass_s(WRITING_S + 0.5)
    assert len(here.posted) == 1
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.find(writes=True)
    here.vigil.progressed(1, Progress(10))
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    here.written[-1]()
    here.pass_s(2 * WRITING_S)
    assert here.posted == []


def test_a_stopped_rank_that_we_let_go_on_to_look_at_it_is_ended_all_the_same(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.proc, "state", lambda _pid: "T")
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    assert here.asked[0][0].resume
    here.vigil.progressed(1, Progress(10))
    here.find(writes=True)
    here.vigil.progressed(1, Progress(11))
    here.written[-1]()
    here.pass_s(0.1)
    assert [event.failure.rank for event in here.posted] == [3]


def test_a_stopped_rank_that_we_let_go_on_teaches_nothing(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = rig("restart")
    monkeypatch.setattr(room.proc, "state", lambda _pid: "T")
    here.pass_s(3 * FLOOR_S)
    for rank in (0, 1):
        here.vigil.progressed(rank, Progress(10))
        here.vigil.entered(rank, "")
    here.find()
    here.group = replace(here.group, phase="stopping")
    here.pass_s(2 * FLOOR_S)
    here.train(1, first=11)
    here.group = replace(here.group, phase="running")
    here.vigil.begin(here.workers.seen)
    here.train(5)
    here.pass_s(FLOOR_S + 0.5)
    assert len(here.asked) == 2, "what is usual is what it was"


def test_tools_that_stop_a_process_are_only_for_those_that_are_about_to_be_ended(rig: Callable[..., Rig]) -> None:
    for policy, trace in (("report", False), ("restart", True), ("stop", True)):
        here = rig(policy)
        here.pass_s(FLOOR_S + 0.5)
        assert here.asked[0][0].trace is trace
