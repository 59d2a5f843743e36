from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from clocks import FakeLoop

from planaria.agent.model import Group, Life
from planaria.agent.reserve import EMPTY_LOOKS, LONGEST_LOOK_S, LOOK_S, Reserve, Tree, tree_of
from planaria.base.value import replace
from planaria.contract.blackbox import Join, Learned
from planaria.contract.standby import JOIN, PRELOAD
from planaria.process.model import Command
from planaria.process.standbys import Seen, StandbysSeen

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.process.spares import Plan

FIRST = Group(size=2, max_restarts=3, grace_s=30.0)
SECOND = replace(FIRST, restarts=1, lives=(Life(0, 0, "", 1.0, ()),))
SOME = Learned((("os", "/lib/os.py"), ("torch", "/lib/site-packages/torch.py")))
MORE = Learned((*SOME.files, ("numpy", "/lib/site-packages/numpy.py")))
OTHER = Learned((("os", "/lib/os.py"), ("json", "/lib/json.py")))


class FakeWorkers:
    def __init__(self) -> None:
        self.learned = Learned()
        self.promoted: tuple[int, ...] = ()
        self.cold: dict[int, str] = {}
        self.now: tuple[Any, ...] = ("order 0", "order 1")

    def orders(self) -> tuple[Any, ...]:
        return self.now


class FakeStandbys:
    def __init__(self) -> None:
        self.kept: list[tuple[str, ...]] = []
        self.modes: list[list[str]] = []
        self.plans: tuple[Plan, ...] = ()
        self.pids = frozenset({7, 8})
        self.closed = 0
        self.ended: list[int] = []
        self.lent: list[int] = []
        self.overview = StandbysSeen((Seen(0, 7, True),), "few")

    def lend(self, local_rank: int) -> None:
        self.lent.append(local_rank)

    def make_room(self, then: Any) -> bool:
        then()
        return True

    def keep(self, orders: tuple[Any, ...], plans: tuple[Plan, ...]) -> None:
        assert orders == ("order 0", "order 1")
        self.kept.append(tuple(name for name, _ in plans[0].load))
        self.modes.append([plan.mode for plan in plans])
        self.plans = plans

    def exited(self, pid: int, status: int) -> bool:
        self.ended.append(status)
        return pid in self.pids

    def close(self) -> None:
        self.closed += 1


