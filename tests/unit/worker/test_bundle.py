from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from planaria.errors import UsageError
from planaria.worker import bundle
from planaria.worker.bundle import Bundles, Listed, Superseded, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.contract.manifest import ShardFile

TENSORS = {"model/w": Tensor("float32", [2, 2], [([0, 0], [2, 2], 0, 0, 16)])}


def write(bundles: Bundles, generation: int, life: int = 1) -> Listed:
    """Write a commit of one rank."""
    return filled(bundles, bundles.draft(generation, life), generation, life)


def filled(bundles: Bundles, draft: str, generation: int, life: int) -> Listed:
    files: list[ShardFile] = [
        bundles.write(draft, 0, bundle.tensors_name(0), [memoryview(bytes(8)), memoryview(bytes(range(8)))]),
        bundles.write(draft, 0, bundle.values_name(0), [memoryview(b"values")]),
    ]
    listed = Listed(bundle.commit_name(generation), generation, 10 * generation, 1, tuple(files), TENSORS, life)
    bundles.finish(draft, listed)
    return listed


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    found = Bundles(str(tmp_path / "commits"))
    assert found.begin() == 1
    return found


def hidden(bundles: Bundles) -> list[str]:
    return sorted(name for name in os.listdir(bundles.directory) if name.startswith("."))


def test_a_commit_is_read_as_it_was_written(bundles: Bundles) -> None:
    written = write(bundles, 3)
    assert bundles.commits() == ["commit-0000000003"]
    found = bundles.read("commit-0000000003")
    assert found == written
    bundles.verify(found, found.files)
    with open(bundles.path(found, "rank-00000.tensors"), "rb") as file:
        assert file.read() == bytes(8) + bytes(range(8))


def test_a_directory_that_is_not_there_has_no_commits(tmp_path: Path) -> None:
    assert Bundles(str(tmp_path / "none")).commits() == []


def test_the_newest_stay_and_drafts_of_those_who_failed_go(bundles: Bundles) -> None:
    bundles.draft(9, 1)
    bundles.draft(1, 1)
    for generation in (1, 2, 3):
        write(bundles, generation)
    assert bundles.commits() == ["commit-0000000003", "commit-0000000002"]
    assert hidden(bundles) == [".life-0000000001"]
    assert os.listdir(os.path.join(bundles.directory, ".life-0000000001")) == []


def test_what_a_full_disk_had_no_room_for_makes_room_for_the_next(bundles: Bundles) -> None:
    for generation in (1, 2, 3):
        bundles.write(bundles.draft(generation, 1), 0, bundle.tensors_name(0), [memoryview(bytes(8))])
        assert os.listdir(os.path.join(bundles.directory, ".life-0000000001")) == [f"{generation:010d}"]
    assert bundles.draft(3, 1) == bundles.draft(3, 1), "another rank writes to it too"
    assert len(os.listdir(bundles.draft(3, 1))) == 1


def test_one_that_was_found_damaged_does_not_count_among_those_that_stay(bundles: Bundles) -> None:
    for generation in (1, 2):
        write(bundles, generation)
    bundles.pass_over("commit-0000000002")
    assert bundles.highest() == 2
    write(bundles, 3)
    assert bundles.commits() == ["commit-0000000003", "commit-0000000002", "commit-0000000001"]
    write(bundles, 4)
    assert bundles.commits() == ["commit-0000000004", "commit-0000000003"]


@pytest.mark.parametrize("keep", [0, -1, True, 1.5])
def test_a_folder_keeps_at_least_one_commit(tmp_path: Path, keep: Any) -> None:
    with pytest.raises(UsageError, match=r"keep expects a whole number of commits above 0, got"):
        Bundles(str(tmp_path), keep)


def test_what_is_not_ours_is_left_alone(bundles: Bundles) -> None:
    os.makedirs(os.path.join(bundles.directory, "commit-of-mine"))
    for generation in (1, 2, 3, 4):
        write(bundles, generation)
    assert "commit-of-mine" in os.listdir(bundles.directory)
    assert bundles.commits() == ["commit-0000000004", "commit-0000000003"]


