"""Damage that is done to commits on disk, and a disk that is full."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from snapshot_maker import sealed

from planaria.archive.shelf import Shelf
from planaria.chaos.disk import Disk


def test_the_newest_commit_is_damaged_and_the_one_before_it_is_promised(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "commits"), mounts=False)
    assert disk.step() is None
    Shelf(disk.folder).write(*sealed(1))
    assert disk.corrupt() is None, "nothing would be left"
    Shelf(disk.folder).write(*sealed(2))
    assert disk.step() == 20
    assert disk.corrupt() == 10
    assert disk.step() == 10


@pytest.mark.root
def test_a_disk_can_be_full_and_have_room_again(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path / "commits"), mounts=True)
    if disk.why_never_full:
        pytest.skip(disk.why_never_full)
    try:
        with open(f"{disk.folder}/small", "wb") as file:
            file.write(bytes(10_000))
        assert disk.fill() == ""
        with pytest.raises(OSError, match="No space left"):
            Path(f"{disk.folder}/more").write_bytes(bytes(10_000))
        assert disk.empty() == ""
        Path(f"{disk.folder}/more").write_bytes(bytes(10_000))
    finally:
        subprocess.run(["umount", "-l", disk.folder], check=True)


def test_a_mount_that_fails_says_why_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(str(tmp_path / "commits"), mounts=False)
    answer = subprocess.CompletedProcess([], 32, "", "mount: no\nsuch thing\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    assert disk.fill() == disk.empty() == "mount: no\\nsuch thing"


def test_who_is_not_root_hears_why_it_is_never_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Disk(str(tmp_path / "commits"), mounts=True).why_never_full == "only root can make a file system"
