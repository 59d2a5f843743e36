"""A vigil on a real loop with a clock moved by hand. Nobody is examined; what would be found is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria.agent import charge
from planaria.agent import vigil as room
from planaria.agent.examiner import Found, Request
from planaria.agent.model import Group, Job
from planaria.agent.settings import Vigilance
from planaria.agent.vigil import Vigil
from planaria.base.loop import Loop
from planaria.contract.control import Progress
from planaria.contract.env import Round
from planaria.contract.failure import Failure
from planaria.process.model import Command
from planaria.process.workers import WorkerSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLOOR_S = 2.0
LIFE = Round(4, "job7", "default", 1, 2, 2, 4, 2, 4, 2, "10.0.0.1", 4711, 1, 3, "")
FIRST = 2  # the rank of local rank 0
FOUND = Found((FIRST + 1,), (FIRST,), "hangs at x; evidence in y", "rank 3 hangs at x; evidence in y", is_kept=True)


class Rig:
    """An agent's driver, as far as a vigil sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
        self.now = 100.0
        self.loop = Loop(lambda: self.now)
        self.asked: list[tuple[Request, Callable[[Found], object]]] = []
        self.written: list[Callable[[], object]] = []
        self.failing = False
        self.cancelled = 0
        self.posted: list[Any] = []
        self.said: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.settled = 0
        self.held_at = float("inf")  # when the console took something for the last time
        self.evidence_dir = "/logs/evidence"
        self.group = Group(size=2, max_restarts=3, grace_s=1.0, phase="running")
        self.life = LIFE
        seen = tuple(WorkerSeen(number, FIRST + number, 1 + 2**22 + number, True, self.now) for number in (0, 1))
        self.workers = SimpleNamespace(
            seen=seen,
            black_boxes=tuple((one, 7) for one in seen),
            is_held=lambda since: since >= self.held_at,
            mark_black_boxes=lambda: None,
            settle_black_boxes=self._settle,
            suspect=lambda rank, message, at, signal: Failure(
                FIRST + rank, rank, "n", 9, -signal, at, 1.0, "watchdog", message=message
            ),
        )
        self.control = SimpleNamespace(
            witnesses=frozenset(), speakers=frozenset({0, 1}), ask_witnesses=lambda _line: None, catch_up=lambda: None
        )
        self.observer = SimpleNamespace(emit=lambda name, _at, **told: self.events.append((name, told)))
        monkeypatch.setattr(room, "Examination", self._examination)
        monkeypatch.setattr(charge, "OTHERS_S", 0.0)  # other nodes have looked, unless a test says otherwise
        monkeypatch.setattr(charge, "OTHERS_SHARE", 0.0)
        command = Command("script", "a.py", ())
        vigilance = Vigilance(FLOOR_S, policy)  # type: ignore[arg-type]
        job = Job(command, 2, "job7", "default", 3, 1.0, (15,), {}, vigilance=vigilance)
        self.vigil = Vigil(job, self.loop, self, "n")  # type: ignore[arg-type]
        self.vigil.wall_s = lambda: 0.0
        self.vigil.begin(seen)

    def _settle(self) -> None:
        self.settled += 1

    def _examination(
        self,
        _loop: object,
        _environ: object,
        request: Request,
        on_found: Callable[[Found], object],
        on_over: Callable[[], object],
    ) -> object:
        if self.failing:
            raise OSError("no more processes")
        self.asked.append((request, on_found))
        self.written.append(on_over)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def post(self, event: object) -> None:
        self.posted.append(event)

    def say(self, line: str) -> None:
        self.said.append(line)

    def pass_s(self, seconds: float) -> None:
        """Let time go by in small turns of the loop."""
        for _ in range(int(seconds / 0.05)):
            self.now += 0.05
            self.loop.run_once(0)

    def train(self, steps: int, first: int = 0) -> None:
        for step in range(first, first + steps):
            self.pass_s(0.1)
            for rank in (0, 1):
                self.vigil.progressed(rank, Progress(step))

    def find(self, found: Found = FOUND, *, writes: bool = False) -> None:
        """Let the newest examination find something, and end, unless it `writes` yet."""
        self.asked[-1][1](found)
        if not writes:
            self.written[-1]()
        self.pass_s(0.1)

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(policy: str = "report") -> Rig:
        made.append(Rig(monkeypatch, policy))
        made[-1].train(10)
        return made[-1]

    yield make
    for one in made:
        one.loop.close()