def test_a_second_writer_of_a_commit_changes_nothing(bundles: Bundles) -> None:
    write(bundles, 1)
    with pytest.raises(OSError, match="not empty"):
        write(bundles, 1)
    bundles.verify(found := bundles.read("commit-0000000001"), found.files)


def test_each_life_has_a_number_of_its_own(bundles: Bundles) -> None:
    assert [Bundles(bundles.directory).begin() for _ in range(3)] == [2, 3, 4]
    assert hidden(bundles) == [".life-0000000004"]


def test_lives_that_begin_at_the_same_time_have_different_numbers(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look and the mark others have begun: one with the same number, or two, of which the second buried that one."""
    for others, number in ((1, 3), (2, 6)):
        first = Bundles(bundles.directory)
        lives, looked = first._lives, []

        def look(lives: Any = lives, looked: list[int] = looked, others: int = others) -> list[int]:
            found: list[int] = lives()
            looked.append(1)
            if len(looked) == 1:
                for _ in range(others):
                    bundles.begin()
            return found

        monkeypatch.setattr(first, "_lives", look)
        assert first.begin() == number
        assert hidden(bundles) == [f".life-{number:010d}"]


LATE = ["draft", "rank-00000.values piece", "rank-00000.values done", "manifest.json piece", "listed"]


@pytest.mark.parametrize("point", LATE)
def test_a_writer_of_an_older_life_that_wakes_late_cannot_publish(bundles: Bundles, point: str) -> None:
    write(bundles, 1)

    def sleep(passed: str) -> None:
        if passed == point:
            assert bundles.begin() == 2
            assert bundles.commits() == ["commit-0000000001"]

    with pytest.raises(Superseded, match=r"life 2 has begun in .*, and this is life 1$"):
        write(Bundles(bundles.directory, at=sleep), 2)
    assert bundles.commits() == ["commit-0000000001"]
    assert hidden(bundles) == [".life-0000000002"], "and its draft is gone"
    assert os.listdir(os.path.join(bundles.directory, ".life-0000000002")) == []
    with pytest.raises(Superseded):
        write(bundles, 3)
    assert write(bundles, 2, life=2).life == 2
    assert bundles.commits() == ["commit-0000000002", "commit-0000000001"]


def test_a_writer_that_does_not_see_the_mark_of_a_later_life_has_no_draft_left_to_publish(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it has looked, and sleeps before its rename; or on a file system that tells of new folders later."""
    late = Bundles(bundles.directory)

    def look(_life: int) -> None:
        if bundles._lives() == [1]:
            bundles.begin()

    monkeypatch.setattr(late, "check", look)
    with pytest.raises(FileNotFoundError):
        write(late, 1)
    assert bundles.commits() == []


def test_what_an_older_life_has_published_before_the_mark_counts(bundles: Bundles) -> None:
    """And behind it that writer removes nothing any more: what is damaged, only the later one knows."""
    for generation in (1, 2):
        write(bundles, generation)

    def sleep(passed: str) -> None:
        if passed == "named":
            bundles.begin()
            bundles.draft(4, 2)

    write(Bundles(bundles.directory, keep=1, at=sleep), 3)
    assert bundles.commits() == ["commit-0000000003", "commit-0000000002", "commit-0000000001"]
    assert os.listdir(os.path.join(bundles.directory, ".life-0000000002")) == ["0000000004"]
    assert bundles.highest() == 3


def test_a_folder_from_before_there_were_lives_is_read_and_its_drafts_are_removed(tmp_path: Path) -> None:
    bundles = Bundles(str(tmp_path))
    listed = write(bundles, bundles.begin())
    with open(bundles.path(listed, "manifest.json")) as file:
        found = json.loads(file.readline())
    del found["life"]
    with open(bundles.path(listed, "manifest.json"), "wb") as file:
        file.write(bundle.sealed(found))
    os.rmdir(tmp_path / ".life-0000000001")
    (tmp_path / ".draft-0000000002-1f3a").mkdir()
    old = bundles.read("commit-0000000001")
    assert (old.life, old.step) == (0, 10)
    bundles.verify(old, old.files)
    assert bundles.begin() == 1
    assert hidden(bundles) == [".life-0000000001"]
    write(bundles, bundles.highest() + 1)
    assert bundles.commits() == ["commit-0000000002", "commit-0000000001"]


@pytest.mark.parametrize("point", ["marked", "renamed", "begun"])
def test_whoever_dies_while_a_life_begins_leaves_all_to_the_next(bundles: Bundles, point: str) -> None:
    write(bundles, 1)
    bundles.draft(2, 1)

    def die(passed: str) -> None:
        if passed == point:
            raise Death

    with pytest.raises(Death):
        Bundles(bundles.directory, at=die).begin()
    assert bundles.begin() == 3
    assert hidden(bundles) == [".life-0000000003"]
    assert bundles.commits() == ["commit-0000000001"]


POINTS = [
    "draft",
    "rank-00000.tensors piece",
    "rank-00000.tensors done",
    "rank-00000.values piece",
    "rank-00000.values done",
    "manifest.json piece",
    "manifest.json done",
    "listed",
    "named",
    "unlisted",
    "pruned",
]


def test_the_points_at_which_tests_let_writers_die_are_all_there_are(tmp_path: Path) -> None:
    passed: list[str] = []
    Bundles(str(tmp_path)).begin()
    for generation in (1, 2, 3):
        write(Bundles(str(tmp_path), at=passed.append), generation)
    assert {*passed} == {*POINTS}


class Death(Exception):
    pass


@pytest.mark.parametrize("point", POINTS)
def test_whoever_dies_at_any_point_leaves_a_whole_newest_commit(bundles: Bundles, point: str) -> None:
    for generation in (1, 2):
        write(bundles, generation)

    def die(passed: str) -> None:
        if passed == point:
            raise Death

    with pytest.raises(Death):
        write(Bundles(bundles.directory, at=die), 3)
    newest, *_ = bundles.commits()
    assert newest == ("commit-0000000003" if point in ("named", "unlisted", "pruned") else "commit-0000000002")
    bundles.verify(found := bundles.read(newest), found.files)
    write(bundles, 4, bundles.begin())
    assert len(bundles.commits()) == 2
    assert hidden(bundles) == [".life-0000000002"]
    assert os.listdir(os.path.join(bundles.directory, ".life-0000000002")) == []


def test_damage_is_noticed(bundles: Bundles) -> None:
    listed = write(bundles, 1)
    path = bundles.path(listed, "rank-00000.tensors")
    os.truncate(path, 15)
    with pytest.raises(ValueError, match=r"rank-00000\.tensors is not as long as it was"):
        bundles.verify(listed, listed.files)
    with open(path, "ab") as file:
        file.write(b"?")
    with pytest.raises(ValueError, match=r"rank-00000\.tensors is damaged"):
        bundles.verify(listed, listed.files)


def chunk_without_place(found: dict[str, Any]) -> None:
    found["tensors"]["model/w"][2][0][3] = -1


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(version=2),
        lambda found: found.update(generation=2),
        lambda found: found.update(world_size=2),
        lambda found: found.pop("step"),
        lambda found: found.update(files=[[0, "../../passwd", 1, ""]]),
        lambda found: found.update(files="none"),
        lambda found: found.update(tensors=[]),
        lambda found: found["tensors"].update({"model/w": "nothing"}),
        chunk_without_place,
    ],
)
def test_a_manifest_of_something_else_is_refused(bundles: Bundles, change: Any) -> None:
    path = bundles.path(write(bundles, 1), "manifest.json")
    with open(path) as file:
        found = json.loads(file.readline())
    change(found)
    with open(path, "wb") as file:
        file.write(bundle.sealed(found))
    with pytest.raises(ValueError, match=r"^its manifest (is none of ours: .|belongs to something else)"):
        bundles.read("commit-0000000001")


def test_a_manifest_that_was_changed_by_accident_is_refused(bundles: Bundles) -> None:
    path = bundles.path(write(bundles, 1), "manifest.json")
    with open(path, "rb") as file:
        content = file.read()
    for damaged in (content.replace(b'"step": 10', b'"step": 11'), content[:-1], b"", b"[" * 100_000):
        with open(path, "wb") as file:
            file.write(damaged)
        with pytest.raises(ValueError, match=r"^its manifest is damaged$"):
            bundles.read("commit-0000000001")
