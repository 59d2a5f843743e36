from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from clocks import FakeLoop

from planaria.agent.disk_wait import DiskWait
from planaria.archive.patience import FIRST_S, MOST_S


class Rig:
    """A rank that waits for memory that the disk reads, until the disk has to let go of it."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.said: list[str] = []
        self.given_up: list[float] = []
        self.disk = SimpleNamespace(written=0, give_up=lambda: self.given_up.append(self.loop.now()))
        slots: Any = SimpleNamespace(waits_for_disk=lambda _rank: True)
        disk: Any = self.disk
        loop: Any = self.loop
        self.wait = DiskWait(loop, slots, disk, self.said.append)

    def waited_s(self) -> float:
        began = self.loop.now()
        self.wait.look([0])
        assert self.loop.run_until(began + 2 * MOST_S) == 1
        return self.given_up[-1] - began


def test_a_disk_has_twice_as_long_each_time_up_to_a_limit_until_a_commit_gets_there() -> None:
    rig = Rig()
    assert [rig.waited_s() for _ in range(6)] == [FIRST_S, 20.0, 40.0, 80.0, MOST_S, MOST_S]
    assert [line.partition(" has waited ")[2].partition(" s ")[0] for line in rig.said] == [
        "10",
        "20",
        "40",
        "80",
        "120",
    ]
    rig.disk.written += 1
    assert [rig.waited_s() for _ in range(2)] == [FIRST_S, 20.0]
    assert len(rig.said) == 5, "nobody has waited longer than was said"


def test_who_waits_no_more_takes_nothing_from_the_disk() -> None:
    rig = Rig()
    rig.wait.look([0])
    rig.wait.look([])
    assert rig.loop.run_until(rig.loop.now() + 2 * FIRST_S) == 0
    assert rig.given_up == []
