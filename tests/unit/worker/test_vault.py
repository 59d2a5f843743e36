from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hanging_disk import HangingDisk

from planaria.archive import patience
from planaria.archive.plan import Failed, Written
from planaria.archive.shelf import Shelf
from planaria.archive.writer import Pinned
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Origin, Stamp
from planaria.errors import StateRefused, UsageError
from planaria.worker import vault as vaults
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

TIMEOUT_S = 60


def commit(vault: LocalVault, generation: int, size: int = 5000) -> Stamp:
    layout = snapshots.arrange([], bytes([generation]) * size)
    stamp = vault.origin.stamp(generation, generation)
    buffer = vault.open(layout.size_bytes)
    snapshots.unseal(buffer)
    snapshots.seal(buffer, layout, stamp)
    vault.sealed(stamp)
    return stamp


def newest(vault: LocalVault) -> int | None:
    found = vault.load()
    if found is None:
        return None
    assert found.own
    snapshot = found.own[1]
    assert {*snapshot.values} == {snapshot.stamp.generation}
    return snapshot.stamp.generation


def test_two_slots_take_turns_and_the_newest_wins() -> None:
    vault = LocalVault()
    assert newest(vault) is None
    for generation in range(1, 6):
        commit(vault, generation)
        assert newest(vault) == generation
    assert len(vault._slots) == 2


def test_a_commit_that_was_begun_and_not_sealed_does_not_count() -> None:
    vault = LocalVault()
    commit(vault, 1)
    commit(vault, 2)
    snapshots.unseal(vault.open(5000))
    assert newest(vault) == 2
    commit(vault, 3)
    assert newest(vault) == 3


def test_a_slot_that_is_too_small_is_made_anew_and_the_other_is_kept_meanwhile() -> None:
    vault = LocalVault()
    commit(vault, 1)
    commit(vault, 2)
    buffer = vault.open(1 << 20)
    assert len(buffer) >= 1 << 20
    assert newest(vault) == 2


def test_when_the_newest_is_damaged_the_other_counts_and_is_not_overwritten_first() -> None:
    vault = LocalVault()
    commit(vault, 1)
    commit(vault, 2)
    vault._slots[1][snapshots.BODY_AT + 100] ^= 0xFF
    assert newest(vault) == 1
    assert vault.open(5000) is vault._slots[1]
    assert newest(vault) == 1


def test_a_slot_that_is_read_is_not_overwritten_and_a_third_one_is_made() -> None:
    vault = LocalVault()
    commit(vault, 1)
    pinned = vault.pin()
    assert pinned
    for generation in range(2, 6):
        commit(vault, generation)
    found = snapshots.read(pinned.memory)
    assert found
    assert found.stamp.generation == pinned.stamp.generation == 1
    assert len(vault._slots) == 3
    pinned.release()
    assert vault.pin().stamp.generation == 5  # type: ignore[union-attr]


def test_without_room_for_a_third_a_commit_waits_for_the_reader() -> None:
    free = [10**9]
    vault = LocalVault(free_bytes=lambda: free[0])
    commit(vault, 1)
    pinned = vault.pin()
    assert pinned
    commit(vault, 2)
    free[0] = 0
    thread = threading.Thread(target=commit, args=(vault, 3))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    pinned.release()
    thread.join(TIMEOUT_S)
    assert newest(vault) == 3
    assert len(vault._slots) == 2


def test_a_disk_that_hangs_with_the_only_memory_there_is_is_left_behind_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = HangingDisk(monkeypatch)
    monkeypatch.setattr(patience, "FIRST_S", 0.05)
    free = [10**9]
    vault = LocalVault(directory=str(tmp_path), free_bytes=lambda: free[0])
    commit(vault, 1)
    disk.wait_begun()
    commit(vault, 2)
    free[0] = 0
    for generation in range(3, 7):
        commit(vault, generation)
        assert newest(vault) == generation
    assert len(vault._slots) == 2
    assert vault._patience.limit_s == 0.1, "once, and a disk that is only slow has longer the next time"
    line = "commit 1 (step 1, round 0, rank 0 of 1) is still being written to disk, a commit has waited 0 s for it"
    assert [found.partition(line)[1] for found in capfd.readouterr().err.splitlines()] == [line]
    disk.go_on()
    assert vault.wait(vault.origin.stamp(6, 6), "disk", TIMEOUT_S) == "disk"
    assert vault.close()
    found = Shelf(str(tmp_path)).newest()
    assert found
    assert found.manifest.order == (1, 0, 6)
    assert not [*tmp_path.rglob("*.tmp")]
    why = "cannot write commit 1 (step 1, round 0, rank 0 of 1) to disk: its memory was needed for the next commit"
    assert why in capfd.readouterr().err


