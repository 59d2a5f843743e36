from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop

from planaria.agent.disk import Disk
from planaria.archive.plan import Failed, Written
from planaria.archive.writer import NEEDED, Pinned
from planaria.contract.commit import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def parts(generation: int, released: list[int]) -> list[Pinned]:
    stamp = Stamp(1, 2, generation, generation, 0, 1)
    return [Pinned(stamp, memoryview(b""), lambda: released.append(generation))]


def test_who_waits_to_be_written_and_is_given_up_is_told_and_may_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(str(tmp_path), 1, FakeLoop(), lambda call: call(), pytest.fail)
    monkeypatch.setattr(disk._writer, "wake", lambda: None)  # as if it were busy with the commit before
    released: list[int] = []

    def ask() -> None:
        disk.write(parts(5, released), pytest.fail, on_given_up=ask)

    ask()
    disk.write(parts(4, released), pytest.fail)
    assert released == [5, 4], "ours was given up, and asked for again in place of the other"
    assert [one.stamp.generation for one in disk._take()] == [5]


@pytest.mark.parametrize(("nice", "set_to"), [(-10, [10]), (0, [10]), (10, []), (15, [])])
def test_who_writes_is_nice_and_never_less_so_than_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nice: int, set_to: list[int]
) -> None:
    """Only root may do that: a writer that was refused would have left its council waiting for ever."""
    asked: list[int] = []
    monkeypatch.setattr("planaria.agent.disk.os.getpriority", lambda *_: nice)
    monkeypatch.setattr("planaria.agent.disk.os.setpriority", lambda _kind, _thread, to: asked.append(to))
    disk = Disk(str(tmp_path), 1, FakeLoop(), lambda call: call(), pytest.fail)
    for _ in range(2):
        disk._take()
    assert asked == set_to


def test_while_the_writer_hangs_in_what_was_given_up_nothing_is_held_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted: list[Callable[[], object]] = []
    disk = Disk(str(tmp_path), 1, FakeLoop(), posted.append, pytest.fail)
    monkeypatch.setattr(disk._writer, "wake", lambda: None)
    released: list[int] = []
    told: list[object] = []
    disk.write(parts(1, released), told.append)
    (taken,) = disk._take()
    disk.give_up()
    assert taken.is_given_up()
    assert released == [1]
    disk.write(parts(2, released), told.append)
    assert released == [1, 2]
    assert told == [], "not before the next turn of the loop"
    posted.pop()()
    assert told == [Failed(parts(2, [])[0].stamp, NEEDED)]
    disk.write(parts(3, released), told.append, on_given_up=lambda: None)
    assert released == [1, 2], "who would hear of it waits, as the end of a run does"
    disk._on_outcome(Failed(taken.stamp, NEEDED))
    assert [one.stamp.generation for one in disk._take()] == [3]
    disk._on_outcome(Written(parts(3, [])[0].stamp, complete=True))
    disk.write(parts(4, released), told.append)
    assert [one.stamp.generation for one in disk._take()] == [4], "it is back"
    for call in posted:
        call()
    assert disk.written == 1
