from __future__ import annotations

import errno
import mmap
import os
import random
import resource
import shutil
from pathlib import Path

import pytest
from snapshot_maker import generation_of, sealed

from planaria.archive import shelf as shelves
from planaria.archive.plan import MOST_UNFINISHED, Failed, Skipped, Written
from planaria.archive.shelf import Shelf
from planaria.base.value import replace
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import LINE, next_line


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(str(tmp_path / "commits"), keep=2)


def put(shelf: Shelf, generation: int, rank: int = 0, world_size: int = 1, **more: int) -> object:
    return shelf.write(*sealed(generation, rank, world_size, **more))


def newest(shelf: Shelf) -> int | None:
    found = shelf.newest()
    if found is None:
        return None
    assert len(found.opened) == found.manifest.world_size
    return {generation_of(*one) for one in found.opened.values()}.pop()


def folders(shelf: Shelf) -> list[Path]:
    return sorted(Path(shelf.directory).iterdir())


def test_an_empty_or_missing_folder_has_no_commit(shelf: Shelf) -> None:
    assert shelf.newest() is None
    assert shelf.newest_run() == 0
    os.makedirs(shelf.directory)
    assert shelf.newest() is None


def test_a_commit_is_found_again_whole(shelf: Shelf) -> None:
    memory, stamp = sealed(3)
    assert shelf.write(memory, stamp) == Written(stamp, complete=True)
    found = shelf.newest()
    assert found
    kept, snapshot = found.opened[0]
    assert kept == memory[: len(kept)]
    assert snapshot.stamp == stamp
    assert (found.manifest.step, found.manifest.world_size, found.passed_over) == (30, 1, [])
    assert shelf.newest_run() == 1


def test_a_commit_counts_when_the_last_rank_has_written_it(shelf: Shelf) -> None:
    put(shelf, 1)
    for rank in (2, 0):
        outcome = put(shelf, 2, rank, 3)
        assert isinstance(outcome, Written)
        assert not outcome.complete
        assert newest(shelf) == 1
    outcome = put(shelf, 2, 1, 3)
    assert isinstance(outcome, Written)
    assert outcome.complete
    assert newest(shelf) == 2


def test_no_more_commits_are_kept_than_asked_for_and_strangers_are_left_alone(shelf: Shelf) -> None:
    os.makedirs(Path(shelf.directory) / "notes")
    (Path(shelf.directory) / "commit-readme").write_text("mine")
    put(shelf, 1, 0, 2)  # never finished
    for generation in range(2, 7):
        put(shelf, generation)
    assert [path.name for path in folders(shelf)] == [
        "commit-000001-000001-0000000005",
        "commit-000001-000001-0000000006",
        "commit-readme",
        "notes",
    ]


def test_drafts_of_the_dead_go_with_their_commit(shelf: Shelf) -> None:
    put(shelf, 1)
    (folders(shelf)[0] / ".rank-00000.snapshot.abcd.tmp").write_bytes(b"half")
    put(shelf, 2)
    put(shelf, 3)
    assert not [*Path(shelf.directory).rglob("*.tmp")]


def test_a_lower_round_is_refused_and_an_older_commit_skipped(shelf: Shelf) -> None:
    put(shelf, 5, round_=4)
    late = put(shelf, 9, round_=3)
    assert isinstance(late, Failed)
    assert late.why.startswith("round 3 is over")
    assert isinstance(put(shelf, 9, run=0, round_=9), Failed)
    assert isinstance(put(shelf, 4, round_=4), Skipped)
    assert isinstance(put(shelf, 5, round_=4), Skipped)
    assert newest(shelf) == 5
    assert isinstance(put(shelf, 1, run=2, round_=0), Written)
    assert newest(shelf) == 1


def test_the_first_writer_of_a_shard_has_written_it(shelf: Shelf) -> None:
    put(shelf, 1, 0, 2)
    file = folders(shelf)[0] / "rank-00000.snapshot"
    before = file.stat().st_ino
    put(shelf, 1, 0, 2)
    assert file.stat().st_ino == before
    assert [path.name for path in folders(shelf)[0].iterdir()] == ["rank-00000.snapshot"]


def test_two_writers_of_one_shard_at_once_leave_one_file(shelf: Shelf) -> None:
    second = Shelf(shelf.directory)
    done: list[object] = []

    def meanwhile(point: str) -> None:
        if point == "rank-00000.snapshot synced" and not done:
            done.append(put(second, 1))

    outcome = put(Shelf(shelf.directory, at=meanwhile), 1)
    assert isinstance(outcome, Written)
    assert isinstance(done[0], Written)
    assert newest(shelf) == 1
    assert sorted(path.name for path in folders(shelf)[0].iterdir()) == ["manifest.json", "rank-00000.snapshot"]


