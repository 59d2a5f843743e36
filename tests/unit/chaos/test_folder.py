"""The folder of a campaign, and those that nobody removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planaria.chaos.folder import Folder, _open


def test_a_folder_goes_when_it_is_closed(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    os.mkdir(folder.part("t"))
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_the_next_campaign_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    alive = Folder(str(tmp_path))
    killed = Folder(str(tmp_path))
    os.close(killed._lock)
    (tmp_path / "pch-mine").write_text("a file of the user's")
    (tmp_path / "pch-early").mkdir()  # its campaign was killed before it had a lock
    fresh = Folder(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {os.path.basename(alive.path), os.path.basename(fresh.path), "pch-mine"}
    alive.close()
    fresh.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_folder_that_another_campaign_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open: bool
) -> None:
    others: list[Folder] = []

    def opened(path: str) -> int:
        monkeypatch.undo()
        if not is_open:
            others.append(Folder(str(tmp_path)))
        found = _open(path)
        if is_open:
            others.append(Folder(str(tmp_path)))
        return found

    monkeypatch.setattr("planaria.chaos.folder._open", opened)
    both = [Folder(str(tmp_path)), *others]
    assert len(others) == 1
    assert {str(path) for path in tmp_path.iterdir()} == {one.path for one in both}
    for one in both:
        one.close()
    assert list(tmp_path.iterdir()) == []
