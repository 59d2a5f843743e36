"""Why a rank that has no standby starts cold; the processes are pretended. The words are in test_spares.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pretended_standbys import GB, FakeStandby, Machine, Rig, joining_plan

from planaria.contract.standby import Report
from planaria.errors import SpawnFailed
from planaria.process import standbys as module
from planaria.process.spares import REPLACED, RETRIES, Plan
from planaria.process.standbys import LOOK_S, PAUSE_S, Standbys

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Standby", FakeStandby)


@pytest.fixture
def joining(tmp_path: Path) -> Plan:
    return joining_plan(tmp_path)


def test_ranks_that_fail_again_at_once_are_told_that_theirs_were_promoted() -> None:
    rig = Rig(9 * GB)
    assert [rig.why(rank) for rank in range(4)] == [""] * 4
    assert {rig.why(rank) for rank in range(4)} == {"there is no standby yet: the one before was promoted"}
    rig.keep()
    assert rig.why(0) == "it is not ready yet: the one before was promoted"
    rig.settle()
    assert rig.why(0) == ""


def test_ranks_whose_turn_has_not_come_are_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    assert rig.why(0) == "it is not ready yet"
    assert rig.why(3) == "there is no standby yet: they are started one after the other"


def test_ranks_beyond_the_number_that_was_asked_for_are_told_so_also_when_the_others_were_just_promoted() -> None:
    rig = Rig(9 * GB, 2)
    assert [rig.why(rank) for rank in (0, 1)] == [""] * 2
    assert {rig.why(rank) for rank in (2, 3)} == {"there is no standby: only 2 were asked for"}
    assert rig.why(0) == "there is no standby yet: the one before was promoted"


def test_ranks_for_which_memory_was_short_are_told_how_much_there_was() -> None:
    rig = Rig(3 * GB)
    assert [rig.why(rank) for rank in (0, 1)] == [""] * 2
    for rank in (2, 3):  # the first two of four are to get one: not the third any more
        assert rig.why(rank).startswith("there is no standby: 2 of 4 standbys: each takes 1024 MB, ")


def test_a_rank_whose_standby_gave_its_memory_up_is_told_so() -> None:
    rig = Rig(6 * GB)
    rig.machine.free = 0
    rig.wait(LOOK_S)
    assert rig.count < 4
    short = "3 of 4 standbys: each takes 1024 MB, 0 MB of memory are free, and 1024 MB are left alone"
    assert rig.why(3) == f"there is no standby: {short}"
    assert rig.standbys.overview.why == short
    rig.bury()
    rig.machine.free = 8 * GB
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(3) == f"it is not ready yet: the one before was ended: {short}"


def test_ranks_whose_standbys_were_ended_for_a_commit_are_told_so_until_there_may_be_some_again(joining: Plan) -> None:
    rig = Rig(9 * GB)
    assert rig.why(1) == ""
    rig.standbys.make_room(lambda: None)
    rig.bury()
    rig.plan = joining  # another life, which has learned something else: the pause is still why
    rig.keep()
    ended = "standbys were ended: a commit needed their memory"
    assert {rig.why(rank) for rank in range(4)} == {f"there is no standby: {ended}"}
    assert rig.standbys.overview.why == ended
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(0) == "it is not ready yet: the one before was ended: a commit needed its memory"
    assert rig.standbys.overview.why == ""


def test_ranks_that_were_asked_for_wait_their_turn_when_a_commit_came_before_anybody_was_ready(joining: Plan) -> None:
    rig = Rig(9 * GB, 4, plan=joining)
    rig.standbys.make_room(lambda: None)
    rig.bury()
    rig.machine.run_until(rig.machine.at + PAUSE_S + LOOK_S)
    assert rig.why(3) == "there is no standby yet: they are started one after the other"


def test_a_rank_whose_standby_has_died_is_told_how(monkeypatch: pytest.MonkeyPatch, joining: Plan) -> None:
    words = "ValueError: \x1b[2J" + 1000 * "n"
    monkeypatch.setattr(FakeStandby, "last_words", lambda _self: words)
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 1)
    assert rig.why(0) == f"it is not ready yet: the one before ended: {words[:200]}", "whoever shows it makes it safe"
    (told,) = rig.told
    assert told.startswith("a standby of local rank 0 ended: ValueError: \\x1b[2Jnnn")
    assert len(told) < 1100


def test_a_rank_whose_standby_ran_to_its_end_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    (pid,) = rig.standbys.pids
    rig.standbys.exited(pid, 0)
    ended = "the one before ended: it has come to the end of the program without join()"
    assert rig.why(0) == f"it is not ready yet: {ended}"


def test_a_rank_whose_standby_was_late_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB, plan=joining)
    rig.machine.run_until(rig.machine.at + joining.patience_s + LOOK_S)
    late = f"the one before was ended: it has not come to join() after {joining.patience_s:.0f} s"
    assert rig.why(0) == f"there is no standby yet: {late}"


def test_ranks_whose_standbys_were_given_up_are_told_so() -> None:
    rig = Rig(9 * GB, plan=Plan())
    for _ in range(RETRIES + 1):
        (pid,) = rig.standbys.pids
        rig.standbys.exited(pid, 1)
    assert rig.standbys.pids == frozenset()
    assert (
        rig.why(0)
        == "there is no standby: 4 standbys in a row were of no use: no more are started before the next life"
    )
    rig.standbys.keep(("order of the next life",) * 4, (rig.plan,) * 4)  # type: ignore[arg-type]
    assert rig.why(0) == "it is not ready yet: the one before ended: exit status 1"


@pytest.mark.parametrize("is_ready", [False, True])
def test_a_rank_whose_standby_is_stale_is_told_so_whether_it_was_ready_or_not(
    monkeypatch: pytest.MonkeyPatch, joining: Plan, is_ready: bool
) -> None:
    rig = Rig(9 * GB, plan=joining)
    if is_ready:
        rig.settle()
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "main.py has changed")
    assert rig.why(0) == "main.py has changed"


def test_a_rank_whose_standby_could_not_be_started_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise SpawnFailed("cannot fork a standby of local rank 0: Cannot allocate memory")

    rig = Rig(9 * GB)
    monkeypatch.setattr(module, "Standby", fail)
    assert [rig.why(rank) for rank in range(4)] == [""] * 4
    rig.keep()
    assert rig.why(0) == "there is no standby yet: cannot fork a standby of local rank 0: Cannot allocate memory"


def test_a_rank_whose_standby_was_replaced_is_told_so(joining: Plan) -> None:
    rig = Rig(9 * GB)
    rig.plan = joining
    rig.keep()
    assert rig.why(0) == f"there is no standby yet: {REPLACED.why}"


def test_a_rank_whose_standby_has_another_environment_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "mismatch", lambda _self, _order: "the environment differs in A")
    rig.keep()
    assert rig.why(0) == "there is no standby yet: the one before was replaced: the environment differs in A"


@pytest.mark.parametrize("by", ["a look", "keep"])
def test_a_rank_whose_standby_has_gone_stale_is_told_the_same_until_the_next_is_ready(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "job.py has changed")
    if by == "keep":
        rig.keep()
    else:
        rig.machine.run_until(rig.machine.at + LOOK_S)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "")
    assert rig.why(0) == "job.py has changed", "while it ends"
    for pid in [*rig.standbys._ending]:
        rig.standbys.exited(pid, -9)
    assert rig.why(0) == "job.py has changed", "while the next one is on its way"
    rig.settle()
    assert rig.why(0) == ""


def test_a_rank_whose_standby_was_refused_is_told_so_also_when_it_fails_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "mismatch", lambda _self, _order: "the variable HOME differs")
    assert rig.why(0) == "the variable HOME differs"
    assert rig.why(0) == "there is no standby yet: the one before was refused: the variable HOME differs"


def test_a_rank_whose_standby_is_found_stale_when_it_is_wanted_is_told_so_also_when_it_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(9 * GB)
    monkeypatch.setattr(FakeStandby, "staleness", lambda _self: "job.py has changed")
    assert rig.why(0) == "job.py has changed"
    assert rig.why(0) == "job.py has changed", "a look in between would have said the same"


def test_a_rank_whose_standby_was_unfit_is_told_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeStandby, "finds", Report(reads=(("other", "RANK"),)))
    rig = Rig(9 * GB, plan=Plan(load=(("other", ""),)))
    rig.settle()
    unfit = "the one before was replaced: other is not loaded ahead: it reads RANK when it is imported"
    assert rig.why(0) == f"there is no standby yet: {unfit}"


def test_ranks_of_a_life_that_nobody_expected_are_told_so() -> None:
    """A restart that costs none, as for a port that was taken, may follow on the last one that is allowed."""
    rig = Rig(9 * GB)
    rig.standbys.close()
    assert rig.why(0) == "there is no standby: the life before was to be the last one, which has none"


def test_ranks_that_fail_before_their_life_has_taught_anything_are_told_so() -> None:
    standbys = Standbys(Machine(9 * GB), None, watch=pytest.fail, tell=pytest.fail)  # type: ignore[arg-type]
    why = standbys.take(0, "order").why  # type: ignore[arg-type]
    assert why == "there is no standby: the life before was too short to learn what it loads"
