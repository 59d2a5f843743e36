"""The folder of a campaign, and those that nobody removed."""

from __future__ import annotations

import os
from pathlib import Path

from planaria.chaos.folder import Folder


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
    (tmp_path / "pch-early").mkdir()
    fresh = Folder(str(tmp_path))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {os.path.basename(alive.path), os.path.basename(fresh.path), "pch-mine", "pch-early"}
    alive.close()
    fresh.close()