def test_without_links_a_file_is_renamed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    assert isinstance(put(shelf, 1), Written)
    assert newest(shelf) == 1


def test_a_commit_that_is_removed_while_it_is_written_is_skipped(shelf: Shelf) -> None:
    def overtake(point: str) -> None:
        if point == "folder":
            at_once = Shelf(shelf.directory, keep=1)
            assert isinstance(put(at_once, 7), Written)

    assert isinstance(put(Shelf(shelf.directory, at=overtake), 3), Skipped)
    assert newest(shelf) == 7


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "link", "open", "makedirs"])
def test_what_the_disk_does_wrong_is_a_value_and_the_commit_before_stays(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    put(shelf, 1)
    before = sorted(Path(shelf.directory).rglob("*"))

    def fail(*_args: object, **_more: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        outcome = put(shelf, 2)
    assert isinstance(outcome, Failed)
    assert os.strerror(number) in outcome.why
    assert newest(shelf) == 1
    assert [path for path in sorted(Path(shelf.directory).rglob("*")) if path.is_file() and path not in before] == []
    assert isinstance(put(shelf, 3), Written)
    assert newest(shelf) == 3


def fail_full(*_args: object, **_more: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, call: str, generation: int, rank: int, world_size: int) -> None:
    """Have the disk be full at a call, of the last file of a commit."""
    for other in range(rank):
        assert put(shelf, generation, other, world_size) == Written(
            sealed(generation, other, world_size)[1], complete=False
        )
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail_full)
        assert isinstance(put(shelf, generation, rank, world_size), Failed)


@pytest.mark.parametrize("call", ["write", "link", "replace"])
def test_what_a_full_disk_had_no_room_for_makes_room_for_the_next_and_folders_do_not_grow_in_number(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for rank in range(3):
        put(shelf, 1, rank, 3)
    for generation in range(2, 20):
        full(shelf, monkeypatch, call, generation, 2, 3)
        files = [path.parent.name for path in Path(shelf.directory).rglob("rank-*")]
        assert {*files} == {"commit-000001-000001-0000000001", f"commit-000001-000001-{generation:010d}"}
        assert len(folders(shelf)) == 2
    assert newest(shelf) == 1
    for rank in range(3):
        put(shelf, 20, rank, 3)
    assert newest(shelf) == 20


def test_what_others_do_not_finish_does_not_fill_the_disk(shelf: Shelf) -> None:
    """As where each node has a directory of its own, which none of them knows."""
    for generation in range(1, 30):
        assert isinstance(put(shelf, generation, 0, 2), Written)
    assert len(folders(shelf)) == MOST_UNFINISHED + 1


def test_where_a_disk_is_full_what_an_earlier_run_left_unfinished_goes_and_what_cannot_be_told_stays(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shelf, 1)
    put(shelf, 2, 0, 2)
    put(shelf, 3)
    put(shelf, 4, 1, 2)
    damaged = Path(shelf.directory) / "commit-000001-000001-0000000003" / "rank-00000.snapshot"
    damaged.write_bytes(b"")
    later = Shelf(shelf.directory, keep=2)

    def names() -> list[str]:
        return [path.name.removeprefix("commit-00000").replace("-000001-000000000", " ") for path in folders(shelf)]

    put(later, 1, 0, 2, run=2)
    assert names() == ["1 1", "1 3", "1 4", "2 1"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", fail_full)
        assert isinstance(put(later, 2, 0, 2, run=2), Failed)
    put(later, 3, 0, 2, run=2)
    assert names() == ["1 1", "1 3", "2 1", "2 3"]


def test_the_part_of_a_commit_that_another_gave_up_is_not_on_disk(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose disk is full takes the folder away while another writes to it."""
    other = Shelf(shelf.directory)
    full(other, monkeypatch, "write", 5, 0, 2)

    def give_up(point: str) -> None:
        if point == "folder":
            put(other, 6, 0, 2)

    assert isinstance(put(Shelf(shelf.directory, at=give_up), 5, 1, 2), Failed)
    assert newest(shelf) is None


def test_a_file_where_the_folder_should_be_is_a_value(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = put(Shelf(str(tmp_path / "file")), 1)
    assert isinstance(outcome, Failed)
    assert Shelf(str(tmp_path / "file")).newest() is None


def test_memory_that_is_damaged_or_something_else_is_not_written(shelf: Shelf) -> None:
    memory, stamp = sealed(1)
    other = sealed(2)[1]
    assert isinstance(shelf.write(memory, other), Failed)
    memory[5000] ^= 1
    outcome = shelf.write(memory, stamp)
    assert isinstance(outcome, Failed)
    assert "weights is damaged" in outcome.why
    assert isinstance(shelf.write(memoryview(bytes(9000)), stamp), Failed)
    assert not os.path.exists(shelf.directory)


def two_commits(shelf: Shelf) -> list[Path]:
    for generation in (1, 2):
        for rank in (0, 1):
            put(shelf, generation, rank, 2)
    assert newest(shelf) == 2
    return sorted(folders(shelf)[1].iterdir())


def test_a_file_that_is_cut_anywhere_is_passed_over(shelf: Shelf) -> None:
    rng = random.Random(5)
    for file in two_commits(shelf):
        whole = file.read_bytes()
        for length in [0, 1, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(20))]:
            file.write_bytes(whole[:length])
            assert newest(shelf) == 1, (file.name, length)
        file.write_bytes(whole)
    assert newest(shelf) == 2


def test_a_flipped_bit_is_passed_over_or_in_a_place_that_nobody_reads(shelf: Shelf) -> None:
    rng = random.Random(7)
    files = two_commits(shelf)
    for file in files:
        whole = file.read_bytes()
        for place in [0, 9, 127, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(60))]:
            changed = bytearray(whole)
            changed[place] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
            found = newest(shelf)  # compares the content too
            assert found == 1 or (file.suffix == ".snapshot" and 128 <= place < 4096), (file.name, place)
        file.write_bytes(whole)
    assert newest(shelf) == 2


def test_files_in_each_other_s_places_are_passed_over(shelf: Shelf) -> None:
    _, first, second = two_commits(shelf)
    old = folders(shelf)[0]
    kept = first.read_bytes(), second.read_bytes()
    first.write_bytes(kept[1])
    second.write_bytes(kept[0])
    assert newest(shelf) == 1
    first.write_bytes((old / first.name).read_bytes())
    second.write_bytes(kept[1])
    assert newest(shelf) == 1
    first.write_bytes(kept[0])
    assert newest(shelf) == 2
    shutil.copy(old / "manifest.json", first.parent / "manifest.json")
    assert newest(shelf) == 1


def test_a_file_that_is_missing_is_passed_over_and_said(shelf: Shelf) -> None:
    _, first, _ = two_commits(shelf)
    changed = bytearray(first.read_bytes())
    changed[5000] ^= 1
    first.write_bytes(changed)
    found = shelf.newest()
    assert found
    assert found.passed_over == ["commit-000001-000001-0000000002: weights is damaged"]
    assert shelf.newest({1}).manifest.generation == 2  # type: ignore[union-attr]
    first.unlink()
    assert newest(shelf) == 1


def test_a_damaged_commit_does_not_push_out_a_whole_one(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path), keep=1)
    put(shelf, 1)
    put(shelf, 2, 0, 2)
    (folders(shelf)[1] / "manifest.json").write_text("{")
    shelf.prune()
    assert newest(shelf) == 1


def test_a_real_write_that_ends_in_the_middle_leaves_nothing_but_the_commit_before(shelf: Shelf) -> None:
    put(shelf, 1)
    before = {path for path in Path(shelf.directory).rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))  # the kernel writes up to there, and then refuses
    try:
        outcome = put(shelf, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(outcome, Failed)
    assert outcome.why == os.strerror(errno.EFBIG)
    assert {path for path in Path(shelf.directory).rglob("*") if path.is_file()} == before
    assert newest(shelf) == 1


def test_no_file_of_the_directory_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may cut it meanwhile, and who touches a mapped page that is gone is killed."""
    real = mmap.mmap

    def anonymous(descriptor: int, *args: int, **fields: int) -> mmap.mmap:
        assert descriptor == -1
        return real(descriptor, *args, **fields)

    monkeypatch.setattr(mmap, "mmap", anonymous)
    shelf = Shelf(str(tmp_path))
    assert isinstance(shelf.write(*sealed(1)), Written)
    assert shelf.newest() is not None


def test_a_lower_round_is_refused_as_soon_as_a_later_one_has_begun_to_write(shelf: Shelf) -> None:
    """Else the late file of a world that is over would complete a commit which the world of today knows nothing of."""
    for rank in (0, 1):
        put(shelf, 69, rank, 2, round_=4)
    put(shelf, 70, 0, 2, round_=4)
    put(shelf, 70, 0, 2, round_=5)
    late = put(shelf, 70, 1, 2, round_=4)
    assert isinstance(late, Failed)
    assert late.why.startswith("round 4 is over")
    assert newest(shelf) == 69


def test_a_round_that_begins_to_write_while_the_last_file_of_an_older_one_is_written_fences_it(shelf: Shelf) -> None:
    put(shelf, 70, 0, 2, round_=4)

    def overtake(point: str) -> None:
        if point == "rank-00001.snapshot done":
            put(shelf, 70, 0, 2, round_=5)

    late = Shelf(shelf.directory, at=overtake).write(*sealed(70, 1, 2, round_=4))
    assert isinstance(late, Failed)
    assert newest(shelf) is None


def test_a_world_may_write_the_commit_that_it_began_from(shelf: Shelf) -> None:
    """Also when one of its nodes has written a later commit of its own already, as at the end of a run."""
    assert isinstance(shelf.write(*sealed(70, 0, 2, round_=4), writer=(1, 5)), Written)
    put(shelf, 71, 0, 2, round_=5)
    assert shelf.write(*sealed(70, 1, 2, round_=4), writer=(1, 5)) == Written(
        sealed(70, 1, 2, round_=4)[1], complete=True
    )
    assert newest(shelf) == 70


def test_ranks_with_different_steps_have_no_commit_on_disk(shelf: Shelf) -> None:
    """It would be called whole, and could never be loaded."""
    first, stamp = sealed(1, 0, 2)
    assert isinstance(shelf.write(first, stamp), Written)
    other, later = sealed(1, 1, 2)
    later = replace(later, step=12)
    layout = snapshots.arrange([], b"values")
    snapshots.seal(other, layout, later)
    refused = shelf.write(other, later)
    why = "step is 10 on rank 0 and 12 on rank 1; it must be the same on all ranks"
    assert refused == Failed(later, why)
    assert shelf.newest() is None
    with pytest.raises(ValueError, match=why):
        shelf.check_parts(stamp)


def test_commits_of_later_lines_are_newer_although_their_numbers_are_longer(shelf: Shelf) -> None:
    for generation in (9, next_line(9, (1, 1, 9)) + 1, next_line(10 * LINE, None) + 1):
        assert isinstance(put(shelf, generation), Written)
        assert newest(shelf) == generation
    assert len(folders(shelf)) == 2


@pytest.mark.parametrize("at_chunk", [1, 2, 4])
def test_what_is_given_up_between_chunks_leaves_no_draft(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, at_chunk: int
) -> None:
    monkeypatch.setattr(shelves, "CHUNK_BYTES", 4096)
    memory, stamp = sealed(1, size=8192)  # and a page before them: three chunks, and a bit of a fourth
    asked: list[bool] = []

    def is_given_up() -> bool:
        asked.append(len(asked) + 1 >= at_chunk)
        return asked[-1]

    outcome = shelf.write(memory, stamp, is_given_up)
    assert isinstance(outcome, Failed)
    assert outcome.why == "it was given up"
    assert len(asked) == at_chunk
    assert [path for path in Path(shelf.directory).rglob("*") if path.is_file()] == []
    assert shelf.write(memory, stamp) == Written(stamp, complete=True)


def test_what_is_given_up_behind_its_last_chunk_is_written(shelf: Shelf) -> None:
    memory, stamp = sealed(1)
    given_up: list[bool] = []
    shelf._at = lambda point: given_up.append(True) if point.endswith("synced") else None
    assert shelf.write(memory, stamp, lambda: bool(given_up)) == Written(stamp, complete=True)
    assert newest(shelf) == 1


def test_what_goes_tells_older_rounds_that_a_later_one_writes_until_the_next_folder_does(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    full(shelf, monkeypatch, "write", 5, 0, 1)
    seen = []
    again = Shelf(shelf.directory, at=lambda point: seen.append((point, again.newest_order())))
    again._unfinished = shelf._unfinished
    put(again, 6)
    assert dict(seen)["emptied"] == (1, 1, 5)


def test_the_commit_that_a_run_began_from_stays_while_others_may_add_to_it(shelf: Shelf) -> None:
    other = Shelf(shelf.directory)
    for generation, run in ((70, 1), (71, 2)):  # a node that ends writes both, one after the other
        memory, stamp = sealed(generation, 0, 2, run=run)
        assert shelf.write(memory, stamp, writer=(2, 1)) == Written(stamp, complete=False)
    memory, stamp = sealed(70, 1, 2, run=1)
    assert other.write(memory, stamp, writer=(2, 1)) == Written(stamp, complete=True)


def test_a_commit_to_which_somebody_slower_writes_stays(shelf: Shelf) -> None:
    put(shelf, 1, 0, 2)

    def go_on(point: str) -> None:
        if point == "rank-00001.snapshot chunk":
            for generation in range(2, 20):
                put(shelf, generation, 0, 2)

    assert put(Shelf(shelf.directory, at=go_on), 1, 1, 2) == Written(sealed(1, 1, 2)[1], complete=True)
