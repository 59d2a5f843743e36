"""What workers say, by both of the ways they have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from planaria.agent.hearing import Hearing
from planaria.agent.reading import read_lines
from planaria.agent.rounds import Neighbours
from planaria.agent.settings import Shelter
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.contract.control import Progress, encode
from planaria.contract.env import Round

LIFE = Round(0, "job7", "default", 0, 1, 0, 1, 0, 1, 1, "10.0.0.1", 4711, 0, 3, "")


class Rig:
    """A driver, as far as a hearing sees it."""

    def __init__(self, pattern: str) -> None:
        self.life = LIFE
        self.progress: dict[int, tuple[Progress, float]] = {}
        self.posted: list[Any] = []
        self.entered: list[str] = []
        self.reserve = None
        self.vigil = SimpleNamespace(
            progressed=lambda *_: None, speaks=lambda _: None, entered=lambda _, phase: self.entered.append(phase)
        )
        self.workers: Any = SimpleNamespace(on_lines=None)
        self.hearing = Hearing(None, SimpleNamespace(now=lambda: 7.0), self)  # type: ignore[arg-type]
        read_lines(pattern, self)  # type: ignore[arg-type]

    def post(self, event: object) -> None:
        self.posted.append(event)

    def say(self, step: int) -> None:
        self.hearing.on_message(SimpleNamespace(local_rank=0), encode(Progress(step)))  # type: ignore[arg-type]

    def write(self, lines: bytes) -> None:
        self.workers.on_lines(0, lines)

    def begin(self) -> None:
        self.life, self.progress = replace(self.life, number=self.life.number + 1), {}

    @property
    def steps(self) -> list[tuple[int, bool]]:
        return [(event.step, event.went_back) for event in self.posted]


def test_a_line_that_is_read_late_does_not_make_steps_go_back() -> None:
    here = Rig(r"step (?P<step>\d+)")
    here.say(1)
    here.say(2)
    here.write(b"step 1\nstep 2\n")
    here.say(3)
    assert here.steps == [(1, False), (2, False), (1, False), (2, False), (3, False)]
    assert here.progress[0] == (Progress(3), 7.0)


def test_steps_go_back_where_one_source_says_so_within_a_life() -> None:
    here = Rig(r"step (?P<step>\d+)")
    here.say(2)
    here.say(1)
    here.write(b"step 5\nstep 4\n")
    here.begin()
    here.say(0)
    here.write(b"step 0\n")
    assert here.steps == [(2, False), (1, True), (5, False), (4, True), (0, False), (0, False)]


def test_lines_of_a_life_are_not_in_a_phase_of_the_one_before() -> None:
    here = Rig(r"^(?P<phase>eval)|step (?P<step>\d+)")
    here.write(b"step 1\n")
    here.write(b"eval\n")
    here.write(b"step 2\neval\n")
    assert here.entered == ["eval", "", "eval"], "a reader remembers from one chunk to the next"
    here.begin()
    here.write(b"step 1\n")
    assert here.entered == ["eval", "", "eval"]


def test_commits_that_find_no_room_get_that_of_the_standbys() -> None:
    loop, asked = Loop(), list[Any]()

    def make_room(then: Any) -> bool:
        asked.append(then)
        return True

    driver: Any = SimpleNamespace(
        life=LIFE,
        keeper=None,
        control=None,
        say=lambda _line: None,
        neighbours=Neighbours(),
        reserve=SimpleNamespace(make_room=make_room),
    )
    job: Any = SimpleNamespace(meeting=None, local_world_size=1, shelter=Shelter())
    keeper, freed = Hearing(job, loop, driver).keep(), list[int]()
    assert keeper._stock.make_room()
    keeper._stock.on_free = lambda: freed.append(1)
    asked[0]()
    assert freed == [1]
    keeper.close()
    loop.close()
