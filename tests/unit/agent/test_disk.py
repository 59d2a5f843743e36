from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop

from planaria.agent.disk import Disk
from planaria.archive.writer import Pinned
from planaria.contract.commit import Stamp

if TYPE_CHECKING:
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
