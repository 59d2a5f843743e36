from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from planaria.base.value import replace
from planaria.dashboard.logs import MOST_BYTES, tail
from planaria.insight.loglines import Place

if TYPE_CHECKING:
    from pathlib import Path


def place(folder: Path, path: str) -> Place:
    return Place(folder.name, str(folder), "node-a", 1, 0, 0, "stdout", path, os.geteuid())


def test_the_end_of_a_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_text("".join(f"line {number}\n" for number in range(9000)))
    found = tail(place(tmp_path, str(log)), None)
    assert found is not None
    assert len(found) <= MOST_BYTES
    assert found.startswith("line ")
    assert found.endswith("line 8999\n")


def test_a_short_log_is_there_as_a_whole_and_bytes_that_are_no_text_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"caf\xc3\xa9 \xff\n")
    assert tail(place(tmp_path, str(log)), None) == "caf\u00e9 \ufffd\n"


def test_a_log_that_moved_with_its_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "node-a-1a2b"
    folder.mkdir()
    (folder / "stdout.log").write_text("here\n")
    assert tail(place(folder, "/elsewhere/node-a-1a2b/stdout.log"), None) == "here\n"


@pytest.mark.parametrize("path", ["/nowhere/stdout.log", "nul\0l", "/"])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, path: str) -> None:
    assert tail(place(tmp_path, path), None) is None


def test_a_link_and_a_file_of_another_user_are_nothing(tmp_path: Path) -> None:
    log, link = tmp_path / "stdout.log", tmp_path / "link"
    log.write_text("sesame\n")
    link.symlink_to(log)
    folder = tmp_path / "node-a"
    folder.mkdir()
    (folder / "l").symlink_to(tmp_path)
    assert tail(place(folder, str(log)), None) == "sesame\n"
    for path in (link, folder / "l" / "stdout.log"):
        assert tail(place(folder, str(path)), None) is None
    for other in (None, os.geteuid() + 1):
        assert tail(replace(place(folder, str(log)), owner=other), None) is None