class Rig:
    """A reserve with everything it talks to."""

    def __init__(self, tree: Tree | None = None) -> None:
        self.loop = FakeLoop()
        self.workers = FakeWorkers()
        self.standbys = FakeStandbys()
        self.told: list[str] = []
        tree = tree or Tree(("/job",))
        self.reserve = Reserve(self.loop, self.workers, self.standbys, tree, self.told.append)  # type: ignore[arg-type]

    def pass_s(self, seconds: float) -> int:
        return self.loop.run_until(self.loop.at + seconds)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nothing_is_kept_before_the_list_of_modules_stands_still(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = SOME
    rig.pass_s(LOOK_S)
    rig.workers.learned = MORE
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == []
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == [("os", "torch", "numpy")]


def test_progress_says_that_the_beginning_is_over_once_a_life(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = SOME
    rig.reserve.progressed()
    rig.reserve.progressed()
    assert rig.standbys.kept == [("os", "torch")]
    assert len(rig.loop.pending()) == 1


def test_progress_counts_also_after_a_list_that_stood_still_in_the_middle_of_an_import(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = SOME
    rig.pass_s(2 * LOOK_S)
    rig.workers.learned = MORE
    rig.reserve.progressed()
    rig.reserve.progressed()
    assert rig.standbys.kept == [("os", "torch"), ("os", "torch", "numpy")]
    assert len(rig.loop.pending()) == 1


def test_workers_that_have_told_of_nothing_yet_do_not_stand_still(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.pass_s(2 * LOOK_S)
    rig.workers.learned = SOME
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == []
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == [("os", "torch")]


def test_a_program_that_imports_nothing_has_standbys_in_the_end(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.pass_s((EMPTY_LOOKS - 1) * LOOK_S)
    assert rig.standbys.kept == []
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == [()]


def joined(learned: Learned, *local_ranks: int, main: str = "") -> Learned:
    return replace(learned, joins=tuple(Join(local_rank, 1.0, main) for local_rank in local_ranks))


def test_a_program_that_joins_has_to_stand_still_too_since_what_it_loads_after_that_is_loaded_ahead(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = joined(SOME, 0, 1)
    rig.pass_s(LOOK_S)
    rig.workers.learned = joined(MORE, 0, 1)
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == []
    rig.pass_s(LOOK_S)
    assert rig.standbys.modes == [[JOIN, JOIN]]
    assert rig.standbys.kept == [("os", "torch", "numpy")]


def test_only_those_ranks_that_have_joined_in_the_last_life_run_the_program_ahead(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = joined(SOME, 0, 1)
    rig.reserve.progressed()
    assert rig.standbys.modes == [[JOIN, JOIN]]
    rig.reserve.ended()
    rig.reserve.began(SECOND)
    rig.workers.learned = joined(SOME, 1)
    rig.pass_s(LOOK_S)
    assert rig.standbys.modes[-1] == [JOIN, JOIN], "the first may be about to join"
    rig.reserve.progressed()
    assert rig.standbys.modes[-1] == [JOIN, JOIN]
    rig.pass_s(2 * LOOK_S)
    assert rig.standbys.modes[-1] == [PRELOAD, JOIN]


def life_of(rig: Rig, group: Group, learned: Learned) -> None:
    rig.reserve.began(group)
    rig.workers.learned = learned
    rig.reserve.progressed()
    rig.reserve.ended()


@pytest.mark.parametrize("kind", ["script", "module"])
def test_a_program_that_was_replaced_has_taught_nothing(tmp_path: Path, kind: str) -> None:
    main = tmp_path / "train.py"
    main.write_text("join()")
    rig = Rig(Tree((str(tmp_path),), str(main) if kind == "script" else ""))
    life_of(rig, FIRST, joined(MORE, 0, 1, main=str(main)))
    assert rig.standbys.modes == [[JOIN, JOIN]]
    main.write_text("train()")
    rig.reserve.began(SECOND)
    rig.workers.learned = Learned()
    rig.pass_s(LOOK_S)
    assert len(rig.standbys.kept) == 1, "nobody knows yet what it loads"
    rig.workers.learned = SOME
    rig.pass_s(2 * LOOK_S)
    assert rig.standbys.kept[1:] == [("os", "torch")]
    assert rig.standbys.modes[-1] == [PRELOAD, PRELOAD]


def test_a_plan_knows_the_files_of_the_program_as_they_were_in_the_life_that_joined(tmp_path: Path) -> None:
    for name in ("train.py", "model.py"):
        (tmp_path / name).write_text("1")
    files = tuple(str(tmp_path / name) for name in ("train.py", "model.py"))
    rig = Rig(Tree((str(tmp_path),), files[0]))
    life_of(rig, FIRST, joined(Learned((*SOME.files, ("model", files[1]))), 0, 1, main=files[0]))
    before = rig.standbys.plans[0].program
    assert [file for file, _ in before] == [*files]
    (tmp_path / "model.py").write_text("22")
    rig.reserve.began(SECOND)
    rig.workers.learned = SOME
    rig.pass_s(LOOK_S)
    assert rig.standbys.plans[0].program == before, "the standbys see by themselves that it is another program"
    rig.workers.learned = Learned((*SOME.files, ("model", files[1])))
    rig.reserve.progressed()
    assert rig.standbys.modes[-1] == [PRELOAD, PRELOAD]


def test_looks_become_rare_and_what_is_loaded_later_counts(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = SOME
    rig.pass_s(600.0)
    assert rig.pass_s(10 * LONGEST_LOOK_S) == 10
    rig.workers.learned = MORE
    rig.pass_s(LONGEST_LOOK_S + LOOK_S)
    assert rig.standbys.kept[-1] == ("os", "torch", "numpy")


def test_a_young_life_has_standbys_for_what_the_one_before_had_loaded(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = MORE
    rig.pass_s(2 * LOOK_S)
    rig.reserve.ended()
    rig.workers.learned = SOME
    rig.reserve.began(SECOND)
    rig.standbys.kept.clear()
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == [("os", "torch", "numpy")]


@pytest.mark.parametrize("settled", [True, False])
def test_a_life_that_was_too_short_does_not_replace_what_is_known(rig: Rig, settled: bool) -> None:
    rig.reserve.began(FIRST)
    rig.workers.learned = MORE
    rig.reserve.ended()
    rig.reserve.began(SECOND)
    rig.workers.learned = OTHER
    if settled:
        rig.reserve.progressed()
    rig.reserve.ended()
    rig.reserve.began(SECOND)
    rig.workers.learned = Learned((("os", "/lib/os.py"),))
    rig.standbys.kept.clear()
    rig.pass_s(LOOK_S)
    assert rig.standbys.kept == [("os", "json") if settled else ("os", "torch", "numpy")]


def test_between_lives_nobody_looks(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.reserve.ended()
    rig.reserve.progressed()
    assert rig.pass_s(100.0) == 0
    assert rig.standbys.kept == []


def test_a_program_without_a_start_up_file_has_nobody_standing_by(rig: Rig) -> None:
    rig.workers.now = ()
    rig.reserve.began(FIRST)
    rig.pass_s(100.0)
    assert rig.standbys.kept == []


@pytest.mark.parametrize(
    ("group", "closed"),
    [(FIRST, 0), (replace(FIRST, restarts=3), 1), (replace(FIRST, restarts=3, alone=False), 0)],
)
def test_the_last_life_for_certain_has_no_standbys(rig: Rig, group: Group, closed: int) -> None:
    rig.reserve.began(group)
    assert rig.standbys.closed == closed
    assert rig.reserve.pids == (frozenset() if closed else {7, 8})
    assert len(rig.loop.pending()) == 1 - closed


def test_it_is_told_who_was_promoted_after_the_first_life(rig: Rig) -> None:
    rig.workers.cold = {0: "there is no standby", 1: "there is no standby"}
    rig.reserve.began(FIRST)
    assert rig.told == []
    rig.workers.promoted, rig.workers.cold = (0,), {1: "it is not ready yet"}
    rig.reserve.began(SECOND)
    assert rig.told == ["promoted 1 standby; local rank 1 starts cold: it is not ready yet"]


def test_after_the_end_nothing_is_kept_or_spared_and_ends_are_still_heard(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    rig.reserve.close()
    rig.reserve.close()
    rig.reserve.began(SECOND)
    rig.reserve.progressed()
    assert (rig.standbys.closed, rig.reserve.pids, rig.standbys.kept, rig.told) == (1, frozenset(), [], [])
    assert rig.pass_s(100.0) == 0
    assert (rig.reserve.exited(7, -9), rig.reserve.exited(9, 0)) == (True, False)
    assert rig.standbys.ended == [-9, 0]


def test_it_is_said_why_nobody_stands_by_yet_or_any_more(rig: Rig) -> None:
    rig.reserve.began(FIRST)
    assert rig.reserve.overview == StandbysSeen(why="the workers are still loading")
    rig.reserve.progressed()
    assert rig.reserve.overview == rig.standbys.overview
    rig.reserve.close()
    assert rig.reserve.overview == StandbysSeen(why="there will be no other life")


def test_the_memory_of_a_worker_that_asked_for_some_is_lent_to_who_stands_by_for_it(rig: Rig) -> None:
    rig.reserve.lend(1)
    assert rig.standbys.lent == [1]


def test_the_users_tree_is_the_folder_of_the_script_where_it_leads_and_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").touch()
    (tmp_path / "here").mkdir()
    os.symlink("../real/a.py", tmp_path / "here" / "a.py")
    monkeypatch.chdir(tmp_path)
    root = str(tmp_path.resolve())
    assert tree_of(Command("script", "here/a.py")) == Tree((f"{root}/here", f"{root}/real", root), f"{root}/real/a.py")
    assert tree_of(Command("module", "here.a")) == Tree((root,))
