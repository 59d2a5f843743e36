"""The journal's beat: at once, then once a second while things move, then silence."""

from __future__ import annotations

from typing import Any

from clocks import FakeLoop

from planaria.agent.pace import Pace
from planaria.agent.pulse import Pulse
from planaria.contract.commit import Stamp
from planaria.contract.control import Progress


class Rig:
    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.pace = Pace()
        self.told: list[tuple[str, float, dict[str, Any]]] = []
        self.pulse = Pulse(self.loop, self.pace, lambda *event: self.told.append(event))  # type: ignore[arg-type]
        self.reports: dict[int, tuple[Progress, float]] = {}
        self.commits: dict[str, Stamp] = {}
        self.pulse.reports = lambda: self.reports
        self.pulse.commits = lambda: self.commits
        self.pulse.begin(2, 4)

    def step(self, at: float, step: int) -> None:
        self.loop.run_until(at)
        self.reports[1] = Progress(step, (("samples", 8.0 * step),)), at
        self.pace.report(1, step, 8.0 * step, at)
        self.pulse.stir()


def test_the_first_step_is_told_at_once_and_then_one_event_a_second() -> None:
    rig = Rig()
    for number in range(31):
        rig.step(200.0 + number / 10, number + 1)
    assert [event[1] for event in rig.told] == [200.0, 201.0, 202.0, 203.0]
    name, _, data = rig.told[-1]
    assert (name, data["round"], list(data["ranks"])) == ("planaria.progress", 2, ["5"])
    assert (data["ranks"]["5"]["step"], data["ranks"]["5"]["first"], data["ranks"]["5"]["rate"]) == (30, 1, 10.0)


def test_nothing_ticks_while_nothing_moves() -> None:
    rig = Rig()
    rig.step(200.0, 1)
    assert rig.loop.run_until(210.0) == 1
    assert rig.loop.pending() == []
    assert len(rig.told) == 1
    rig.pulse.flush()
    assert len(rig.told) == 1


def test_what_was_not_told_yet_is_told_before_a_life_ends() -> None:
    rig = Rig()
    rig.step(200.0, 1)
    rig.step(200.2, 2)
    rig.pulse.flush()
    assert [event[2]["ranks"]["5"]["step"] for event in rig.told] == [1, 2]


def test_a_commit_is_told_when_it_is_the_newest_of_its_tier() -> None:
    rig = Rig()
    stamp = Stamp(rank=0, step=70, round=2, generation=7, run=1, world_size=8)
    rig.commits = {"node": stamp}
    rig.pulse.stir()
    rig.commits = {"node": stamp, "disk": stamp}
    rig.loop.run_until(110.0)
    told = [(name, data) for name, _, data in rig.told]
    assert told == [
        ("planaria.commit", {"tier": "node", "step": 70, "run": 1, "round": 2, "generation": 7}),
        ("planaria.commit", {"tier": "disk", "step": 70, "run": 1, "round": 2, "generation": 7}),
    ]


def test_samples_that_are_no_number_are_not_told() -> None:
    rig = Rig()
    rig.reports[1] = Progress(3, (("samples", float("nan")),)), 100.0
    rig.pulse.stir()
    assert rig.told[0][2]["ranks"]["5"]["samples"] is None


def test_the_first_step_of_a_new_life_does_not_wait_for_a_beat() -> None:
    rig = Rig()
    rig.step(200.0, 1)
    rig.loop.run_until(200.1)
    rig.reports.clear()
    rig.pulse.begin(3, 4)
    rig.step(200.2, 2)
    assert [(at, data["round"]) for _, at, data in rig.told] == [(200.0, 2), (200.2, 3)]
