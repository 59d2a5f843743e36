from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from planaria.agent.disk import NICE, Disk
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
    disk = Disk(str(tmp_path), 1, lambda call: call(), pytest.fail)
    monkeypatch.setattr(disk._writer, "wake", lambda: None)  # as if it were busy with the commit before
    released: list[int] = []

    def ask() -> None:
        disk.write(parts(5, released), pytest.fail, on_given_up=ask)

    ask()
    disk.write(parts(4, released), pytest.fail)
    assert released == [5, 4], "ours was given up, and asked for again in place of the other"
    assert [one.stamp.generation for one in disk._take()] == [5]


@pytest.mark.parametrize("nice", [0, 15])
def test_the_writer_gives_way_to_training_and_takes_back_no_nice_of_the_job(tmp_path: Path, nice: int) -> None:
    """Only root may: everybody else's first commit would fail, and those of its round wait for it."""
    disk = Disk(str(tmp_path), 1, lambda call: call(), pytest.fail)
    found: list[int] = []

    def run() -> None:
        here = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, here, max(nice, os.getpriority(os.PRIO_PROCESS, here)))
        disk._take()
        found.append(os.getpriority(os.PRIO_PROCESS, here))

    thread = threading.Thread(target=run)
    before = max(nice, NICE, os.getpriority(os.PRIO_PROCESS, 0))
    thread.start()
    thread.join()
    assert found == [before]
