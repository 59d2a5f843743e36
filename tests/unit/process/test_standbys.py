"""How many stand by as memory comes and goes; the processes are pretended. `tests/real/test_standbys.py` has real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from clocks import FakeLoop

from planaria.process import standbys as module
from planaria.process.spares import FIRST_BYTES, RESERVE_BYTES, Plan
from planaria.process.standbys import LOOK_S, PAUSE_S, Standbys

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 1 << 30


class FakeStandby:
    """A process that is ready when a test says so, and takes a gigabyte from then on until it has ended."""

    last = 0

    def __init__(self, local_rank: int, order: object, plan: Plan) -> None:
        FakeStandby.last += 1
        self.pid = FakeStandby.last
        self.local_rank, self.order, self.plan = local_rank, order, plan
        self.report: Any = None
        self.is_ending = False

    memory_bytes = GB
    has_joined = False

    @property
    def is_ready(self) -> bool:
        return self.report is not None

    def hear(self) -> bool:
        self.report = type("Report", (), {"unfit": frozenset()})()
        return True

    def fileno(self) -> int:
        return self.pid

    def hand_over_lifeline(self) -> None: ...

    def staleness(self) -> str:
        return ""

    def mismatch(self, _order: object) -> str:
        return ""

    def lend(self, _memory: object) -> None: ...

    def end(self) -> None:
        self.is_ending = True

    def close(self) -> None: ...


class Timer:
    def __init__(self, timer: Any) -> None:
        self._timer = timer
        self.cancel = timer.cancel

    @property
    def is_pending(self) -> bool:
        return self._timer.callback is not None


class Machine(FakeLoop):
    """A loop, and the memory of a node."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free
        self.readers: dict[int, Callable[[], object]] = {}

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        return Timer(super().call_later(delay_s, callback))

    def on_readable(self, fd: int, callback: Callable[[], object]) -> None:
        self.readers[fd] = callback

    def forget(self, fd: int) -> None:
        self.readers.pop(fd, None)


class Rig:
    def __init__(self, free: int, asked: int | None = None) -> None:
        self.machine = Machine(free)
        self.told: list[str] = []
        self.standbys = Standbys(
            self.machine,  # type: ignore[arg-type]
            asked,
            watch=lambda _pid, _lifeline: None,
            tell=self.told.append,
            free=lambda: self.machine.free,
        )
        self.standbys.keep(("order",) * 4, Plan())  # type: ignore[arg-type]
        self.settle()

    def settle(self) -> None:
        """Have all get ready who can."""
        while self.machine.readers:
            _, ready = self.machine.readers.popitem()
            self.machine.free -= GB
            ready()

    def bury(self) -> None:
        """Have those end who were told to."""
        for pid in [*self.standbys._ending]:
            self.machine.free += GB
            assert self.standbys.exited(pid, -9)
        self.settle()

    def wait(self, seconds: float) -> None:
        self.machine.run_until(self.machine.at + seconds)
        self.settle()

    @property
    def count(self) -> int:
        return len(self.standbys.seen)


@pytest.fixture(autouse=True)
def _pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Standby", FakeStandby)


def test_the_first_one_waits_for_memory_too() -> None:
    rig = Rig(RESERVE_BYTES + FIRST_BYTES - 1)
    assert rig.count == 0
    assert [line.partition(":")[0] for line in rig.told] == ["0 of 4 standbys"]
    rig.machine.free += 8 * GB
    rig.wait(LOOK_S)
    assert rig.count == 4


def test_fewer_is_said_once_for_each_number_whatever_is_free_meanwhile() -> None:
    rig = Rig(3 * GB)
    assert rig.count == 2
    for _ in range(5):
        rig.machine.free += 1 << 20
        rig.wait(LOOK_S)
    assert [line.partition(":")[0] for line in rig.told] == ["2 of 4 standbys"]


def test_some_end_when_others_need_the_memory_and_do_not_come_and_go() -> None:
    rig = Rig(6 * GB)
    assert rig.count == 4
    rig.machine.free -= 2 * GB
    rig.wait(LOOK_S)
    assert (rig.count, len(rig.standbys.pids)) == (3, 4), "one is ending"
    rig.bury()
    rig.wait(10 * PAUSE_S)
    assert rig.count == 3
    assert [one.local_rank for one in rig.standbys.seen] == [0, 1, 2]
    rig.machine.free += 2 * GB
    rig.wait(LOOK_S)
    assert rig.count == 4


@pytest.mark.parametrize("asked", [None, 4])
def test_a_commit_without_room_gets_that_of_all_standbys(asked: int | None) -> None:
    rig, gone = Rig(6 * GB, asked), list[int]()
    assert rig.count == 4
    assert rig.standbys.make_room(lambda: gone.append(rig.machine.free))
    assert (rig.count, gone) == (0, []), "their memory is not free yet"
    assert rig.standbys.make_room(lambda: gone.append(rig.machine.free)), "another rank lacks some as well"
    rig.bury()
    assert gone == [6 * GB]
    assert rig.standbys.overview.why == rig.told[-1] == "standbys were ended: a commit needed their memory"
    rig.wait(PAUSE_S - LOOK_S)
    assert rig.count == 0, "the memory is there, but the other ranks have not committed yet"
    rig.machine.free = 3 * GB  # as what they were promised does not count as free
    rig.wait(2 * LOOK_S)
    assert rig.count == 2, "from now on memory decides, whatever was asked for"


def test_without_standbys_there_is_no_room_to_make() -> None:
    assert not Rig(0).standbys.make_room(pytest.fail)


def test_who_ends_with_the_job_makes_room_too() -> None:
    rig, gone = Rig(6 * GB), list[int]()
    rig.standbys.close()
    assert rig.standbys.make_room(lambda: gone.append(1))
    rig.bury()
    assert (gone, rig.count) == ([1], 0)