def test_a_disk_that_lets_go_in_time_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = HangingDisk(monkeypatch)
    monkeypatch.setattr(patience, "FIRST_S", TIMEOUT_S)
    free = [10**9]
    vault = LocalVault(directory=str(tmp_path), free_bytes=lambda: free[0])
    commit(vault, 1)
    disk.wait_begun()
    commit(vault, 2)
    free[0] = 0
    with ThreadPoolExecutor() as pool:
        third = pool.submit(commit, vault, 3)
        disk.go_on()
        assert vault.wait(third.result(TIMEOUT_S), "disk", TIMEOUT_S) == "disk"
    assert vault.close()
    assert capfd.readouterr().err == ""


def test_memory_of_an_earlier_life_is_taken_over() -> None:
    vault = LocalVault()
    for generation in (1, 2, 3):
        commit(vault, generation)
    other = LocalVault(slots=vault._slots)
    assert newest(other) == 3
    commit(other, 4)
    assert newest(other) == 4
    assert sorted(stamp.generation for stamp in other._stamps if stamp) == [3, 4]


def test_what_does_not_fit_is_refused_and_what_was_there_stays() -> None:
    vault = LocalVault(free_bytes=lambda: 10_000)
    commit(vault, 1, 100)
    commit(vault, 2, 100)
    with pytest.raises(StateRefused, match="does not fit"):
        vault.open(1 << 20)
    assert newest(vault) == 2


def test_the_directory_outlives_the_process_and_the_next_start_is_the_next_run(tmp_path: Path) -> None:
    vault = LocalVault(directory=str(tmp_path))
    assert vault.origin.run == 1
    stamp = commit(vault, 3)
    assert vault.wait(stamp, "disk", TIMEOUT_S) == "disk"
    assert vault.close()
    again = LocalVault(directory=str(tmp_path))
    assert again.origin.run == 2
    assert newest(again) == 3
    stamp = commit(again, 2)
    assert again.wait(stamp, "disk", TIMEOUT_S) == "disk"
    assert again.close()
    assert Shelf(str(tmp_path)).newest().manifest.order == (2, 0, 2)  # type: ignore[union-attr]


def test_a_disk_that_refuses_does_not_stop_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    vault = LocalVault(directory=str(tmp_path / "file"))
    state = ElasticState(vault=vault, step=0)
    for _ in range(3):
        state.step += 1
        assert state.commit(wait="disk", timeout_s=TIMEOUT_S).reached == "node"
    assert vault.close()
    lines = capfd.readouterr().err.splitlines()
    assert len([line for line in lines if "cannot write" in line]) == 1
    assert len([line for line in lines if "has not reached disk, only node" in line]) == 1
    assert len(lines) == 2


def test_a_folder_that_cannot_be_listed_while_others_are_waited_for_does_not_stop_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_stale(_shelf: Shelf, _order: object) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    vault = LocalVault(Origin(rank=0, world_size=2), str(tmp_path))
    state = ElasticState(vault=vault, step=4)
    monkeypatch.setattr(Shelf, "has", be_stale)
    for _ in range(2):
        assert state.commit(wait="disk", timeout_s=0.1).reached == "node"
    assert vault.close()
    lines = capfd.readouterr().err.splitlines()
    assert ["has not reached disk, only node" in line for line in lines] == [True]


def test_ranks_that_wait_for_the_disk_complete_a_commit_together(tmp_path: Path) -> None:
    vaults = [LocalVault(Origin(rank=rank, world_size=2), str(tmp_path)) for rank in (0, 1)]
    states = [ElasticState(vault=vault, step=4, mine=vault.origin.rank) for vault in vaults]
    alone = states[0].commit(wait="disk", timeout_s=0.2)
    assert alone.reached == "node"  # its own file is there, and the other rank's is not
    with ThreadPoolExecutor() as pool:
        states[1].commit()
        found = [pool.submit(state.commit, wait="disk", timeout_s=TIMEOUT_S) for state in states]
        assert [one.result().reached for one in found] == ["disk", "disk"]
    assert all(vault.close() for vault in vaults)
    again = LocalVault(Origin(run=2, rank=1, world_size=2), str(tmp_path))
    state = ElasticState(vault=again, step=0, mine=None)
    assert state.restore()
    assert (state.step, state.mine) == (4, 1)
    new = ElasticState(vault=LocalVault(Origin(run=2, rank=5, world_size=6), str(tmp_path)), step=0, mine=None)
    assert new.restore()
    assert new.step == 4


