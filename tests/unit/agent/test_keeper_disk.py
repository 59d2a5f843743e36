"""The keeper and the directory that commits are written to."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hanging_disk import HangingDisk
from keeper_rig import TIMEOUT_S, Rig

from planaria.archive.patience import FIRST_S
from planaria.archive.shelf import Shelf
from planaria.archive.writer import SLOW_S
from planaria.contract import vault


def hold(disk: HangingDisk, rig: Rig) -> None:
    """Make two commits, of which the disk reads one, and no room for a third, for which both ranks wait."""
    for generation in (1, 2):
        for rank in (0, 1):
            rig.commit(rank, generation)
        disk.wait_begun()
    rig.free = 0
    assert [rig.ask(rank, vault.Open(7 + rank, 10_000)) for rank in (0, 1)] == [None, None]


def test_who_leaves_without_a_buddy_waits_for_the_disk(tmp_path: Path) -> None:
    rig, told = Rig(str(tmp_path)), list[bool]()
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.keeper.hand_over(told.append)
    rig.run_until(lambda: told)
    assert told == [True]
    assert Shelf(str(tmp_path)).has((1, 0, 1))
    rig.keeper.close()
    rig.loop.close()


def test_who_leaves_while_its_disk_hangs_has_the_time_for_one_more_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, rig, told = HangingDisk(monkeypatch), Rig(str(tmp_path)), list[bool]()
    hold(disk, rig)
    heard = len(rig.answers)
    rig.clock.ahead_s += FIRST_S + 1
    rig.run_until(lambda: len(rig.answers) == heard + 2)
    rig.keeper.hand_over(told.append)
    assert told == [], "the commit that is given up may still be the one that gets there"
    rig.new_life(1)
    for rank in (0, 1):
        rig.commit(rank, 10)
    rig.keeper.hand_over(told.append)
    rig.run_until(lambda: told)
    assert told == [False], "nobody orders it once more"
    rig.loop.call_later(0.0, disk.go_on)
    assert rig.keeper.flush(TIMEOUT_S)
    assert next(Shelf(str(tmp_path)).commits()).order == (1, 1, 10)
    rig.keeper.close()
    rig.loop.close()


def test_the_disk_gets_the_newest_commit_of_all_ranks_and_an_earlier_runs_is_found(tmp_path: Path) -> None:
    rig = Rig(str(tmp_path))
    for generation in (1, 2, 3):
        for rank in (0, 1):
            rig.commit(rank, generation)
    rig.ask(0, vault.Await(8, 1, 0, 3, "disk", TIMEOUT_S))
    rig.run_until(lambda: any(found == vault.Reached(8, "disk") for _, found, _ in rig.answers))
    assert rig.keeper.newest["disk"].step == 30
    assert rig.keeper.flush(TIMEOUT_S)
    assert next(Shelf(str(tmp_path)).commits()).order == (1, 0, 3)
    rig.loop.close()
    later = Rig(str(tmp_path))
    assert later.ask(0, vault.Join(1)) is None, "the directory is being looked at"
    later.run_until(lambda: later.answers)
    assert later.answers[0][1] == vault.Place(1, 2, 0, 0, 2, True)
    for rank in (0, 1):
        found = vault.Found(rank, (), (), str(tmp_path), (1, 0, 3))
        assert later.ask(rank, vault.Load(rank, False)) == found
    later.keeper.close()
    later.loop.close()


def test_a_disk_that_fails_is_said_once_and_who_waits_is_told(tmp_path: Path) -> None:
    directory = tmp_path / "commits"
    rig = Rig(str(directory))
    directory.write_text("no folder")
    for rank in (0, 1):
        rig.commit(rank, 1)
    rig.ask(0, vault.Await(8, 1, 0, 1, "disk", TIMEOUT_S))
    rig.run_until(lambda: any(found == vault.Reached(8, "node") for _, found, _ in rig.answers))
    assert len(rig.said) == 2
    assert "to disk" in rig.said[1]
    assert not rig.keeper.flush(TIMEOUT_S)
    rig.loop.close()


def test_a_disk_that_hangs_is_said_once_although_nobody_orders_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, gate, write = threading.Event(), threading.Event(), Shelf.write

    def hang(shelf: Shelf, *of: Any) -> object:
        began.set()
        assert gate.wait(TIMEOUT_S)
        return write(shelf, *of)

    monkeypatch.setattr(Shelf, "write", hang)
    rig = Rig(str(tmp_path))
    for rank in (0, 1):
        rig.commit(rank, 1)
    assert began.wait(TIMEOUT_S)
    before = len(rig.said)
    for _ in range(3):
        rig.clock.ahead_s += SLOW_S + 1
        rig.loop.run_once(0.0)
        rig.loop.run_once(0.0)
    assert [line.partition(":")[0] for line in rig.said[before:]] == ["the disk is slow"]
    gate.set()
    rig.run_until(lambda: "disk" in rig.keeper.newest)
    rig.clock.ahead_s += SLOW_S + 1
    rig.loop.run_once(0.0)
    assert rig.keeper.disk is not None
    assert rig.keeper.disk._watching is None, "there is nothing to be watched any more"
    rig.keeper.close()
    rig.loop.close()


def test_a_disk_that_hangs_with_the_only_memory_there_is_is_left_behind_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, rig = HangingDisk(monkeypatch), Rig(str(tmp_path))
    hold(disk, rig)
    before, heard = len(rig.said), len(rig.answers)
    rig.clock.ahead_s += FIRST_S + 1
    rig.run_until(lambda: len(rig.answers) == heard + 2)
    for rank, (_, slot, _) in enumerate(rig.answers[heard:]):
        assert isinstance(slot, vault.Slot)
        rig.seal(rank, slot, 3)
    for generation in (4, 5):  # it holds nothing any more
        for rank in (0, 1):
            rig.commit(rank, generation)
    assert [line.partition(",")[0] for line in rig.said[before:]] == ["a commit is still being written to disk"]
    assert "disk" not in rig.keeper.newest
    disk.go_on()
    rig.run_until(lambda: "disk" in rig.keeper.newest)
    assert rig.keeper.newest["disk"].generation == 5
    assert any("its memory was needed for the next commit" in line for line in rig.said)
    assert not [*tmp_path.rglob("*.tmp")]
    assert all(slot.pins == slot.disk_pins == 0 for slot in rig.keeper._stock.slots.all())
    rig.keeper.close()
    rig.loop.close()


@pytest.mark.parametrize("end", ["ended", "flush"])
def test_workers_that_died_while_they_waited_for_memory_do_not_cost_the_run_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    disk, rig = HangingDisk(monkeypatch), Rig(str(tmp_path))
    hold(disk, rig)
    if end == "ended":
        rig.keeper.ended()
        rig.clock.ahead_s += FIRST_S + 1
        rig.loop.run_once(0.0)

    def be_slow() -> None:
        rig.clock.ahead_s += FIRST_S + 1
        rig.loop.call_later(0.0, disk.go_on)  # behind whoever has lost his patience

    rig.loop.call_later(0.0, be_slow)  # the last writing turns the loop
    assert rig.keeper.flush(TIMEOUT_S)
    assert [found.order for found in Shelf(str(tmp_path)).commits()] == [(1, 0, 2), (1, 0, 1)]
    assert not any("given up" in line for line in rig.said)
    rig.keeper.close()
    rig.loop.close()


def test_a_disk_that_is_stuck_costs_one_wait_in_all_lives_and_the_end_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, rig = HangingDisk(monkeypatch), Rig(str(tmp_path))
    hold(disk, rig)
    heard = len(rig.answers)
    rig.clock.ahead_s += FIRST_S + 1
    rig.run_until(lambda: len(rig.answers) == heard + 2)
    for number in (1, 2, 3):
        rig.new_life(number)
        for generation in (10 * number, 10 * number + 1):
            for rank in (0, 1):
                slot = rig.ask(rank, vault.Open(7, 10_000))
                assert isinstance(slot, vault.Slot), "nobody waits for it"
                rig.seal(rank, slot, generation)
    assert sum("given up" in line for line in rig.said) == 1
    rig.ask(0, vault.Await(8, 1, 3, 31, "disk", TIMEOUT_S))
    rig.run_until(lambda: any(found == vault.Reached(8, "node") for _, found, _ in rig.answers))
    rig.loop.call_later(0.0, disk.go_on)
    assert rig.keeper.flush(TIMEOUT_S), "it has time, and the disk is only slow"
    assert next(Shelf(str(tmp_path)).commits()).order == (1, 3, 31)
    assert all(slot.pins == slot.disk_pins == 0 for slot in rig.keeper._stock.slots.all())
    rig.keeper.close()
    rig.loop.close()


def test_a_rank_that_waits_for_another_rank_takes_nothing_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, rig = HangingDisk(monkeypatch), Rig(str(tmp_path))
    for rank in (0, 1):
        rig.commit(rank, 1)
    disk.wait_begun()
    rig.commit(0, 2)
    rig.free = 0
    before = len(rig.said)
    assert rig.ask(0, vault.Open(7, 10_000)) is None
    rig.clock.ahead_s += 3 * FIRST_S
    rig.loop.run_once(0.0)
    assert rig.said[before:] == []
    disk.go_on()
    rig.run_until(lambda: "disk" in rig.keeper.newest)
    assert rig.keeper.newest["disk"].generation == 1
    rig.keeper.close()
    rig.loop.close()


def test_a_directory_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("planaria.archive.shelf.os.listdir", refuse)
        rig = Rig(str(tmp_path))
        rig.ask(0, vault.Load(1, False))
        rig.run_until(lambda: rig.answers)
    refused = rig.answers[0][1]
    assert isinstance(refused, vault.Refused)
    assert "cannot look for commits in" in refused.message
    rig.ask(0, vault.Load(2, False))
    rig.run_until(lambda: len(rig.answers) == 2)
    assert rig.answers[1][1] == vault.Found(2, (), (), "", ()), "it is tried again"
    rig.keeper.close()
    rig.loop.close()


def test_a_damaged_commit_on_disk_is_passed_over_for_all_ranks(tmp_path: Path) -> None:
    """The file of rank 1 is cut, which rank 0 would not see by itself."""
    first = Rig(str(tmp_path))
    for generation in (1, 2):
        for rank in (0, 1):
            first.commit(rank, generation)
        assert first.keeper.flush(TIMEOUT_S)
    first.loop.close()
    newest = max(tmp_path.iterdir()) / "rank-00001.snapshot"
    content = bytearray(newest.read_bytes())
    content[5000] ^= 1
    newest.write_bytes(content)
    later = Rig(str(tmp_path))
    later.ask(0, vault.Load(1, False))
    later.run_until(lambda: later.answers)
    assert later.answers[0][1] == vault.Found(1, (), (), str(tmp_path), (1, 0, 1))
    later.run_until(lambda: any("damaged" in line for line in later.said))
    later.keeper.close()
    later.loop.close()


def test_a_directory_that_could_be_read_too_late_never_makes_a_commit_count_that_is_not_there(tmp_path: Path) -> None:
    """The first life was not told of the earlier run; the next one's commits are newer than that run's all the same."""
    commits = tmp_path / "commits"
    earlier = Rig(str(commits))
    earlier.new_life(5)
    for rank in (0, 1):
        earlier.commit(rank, 6)
    assert earlier.keeper.flush(TIMEOUT_S)
    earlier.keeper.close()
    earlier.loop.close()
    os.rename(commits, tmp_path / "away")
    commits.symlink_to(commits)  # to itself: a directory that cannot be read
    rig = Rig(str(commits))
    rig.ask(0, vault.Load(1, False))
    rig.run_until(lambda: isinstance(rig.answers[-1][1] if rig.answers else None, vault.Refused))
    commits.unlink()
    os.rename(tmp_path / "away", commits)
    rig.new_life(1)
    for rank in (0, 1):
        rig.commit(rank, 7)
    rig.keeper.hear(rig.peers[0], vault.Await(8, rig.keeper._ledger.run, 1, 7, "disk", TIMEOUT_S))
    rig.run_until(lambda: any(found == vault.Reached(8, "disk") for _, found, _ in rig.answers))
    newest = next(Shelf(str(commits)).commits())
    assert (newest.order, newest.step) == ((2, 1, 7), 70)
    rig.keeper.close()
    rig.loop.close()
