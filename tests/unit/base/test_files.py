from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from planaria.base.files import random_name, remove_tree, tell, write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def test_random_names_are_short_and_differ() -> None:
    names = {random_name() for _ in range(100)}
    assert len(names) == 100
    assert {len(name) for name in names} == {8}


def test_a_file_is_replaced_whole_and_no_draft_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for content in (b"first", b"", b"x" * 3_000_000):
        write_atomically(str(path), content)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_reader_of_the_old_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_atomically(str(path), b"old")
    with path.open("rb") as file:
        write_atomically(str(path), b"new")
        assert file.read() == b"old"


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(str(path), b"new")
    assert os.listdir(tmp_path) == ["report.json"]
    assert path.read_bytes() == b"old"


def test_a_folder_in_the_way_is_an_error_and_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(str(tmp_path / "taken"), b"x")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(str(tmp_path / "nowhere" / "file"), b"x")


def test_a_tree_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    (tree / "a" / "link").symlink_to(kept)
    (tree / "broken").symlink_to("nowhere")
    os.mkfifo(tree / "fifo")
    remove_tree(str(tree))
    assert not tree.exists()
    assert (kept / "file").exists()


def test_removing_what_is_gone_or_not_a_folder_is_fine(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("x")
    remove_tree(str(tmp_path / "file"))
    assert (tmp_path / "file").exists()


def test_a_linked_folder_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    remove_tree(str(tmp_path / "tree"))
    assert (tmp_path / "kept" / "file").exists()


def test_a_text_for_people_is_written_whole_and_lost_where_nobody_listens() -> None:
    reader, writer = os.pipe()
    try:
        tell(writer, "é \udcff\n")
        assert os.read(reader, 100) == "é \\udcff\n".encode()
    finally:
        os.close(reader)
    try:
        tell(writer, "nobody reads this\n")
    finally:
        os.close(writer)


def test_a_new_file_may_be_read_by_others_as_far_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(str(tmp_path / "file"), b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
