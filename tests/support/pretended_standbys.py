"""Standbys without processes, on a machine whose time and memory a test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clocks import FakeLoop

from planaria.contract.standby import JOIN, Report
from planaria.process import prints
from planaria.process.spares import Plan
from planaria.process.standbys import Standbys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GB = 1 << 30


class FakeStandby:
    """A process that is ready when a test says so, and takes a gigabyte from then on until it has ended."""

    last = 0
    finds = Report()

    def __init__(self, local_rank: int, order: object, plan: Plan) -> None:
        FakeStandby.last += 1
        self.pid = FakeStandby.last
        self.local_rank, self.order, self.plan = local_rank, order, plan
        self.report: Report | None = None
        self.is_ending = False
        self.has_arrived = plan.mode != JOIN

    memory_bytes = GB
    has_joined = False

    @property
    def is_ready(self) -> bool:
        return self.report is not None

    def hear(self) -> bool:
        if not self.has_arrived:
            self.has_arrived = True
            return True
        self.report = self.finds if self.plan.load else Report()
        return False

    def last_words(self) -> str:
        return ""

    def fileno(self) -> int:
        return self.pid

    def hand_over_lifeline(self) -> None: ...

    def staleness(self) -> str:
        return ""

    def mismatch(self, _order: object) -> str:
        return ""

    def refusal(self, _order: object) -> str:
        return self.mismatch(_order)

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
    def __init__(self, free: int, asked: int | None = None, plan: Plan | None = None) -> None:
        self.machine = Machine(free)
        self.told: list[str] = []
        self.standbys = Standbys(
            self.machine,  # type: ignore[arg-type]
            asked,
            watch=lambda _pid, _lifeline: None,
            tell=self.told.append,
            free=lambda: self.machine.free,
        )
        self.plan = plan or Plan()
        self.keep()
        if plan is None:
            self.settle()

    def keep(self) -> None:
        self.standbys.keep(("order",) * 4, (self.plan,) * 4)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Have all get ready who can."""
        while self.machine.readers:
            (pid, hear), *_ = self.machine.readers.items()
            is_last_word = any(one.has_arrived for one in self.standbys._standing.values() if one.pid == pid)
            self.machine.free -= GB if is_last_word else 0
            hear()

    def bury(self) -> None:
        """Have those end who were told to."""
        for pid in [*self.standbys._ending]:
            self.machine.free += GB
            assert self.standbys.exited(pid, -9)
        self.settle()

    def wait(self, seconds: float) -> None:
        self.machine.run_until(self.machine.at + seconds)
        self.settle()

    def why(self, local_rank: int) -> str:
        """Take the standby of a local rank; return why there is none."""
        return self.standbys.take(local_rank, "order").why  # type: ignore[arg-type]

    @property
    def modes(self) -> list[str]:
        return [one.plan.mode for one in self.standbys._standing.values()]

    @property
    def count(self) -> int:
        return len(self.standbys.seen)


def joining_plan(folder: Path) -> Plan:
    """Return the plan of standbys that run a program, up to `join()`; the program is made in the folder."""
    main = folder / "main.py"
    main.write_text("")
    return Plan(JOIN, (("os", ""),), program=((str(main), prints.take(str(main))),), patience_s=100.0)
