from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from planaria.errors import UsageError
from planaria.worker import bundle
from planaria.worker.bundle import Bundles, Listed, Tensor

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.contract.manifest import ShardFile

TENSORS = {"model/w": Tensor("float32", [2, 2], [([0, 0], [2, 2], 0, 0, 16)])}


def write(bundles: Bundles, generation: int, life: str = "aa") -> Listed:
    """Write a commit of one rank."""
    draft = bundles.draft(generation, life)
    files: list[ShardFile] = [
        bundles.write(draft, 0, bundle.tensors_name(0), [memoryview(bytes(8)), memoryview(bytes(range(8)))]),
        bundles.write(draft, 0, bundle.values_name(0), [memoryview(b"values")]),
    ]
    listed = Listed(bundle.commit_name(generation), generation, 10 * generation, 1, tuple(files), TENSORS)
    bundles.finish(draft, listed)
    return listed


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    return Bundles(str(tmp_path / "commits"))


def test_a_commit_is_read_as_it_was_written(bundles: Bundles) -> None:
    written = write(bundles, 3)
    assert bundles.commits() == ["commit-0000000003"]
    found = bundles.read("commit-0000000003")
    assert found == written
    bundles.verify(found, found.files)
    with open(bundles.path(found, "rank-00000.tensors"), "rb") as file:
        assert file.read() == bytes(8) + bytes(range(8))


def test_a_directory_that_is_not_there_has_no_commits(bundles: Bundles) -> None:
    assert bundles.commits() == []


def test_the_newest_stay_and_drafts_of_those_who_failed_go(bundles: Bundles) -> None:
    bundles.draft(9, "dead")
    bundles.draft(1, "aa")
    for generation in (1, 2, 3):
        write(bundles, generation)
    assert bundles.commits() == ["commit-0000000003", "commit-0000000002"]
    assert sorted(os.listdir(bundles.directory)) == ["commit-0000000002", "commit-0000000003"]


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
    write(bundles, 1, "aa")
    with pytest.raises(OSError, match="not empty"):
        write(bundles, 1, "bb")
    bundles.verify(found := bundles.read("commit-0000000001"), found.files)


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
    write(bundles, 4, "bb")
    assert len(bundles.commits()) == 2
    assert not [name for name in os.listdir(bundles.directory) if name.startswith(".")]


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
