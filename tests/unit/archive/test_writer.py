from __future__ import annotations

import threading
from pathlib import Path

import pytest
from snapshot_maker import sealed

from planaria.archive.plan import Failed, Skipped, Written
from planaria.archive.shelf import Shelf
from planaria.archive.writer import NEEDED, SLOW_S, Pinned, Writer
from planaria.contract.commit import Stamp

TIMEOUT_S = 60.0


class Rig:
    """A writer whose shelf is scripted, and which takes the newest of what was offered."""

    def __init__(self, directory: str) -> None:
        self.commits: list[tuple[memoryview, Stamp]] = []
        self.lines: list[str] = []
        self.now = 0.0
        self.pinned = 0
        self.released = 0
        self.gate = threading.Event()
        self.began = threading.Semaphore(0)
        self.gate.set()
        self.failing: str | None = None
        self.written: list[int] = []
        self.shelf = Shelf(directory)
        self.shelf.write = self.write  # type: ignore[method-assign]
        self.writer = Writer(self.shelf, self.take, self.lines.append, lambda: self.now)

    def take(self) -> tuple[Pinned, ...]:
        if not self.commits:
            return ()
        memory, stamp = self.commits[-1]
        self.pinned += 1
        return (Pinned(stamp, memory[:], self.release),)

    def release(self) -> None:
        self.released += 1

    def write(self, _memory: memoryview, stamp: Stamp, *_: object) -> Written | Skipped | Failed:
        self.began.release()
        assert self.gate.wait(TIMEOUT_S)
        if self.failing:
            return Failed(stamp, self.failing)
        self.written.append(stamp.generation)
        return Written(stamp, complete=True)

    def commit(self, generation: int) -> Stamp:
        self.commits.append(sealed(generation, size=256))
        self.writer.wake()
        return self.commits[-1][1]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(str(tmp_path))


def test_the_newest_commit_is_written_and_older_ones_are_skipped(rig: Rig) -> None:
    rig.gate.clear()
    rig.commit(1)
    assert rig.began.acquire(timeout=TIMEOUT_S)
    for generation in range(2, 9):
        last = rig.commit(generation)
    rig.gate.set()
    outcome = rig.writer.flush(last.order, TIMEOUT_S)
    assert isinstance(outcome, Written)
    assert rig.written == [1, 8]
    assert rig.writer.close(TIMEOUT_S)
    assert rig.pinned == rig.released


def test_nothing_is_written_twice(rig: Rig) -> None:
    stamp = rig.commit(1)
    for _ in range(3):
        rig.writer.flush(stamp.order, TIMEOUT_S)
    assert rig.writer.close(TIMEOUT_S)
    assert rig.written == [1]


def test_a_disk_that_fails_is_said_once_and_again_when_it_works(rig: Rig) -> None:
    rig.failing = "No space left on device"
    for generation in (1, 2, 3):
        outcome = rig.writer.flush(rig.commit(generation).order, TIMEOUT_S)
        assert isinstance(outcome, Failed)
    rig.failing = None
    assert isinstance(rig.writer.flush(rig.commit(4).order, TIMEOUT_S), Written)
    assert rig.writer.close(TIMEOUT_S)
    assert rig.lines == [
        f"cannot write {sealed(1)[1]} to disk: No space left on device; training goes on, the next commit is tried",
        f"commits are written to {rig.shelf.directory} again",
    ]


def test_a_commit_that_failed_is_tried_again_when_there_is_nothing_newer(rig: Rig) -> None:
    rig.failing = "Input/output error"
    stamp = rig.commit(1)
    rig.writer.flush(stamp.order, TIMEOUT_S)
    rig.failing = None
    rig.writer.wake()
    assert rig.writer.close(TIMEOUT_S)
    assert rig.written == [1]


def test_a_slow_disk_is_said_once_and_holds_nobody_up(rig: Rig) -> None:
    rig.gate.clear()
    first = rig.commit(1)
    assert rig.began.acquire(timeout=TIMEOUT_S)
    assert rig.writer.flush(first.order, 0.01) is None
    assert rig.lines == []
    rig.now = SLOW_S + 1
    rig.commit(2)
    rig.commit(3)
    assert [line.partition(":")[0] for line in rig.lines] == ["the disk is slow"]
    assert not rig.writer.close(0.01)
    rig.gate.set()
    assert rig.writer.close(TIMEOUT_S)
    assert rig.written == [1, 3]


def test_without_a_commit_there_is_nothing_to_do(rig: Rig) -> None:
    assert rig.writer.close(TIMEOUT_S)
    other = Rig(rig.shelf.directory)
    other.writer.wake()
    assert other.writer.flush((0, 0, 0), 0.01) is None
    assert other.writer.close(TIMEOUT_S)
    other.writer.wake()
    assert other.written == []


def test_what_nobody_thought_of_is_told_once_and_the_next_commit_is_written(rig: Rig) -> None:
    write = rig.shelf.write

    def broken(*_: object) -> Written:
        raise RuntimeError("never thought of")

    rig.shelf.write = broken  # type: ignore[method-assign]
    for generation in (1, 2):
        assert isinstance(rig.writer.flush(rig.commit(generation).order, TIMEOUT_S), Failed)
    rig.shelf.write = write  # type: ignore[method-assign]
    assert isinstance(rig.writer.flush(rig.commit(3).order, TIMEOUT_S), Written)
    assert rig.writer.close(TIMEOUT_S)
    why = "RuntimeError: never thought of; training goes on, the next commit is tried"
    assert rig.lines == [
        f"cannot write {sealed(1)[1]} to disk: {why}",
        f"commits are written to {rig.shelf.directory} again",
    ]
    assert rig.pinned == rig.released


def test_a_commit_that_cannot_even_be_taken_is_told_and_the_next_is_written(rig: Rig) -> None:
    told = threading.Event()
    take, say = rig.writer._take, rig.writer._say

    def broken() -> tuple[Pinned, ...]:
        raise RuntimeError("never thought of")

    def hear(line: str) -> None:
        say(line)
        told.set()

    rig.writer._take, rig.writer._say = broken, hear
    rig.commit(1)
    assert told.wait(TIMEOUT_S)
    rig.writer._take = take
    assert isinstance(rig.writer.flush(rig.commit(2).order, TIMEOUT_S), Written)
    assert rig.writer.close(TIMEOUT_S)
    assert rig.lines == [
        "cannot take a commit to disk: RuntimeError: never thought of; training goes on, the next commit is tried"
    ]


@pytest.mark.parametrize("outcome", [Failed, Skipped, Written])
def test_a_commit_whose_memory_was_needed_has_failed_for_that_unless_it_was_written_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, outcome: type
) -> None:
    memory, stamp = sealed(1, size=256)
    told = Written(stamp, complete=True) if outcome is Written else outcome(stamp, "it holds something else")
    monkeypatch.setattr(rig.shelf, "write", lambda *_: told)
    writer = Writer(
        rig.shelf, lambda: [Pinned(stamp, memory[:], rig.release, lambda: True)], rig.lines.append, lambda: 0.0
    )
    found = writer.flush(stamp.order, TIMEOUT_S)
    assert found == (Failed(stamp, NEEDED) if outcome is Failed else told)
    assert writer.close(TIMEOUT_S)
    assert rig.released == 1
