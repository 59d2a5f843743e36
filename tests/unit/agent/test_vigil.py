"""The watch over progress: who is called, what is told, when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vigil_rig import FIRST, FLOOR_S, Rig, rig

from planaria.agent.charge import MOST_FOLDERS
from planaria.agent.examiner import Found
from planaria.agent.model import Group
from planaria.contract.control import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["rig"]


def test_a_hang_is_examined_told_and_with_report_nothing_is_done(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    (request, _) = here.asked[0]
    assert request.folder == "/logs/evidence/19700101-000000-round4-hang1"
    assert [(one.rank, one.step, one.still) for one, _, _ in request.subjects] == [(2, 9, True), (3, 9, True)]
    assert not here.said, "nobody is named before somebody has looked"
    here.find()
    assert here.said == ["rank 3 hangs at x; evidence in y"]
    assert here.names() == ["planaria.hang"]
    told = here.events[0][1]
    assert (told["round"], told["ranks"], told["waiting"], told["phase"]) == (4, [3], [2], "step")
    assert FLOOR_S < told["gap_s"] < FLOOR_S + 0.2
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]
    assert "timestamp" not in told, "an event has one of its own"
    ago_ms = -here.vigil.hangs[0]["timestamp"]  # type: ignore[operator]
    assert 0 < ago_ms < 1000, "when it was called, not when it was told"
    assert (here.posted, here.settled) == ([], 1)
    here.pass_s(60)
    assert len(here.asked) == 1


def test_while_the_console_takes_nothing_nobody_is_late(rig: Callable[..., Rig]) -> None:
    """Lines that speak of progress wait in pipes, and a rank that cannot write holds up the others."""
    here = rig()
    here.held_at = here.now
    here.pass_s(10 * FLOOR_S)
    assert here.asked == []
    here.held_at = float("inf")
    here.pass_s(FLOOR_S + 1.0)
    assert len(here.asked) == 1


def test_what_goes_on_while_it_is_examined_is_told_and_left_alone(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(1, Progress(10))
    here.find()
    assert here.posted == []
    assert here.said[0].endswith("; it goes on meanwhile")
    assert here.vigil.seen()["hang"] is None


def test_one_rank_that_goes_on_while_another_is_examined_saves_only_itself(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(0, Progress(10))
    here.find()
    assert [event.failure.rank for event in here.posted] == [3]
    assert "meanwhile" not in here.said[0]
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]


def test_a_rank_that_stood_still_with_one_that_went_on_is_judged_anew(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.progressed(1, Progress(10))
    here.find()
    for step in range(11, 60):
        here.pass_s(0.1)
        here.vigil.progressed(1, Progress(step))
    (request, _) = here.asked[-1]
    assert len(here.asked) == 2
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2]


def test_a_rank_that_ends_while_it_is_examined_did_not_hang(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.exited(1)
    here.find()
    assert here.posted == []
    assert here.said[0].endswith("; it has ended meanwhile")
    assert here.vigil.seen()["hang"] is None


def test_a_hang_that_is_over_is_told_when_its_rank_goes_on(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.vigil.progressed(0, Progress(10))
    assert here.names() == ["planaria.hang"]
    here.vigil.progressed(1, Progress(10))
    assert here.names() == ["planaria.hang", "planaria.hang.over"]
    assert here.vigil.seen()["hang"] is None
    assert len(here.vigil.hangs) == 1


def test_of_two_hangs_each_is_over_when_its_own_rank_goes_on(rig: Callable[..., Rig]) -> None:
    here = rig()
    for step in range(10, 50):
        here.pass_s(0.1)
        here.vigil.progressed(0, Progress(step))
    here.find()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True))
    here.vigil.progressed(1, Progress(10))
    assert [told["rank"] for name, told in here.events if name == "planaria.hang.over"] == [3]
    assert here.vigil.seen()["hang"] == here.vigil.hangs[1]
    here.vigil.progressed(0, Progress(50))
    assert here.vigil.seen()["hang"] is None
    assert [told["rank"] for name, told in here.events if name == "planaria.hang.over"] == [3, 2]


def test_of_two_hangs_the_older_is_seen_while_it_lasts(rig: Callable[..., Rig]) -> None:
    here = rig()
    for step in range(10, 50):
        here.pass_s(0.1)
        here.vigil.progressed(0, Progress(step))
    here.find()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found((FIRST,), (), "hangs", "rank 2 hangs", is_kept=True))
    here.vigil.progressed(0, Progress(50))
    assert here.vigil.seen()["hang"] == here.vigil.hangs[0]


def test_a_life_that_ends_ends_the_examination(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.end()
    assert here.cancelled == 1
    here.pass_s(60)
    assert len(here.asked) == 1


def test_every_hang_has_a_folder_of_its_own(rig: Callable[..., Rig]) -> None:
    here = rig()
    for first in (10, 20):
        here.pass_s(FLOOR_S + 0.5)
        here.find()
        here.train(5, first=first)
    here.pass_s(20 * FLOOR_S)
    folders = [request.folder for request, _ in here.asked]
    assert len(folders) > 1
    assert len(set(folders)) == len(folders)


def test_a_folder_that_is_there_is_named_even_where_nobody_answered(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find(Found(is_kept=True))
    folder = here.asked[0][0].folder
    assert here.vigil.hangs[0]["evidence"] == folder
    assert here.said[0].endswith(f"nobody could look at it in time; evidence in {folder}")


def test_a_group_that_stops_is_not_judged(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.group = Group(size=2, max_restarts=3, grace_s=1.0, phase="draining")
    here.pass_s(60)
    assert here.asked == []


def test_an_agent_that_was_stopped_itself_calls_nobody(rig: Callable[..., Rig]) -> None:
    for report in (None, 0, 1):
        here = rig()
        here.now += 500
        if report is not None:  # it waited in the socket, and is read before timers are looked at
            here.vigil.progressed(report, Progress(10))
        here.loop.run_once(0)
        assert here.asked == []
        here.pass_s(FLOOR_S + 0.5)
        assert len(here.asked) == 1


@pytest.mark.parametrize("sign", ["report", "phase"])
def test_a_pause_of_the_agents_teaches_nothing_also_while_a_hang_is_told(rig: Callable[..., Rig], sign: str) -> None:
    here = rig()
    here.pass_s(FLOOR_S + 0.5)
    here.find()
    here.now += 500
    for rank in (0, 1):
        if sign == "phase":
            here.vigil.entered(rank, "")
        here.vigil.progressed(rank, Progress(10))
    here.loop.run_once(0)
    here.train(5, first=11)
    here.pass_s(5 * FLOOR_S)
    assert len(here.asked) == 2, "what it learned is the gap of those 2.5 s"


def test_evidence_has_an_end_and_hangs_are_told_all_the_same(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil._called = MOST_FOLDERS
    here.pass_s(FLOOR_S + 1)
    assert (here.asked, here.names()) == ([], ["planaria.hang"])
    assert here.said[0].endswith("nobody looked at it: there are 64 folders of evidence already")


def test_phases_and_stragglers_are_seen(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil.entered(1, "evaluation")
    for step in range(10, 130):
        here.pass_s(0.1)
        for rank in (0, 1):
            here.vigil.progressed(rank, Progress(step, (("busy_s", 0.05 + rank * 0.05),)))
    seen = here.vigil.seen()
    assert seen["phases"] == {0: "step", 1: "evaluation"}
    assert seen["stragglers"] == [{"rank": 3, "host": "n", "slower_by": 2.0}]
    assert here.names() == ["planaria.straggler"]


def test_that_no_rank_is_slower_any_more_is_told_once(rig: Callable[..., Rig]) -> None:
    here = rig()
    for step in range(10, 500):
        here.pass_s(0.1)
        for rank in (0, 1):
            here.vigil.progressed(rank, Progress(step, (("busy_s", 0.05 + rank * 0.05 * (step < 200)),)))
    assert [event["ranks"] for _, event in here.events] == [[{"rank": 3, "host": "n", "slower_by": 2.0}], []]
    assert here.vigil.seen()["stragglers"] == []


def test_samples_that_are_no_number_do_not_move(rig: Callable[..., Rig]) -> None:
    here = rig()
    for _ in range(40):
        here.pass_s(0.1)
        for rank in (0, 1):
            here.vigil.progressed(rank, Progress(9, (("samples", float("nan")),)))
    assert len(here.asked) == 1


def test_a_rank_that_has_made_all_its_steps_is_not_judged_until_it_makes_another(rig: Callable[..., Rig]) -> None:
    here = rig("restart")
    for rank in (0, 1):
        here.vigil.finished(rank)
    here.pass_s(20 * FLOOR_S)
    assert here.asked == []
    here.train(1, first=10)
    here.pass_s(FLOOR_S + 0.5)
    here.vigil.finished(1)
    here.find()
    assert (len(here.asked), here.posted) == (1, [])


def test_a_rank_whose_connection_is_gone_is_not_judged_until_it_reports_again(rig: Callable[..., Rig]) -> None:
    here = rig()
    here.vigil.speaks(1)
    here.control.speakers = frozenset({0})
    here.pass_s(FLOOR_S + 0.5)
    ((request, _),) = here.asked
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2]
    here.find()
    here.train(1, first=10)
    here.pass_s(10 * FLOOR_S)
    (request, _) = here.asked[-1]
    assert [one.rank for one, _, _ in request.subjects if one.still] == [2, 3]