def test_rank_and_world_size_are_the_environments_unless_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    vaults = []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        vaults.append(LocalVault(directory=str(tmp_path)))
    states = [ElasticState(vault=vault, step=4, mine=number) for number, vault in enumerate(vaults)]
    with ThreadPoolExecutor() as pool:
        found = [pool.submit(state.commit, wait="disk", timeout_s=TIMEOUT_S) for state in states]
        assert [one.result().reached for one in found] == ["disk", "disk"]
    assert all(vault.close() for vault in vaults)
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        state = ElasticState(vault=LocalVault(directory=str(tmp_path)), step=0, mine=None)
        state.restore()
        assert (state.step, state.mine) == (4, rank)
    assert LocalVault(Origin(), str(tmp_path)).origin.world_size == 1


def test_a_damaged_commit_on_disk_is_said_and_the_one_before_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = LocalVault(directory=str(tmp_path))
    for generation in (1, 2):
        assert vault.wait(commit(vault, generation), "disk", TIMEOUT_S) == "disk"
    assert isinstance(vault._writer.last, Written)  # type: ignore[union-attr]
    vault.close()
    file = sorted(tmp_path.rglob("*.snapshot"))[-1]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert newest(LocalVault(directory=str(tmp_path))) == 1
    assert "passed over a damaged commit: commit-000001-000000-0000000002" in capfd.readouterr().err


def test_ranks_that_wait_for_the_disk_with_different_steps_are_refused_all_of_them(tmp_path: Path) -> None:
    vaults = [LocalVault(Origin(rank=rank, world_size=2), str(tmp_path)) for rank in (0, 1)]
    states = [ElasticState(vault=vault, step=4 + vault.origin.rank) for vault in vaults]
    with ThreadPoolExecutor() as pool:
        for one in [pool.submit(state.commit, wait="disk", timeout_s=TIMEOUT_S) for state in states]:
            with pytest.raises(StateRefused, match="step is 4 on rank 0 and 5 on rank 1") as refused:
                one.result()
            assert "step of the whole job" in str(refused.value.hint)
    assert all(vault.close() for vault in vaults)
    assert Shelf(str(tmp_path)).newest() is None


def test_a_damaged_file_of_another_rank_is_no_mistake_of_the_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = LocalVault(Origin(rank=0, world_size=2), str(tmp_path))
    state = ElasticState(vault=vault, step=4)
    state.commit(wait="disk", timeout_s=0.1)
    (file,) = tmp_path.rglob("rank-00000.snapshot")
    file.with_name("rank-00001.snapshot").write_bytes(b"cut short")
    stamp = state.stamp
    assert stamp
    assert vault.wait(stamp, "disk", 0.1) == "node"
    assert vault.close()
    assert "has not reached disk" in capfd.readouterr().err


def test_a_disk_that_has_taken_a_commit_is_waited_for_as_at_first_and_never_longer_than_a_limit(tmp_path: Path) -> None:
    vault = LocalVault(directory=str(tmp_path))
    for _ in range(5):
        vault._reading = vaults._Reading(Pinned(vault.origin.stamp(1, 1), memoryview(b""), lambda: None))
        vault._give_up_reading()
    assert vault._patience.limit_s == patience.MOST_S == 120.0
    vault._on_outcome(Failed(vault.origin.stamp(1, 1), "no room"))
    assert vault._patience.limit_s == patience.MOST_S
    vault._on_outcome(Written(vault.origin.stamp(1, 1), complete=True))
    assert vault._patience.limit_s == patience.FIRST_S


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(
            ({"keep": keep}, f"keep expects a whole number of commits above 0, got {keep!r}")
            for keep in (0, -1, "2", 1.5, True)
        ),
        ({"directory": ""}, "directory expects the path of a folder, got ''"),
        ({"directory": 5}, "directory expects the path of a folder, got 5"),
    ],
)
def test_a_directory_without_a_name_and_a_number_that_is_none_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError) as said:
        LocalVault(**{"directory": tmp_path / "commits", **options})
    assert str(said.value) == says
    assert [*tmp_path.iterdir()] == []


def test_a_program_that_has_not_gone_back_to_what_its_folder_has_hears_of_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commit-000001-0000000000-0000000001").mkdir()  # which was never whole
    for number, restores in enumerate((False, False, True, False)):
        if number != 3:  # in that one the process has restored with another state
            monkeypatch.setattr(vaults, "_KNOWN", set())
        if restores:
            ElasticState(vault=LocalVault(directory=str(tmp_path)), step=0).restore()
        state = ElasticState(vault=LocalVault(directory=str(tmp_path)), step=0)
        for _ in range(2):
            state.commit(wait="disk")
        said = capsys.readouterr().err
        assert said.count("commits and has not restored what its folder has") == (number == 1)
