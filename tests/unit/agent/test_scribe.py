"""What is written into a node's folder when its disk does not keep up, and what those see who look at it meanwhile."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

import pytest

from planaria.agent import scribe as room
from planaria.agent.scribe import MOST_WAITING, Page, Scribe
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

EVENT = {"name": "planaria.x", "metadata": {}}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Have no event written before this is set."""
    answers, write = threading.Event(), Page.write

    def slowly(page: Page, event: Mapping[str, object]) -> None:
        answers.wait()
        write(page, event)

    monkeypatch.setattr(Page, "write", slowly)
    yield answers
    answers.set()


def filled(folder: Path, said: list[str]) -> Scribe:
    """Return one that has more to write than it may have, which it has said."""
    found = Scribe(str(folder), said.append)
    for _ in range(MOST_WAITING + 2):
        found.take(EVENT)
    return found


def test_a_report_is_written_however_many_events_wait(tmp_path: Path, disk: threading.Event) -> None:
    said: list[str] = []
    scribe = filled(tmp_path, said)
    scribe.keep("report.json", b"{}")
    disk.set()
    assert scribe.close() == ""
    assert (tmp_path / "report.json").read_bytes() == b"{}"
    assert said == [f"{tmp_path} does not keep up, going on without what is not written"]


def test_an_end_without_a_report_is_told_although_the_disk_was_slow_before(
    tmp_path: Path, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "CLOSE_S", 0.0)
    said: list[str] = []
    scribe = filled(tmp_path, said)
    scribe.keep("report.json", b"{}")
    assert scribe.close() == said[0]
    disk.set()
    scribe._thread.join()


def test_who_finds_a_journal_finds_its_folder_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look whether a folder is locked is to lock it for a moment: that must not be the moment of its agent."""
    looked: list[bool] = []

    class Seen(Page):
        def __init__(self, folder: str, *details: object) -> None:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                looked.append(False)
            except BlockingIOError:
                looked.append(True)
            finally:
                os.close(descriptor)
            super().__init__(folder, *details)  # type: ignore[arg-type]

    monkeypatch.setattr(room, "Page", Seen)
    scribe = Scribe(str(tmp_path), print)
    assert (looked, scribe.is_locked) == ([True, True], True)
    scribe.close()


def test_files_that_cannot_be_opened_leave_nothing_locked(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    (tmp_path / "journal.jsonl").mkdir()
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError):
            Scribe(str(folder), print)
    assert set(os.listdir("/proc/self/fd")) == before
