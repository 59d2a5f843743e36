from __future__ import annotations

from typing import Any

import exposition
import pytest
from clocks import FakeLoop
from groupsim import failure, place
from kept import Kept

from planaria.agent.driver import Driver
from planaria.agent.journal import Journal
from planaria.agent.machine import step
from planaria.agent.membership import LeaseMoved, RoundStarted, TakePlace
from planaria.agent.model import (
    Begun,
    EndTree,
    Finish,
    Group,
    Job,
    Outcome,
    ProgressReported,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.observer import SIGNS_WITHIN_S, Observer
from planaria.agent.phases import PHASES
from planaria.base.value import replace
from planaria.contract.control import Progress
from planaria.contract.failure import stopped
from planaria.process.model import Command
from planaria.process.workers import WorkerSeen

WALL = 1_700_000_000.0
JOB = Job(Command("script", "a.py"), 2, "run-1", "trainer", 3, 30.0, (), {})
GROUP = Group(size=2, max_restarts=3, grace_s=30.0)
STOP = (SignalWorkers(15), SetDeadline(30.0))


class FakeWorkers:
    def __init__(self) -> None:
        self.by_pid = {501: 0, 502: 1}
        self.signing = frozenset({0, 1})
        self.promoted: tuple[int, ...] = ()
        self.cold: dict[int, str] = {}
        self.given: dict[int, float] = {}

    @property
    def seen(self) -> tuple[WorkerSeen, ...]:
        return tuple(
            WorkerSeen(one, one, pid, True, 0.0, f"/logs/{one}/stdout.log") for pid, one in self.by_pid.items()
        )

    def signs(self) -> dict[int, float]:
        return self.given


class Rig:
    """An observer with everything it talks to."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.workers = FakeWorkers()
        self.kept = Kept()
        self.observer = Observer(JOB, self.loop, lambda: WALL + self.loop.at, "host-a")  # type: ignore[arg-type]
        self.observer.workers = self.workers
        self.observer.handlers = (self.kept,)

    def see(self, event: Any, *effects: Any, group: Group = GROUP) -> None:
        self.loop.run_until(max(self.loop.at, getattr(event, "at", 0.0)))
        self.observer.saw(event, effects, group, self.loop.at)

    def begin(self) -> None:
        self.see(Begun(100.0), StartWorkers(0, 0, ""))
        self.see(WorkersStarted(101.0), group=replace(GROUP, running=frozenset({0, 1})))

    def crash(self) -> None:
        bad = failure(0, 3, at=109.5, message="exit status 3")
        self.see(WorkerExited(0, 110.0, bad), *STOP, group=replace(GROUP, failures=(bad,)))
        other = failure(1, -15, at=111.0)
        group = replace(GROUP, failures=(bad, stopped(other, 0)), restarts=1)
        self.see(WorkerExited(1, 111.0, other), EndTree(5.0), group=group)
        self.see(TreeEnded(112.0), TellRestart(True), StartWorkers(1, 1, "rank 0 failed"))
        self.workers.by_pid = {601: 0, 602: 1}
        self.see(WorkersStarted(113.0), group=replace(GROUP, running=frozenset({0, 1}), restarts=1))

    def names(self) -> list[str]:
        return [event["name"].removeprefix("planaria.") for event in self.kept.events]

    def last(self, name: str) -> Any:
        return next(event for event in reversed(self.kept.events) if event["name"] == f"planaria.{name}")

    def sample(self, name: str, **labels: str) -> float | None:
        family = exposition.read(self.observer.registry.expose()).get(name)
        return None if family is None else family.samples.get((name, tuple(labels.items())))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_run_is_told_from_its_start_to_its_end(rig: Rig) -> None:
    rig.begin()
    rig.see(WorkerExited(0, 105.0))
    rig.see(WorkerExited(1, 106.0), EndTree(5.0))
    rig.see(TreeEnded(107.0), Finish(Outcome("done", 0)))
    assert rig.names() == [
        "run.started",
        "round.started",
        "worker.started",
        "worker.started",
        "worker.exited",
        "worker.exited",
        "run.ended",
    ]
    assert rig.last("run.ended")["metadata"] == {
        "run_id": "run-1",
        "role": "trainer",
        "host": "host-a",
        "at": 107.0,
        "outcome": "done",
        "status": 0,
        "signal": None,
        "explanation": "",
        "restarts": 0,
        "duration_s": 7.0,
    }


def test_every_event_has_the_wall_time_of_its_own_moment(rig: Rig) -> None:
    rig.loop.at = 104.0
    rig.observer.saw(Begun(100.0), (), GROUP, 104.0)
    (event,) = rig.kept.events
    assert event["timestamp"] == round((WALL + 100.0) * 1000)
    assert event["source"] == "AGENT"
    assert event["metadata"]["at"] == 100.0


def test_a_workers_end_says_which_and_whose_doing_it_was(rig: Rig) -> None:
    rig.begin()
    rig.crash()
    ends = [event["metadata"] for event in rig.kept.events if event["name"] == "planaria.worker.exited"]
    assert [(end["rank"], end["pid"], end["status"], end["result"], end["round"]) for end in ends] == [
        (0, 501, 3, "failed", 0),
        (1, 502, -15, "stopped", 0),
    ]
    assert ends[0]["message"] == "exit status 3"
    assert rig.sample("planaria_worker_exits_total", result="failed") == 1
    assert rig.sample("planaria_worker_exits_total", result="stopped") == 1
    assert rig.sample("planaria_worker_exits_total", result="ok") == 0


def test_a_restart_is_told_once_when_every_worker_has_given_its_sign(rig: Rig) -> None:
    rig.begin()
    rig.crash()
    rig.workers.given = {0: 113.25}
    rig.loop.run_until(114.75)
    assert "restart" not in rig.names()
    rig.workers.given = {0: 113.25, 1: 114.5}
    rig.loop.run_until(120.0)
    assert rig.names().count("restart") == 1
    told = rig.last("restart")
    assert told["timestamp"] == round((WALL + 114.5) * 1000)
    metadata = told["metadata"]
    assert [metadata[f"{phase}_s"] for phase in PHASES] == [0.5, 0.0, 2.0, 0.0, 1.0, 1.5]
    assert metadata["total_s"] == 5.0
    assert (metadata["reason"], metadata["kind"], metadata["charged"]) == ("rank 0 failed", "failed", True)
    assert rig.observer.restarts == [
        {"timestamp": told["timestamp"], **{key: metadata[key] for key in metadata if key in rig.observer.restarts[0]}}
    ]
    assert rig.sample("planaria_restarts_total", reason="failed") == 1
    assert rig.sample("planaria_restarts_charged_total") == 1
    assert [rig.sample("planaria_worker_restarts_total", how=how) for how in ("promoted", "cold")] == [0, 0]
    assert rig.loop.pending() == []


def test_workers_that_stood_by_are_counted_beside_those_that_started_cold(rig: Rig) -> None:
    rig.begin()
    rig.workers.promoted, rig.workers.cold = (0,), {1: "it has died"}
    rig.crash()
    rig.workers.given = {0: 113.25, 1: 114.5}
    rig.loop.run_until(120.0)
    assert [rig.sample("planaria_worker_restarts_total", how=how) for how in ("promoted", "cold")] == [1, 1]


def test_signs_are_looked_for_less_and_less_often_and_not_for_ever(rig: Rig) -> None:
    rig.begin()
    assert rig.loop.pending() == [], "the first start is no restart: nobody waits for signs"
    rig.crash()
    looks = rig.loop.run_until(113.0 + SIGNS_WITHIN_S + 1.0)
    assert 10 < looks < 150
    assert rig.names().count("restart") == 1
    assert rig.last("restart")["metadata"]["ready_s"] == 0.0
    assert rig.loop.pending() == []


def test_a_restart_tells_who_was_promoted_and_why_others_were_not(rig: Rig) -> None:
    rig.begin()
    rig.crash()
    rig.see(TreeEnded(111.0), TellRestart(True), StartWorkers(1, 1, "rank 0 failed"))
    rig.workers.promoted, rig.workers.cold = (1,), {0: "it is not ready yet"}
    rig.see(WorkersStarted(112.0))
    rig.workers.promoted, rig.workers.cold = (), {}
    rig.workers.given = {0: 112.1, 1: 112.0}
    rig.loop.run_until(120.0)
    (record,) = rig.observer.restarts
    assert (record["promoted"], record["cold"]) == ([1], {"0": "it is not ready yet"})
    (told,) = [one["metadata"] for one in rig.kept.events if one["name"] == "planaria.restart"]
    assert (told["promoted"], told["cold"]) == ([1], {"0": "it is not ready yet"})


def test_a_worker_that_signed_and_failed_before_anybody_looked_has_signed(rig: Rig) -> None:
    rig.begin()
    rig.crash()
    rig.workers.given = {0: 113.001}
    rig.loop.at = 113.002
    rig.observer.saw(WorkerExited(0, 113.002, failure(0, at=113.002)), STOP, GROUP, 113.002)
    metadata = rig.last("restart")["metadata"]
    assert metadata["signed"] == 1
    assert metadata["ready_s"] == 0.001


def test_where_the_time_of_a_restart_went_is_in_the_histograms(rig: Rig) -> None:
    rig.workers.signing = frozenset()
    rig.begin()
    rig.crash()
    for phase, seconds in zip(PHASES, (0.5, 0.0, 2.0, 0.0, 1.0, 0.0), strict=True):
        family = exposition.read(rig.observer.registry.expose())["planaria_restart_phase_seconds"]
        assert family.samples["planaria_restart_phase_seconds_sum", (("phase", phase),)] == seconds
    family = exposition.read(rig.observer.registry.expose())["planaria_restart_seconds"]
    assert family.samples["planaria_restart_seconds_sum", ()] == 3.5


def test_the_gauges_show_the_round_the_group_is_in(rig: Rig) -> None:
    rig.begin()
    rig.see(ProgressReported(0, 7))
    rig.see(ProgressReported(1, 5))
    assert rig.sample("planaria_progress_step") == 7
    assert rig.sample("planaria_workers_running") == 2
    assert rig.sample("planaria_restarts_left") == 3
    assert (rig.sample("planaria_round"), rig.sample("planaria_world_size"), rig.sample("planaria_nodes")) == (0, 2, 1)
    assert rig.sample("planaria_run_start_time_seconds") == WALL + 100.0
    rig.crash()
    assert rig.sample("planaria_restarts_left") == 2
    assert (rig.sample("planaria_round"), rig.sample("planaria_rounds_total")) == (1, 2)
    assert rig.sample("planaria_progress_step") is None, "a new life has not reported yet"


def test_among_others_a_round_says_which_part_of_it_is_here(rig: Rig) -> None:
    here = place(4, slot=1, nodes=3, restart_count=2, reason="node b joined")
    rig.observer.journal = Journal("host-a-1", None, print)
    rig.see(RoundStarted(here, 100.0), TakePlace(here))
    rig.see(WorkersStarted(101.0))
    assert rig.observer.journal.notebook.events[0]["metadata"]["start"] == "e"  # type: ignore[index]
    told = rig.last("round.started")["metadata"]
    assert (told["round"], told["restart_count"], told["reason"]) == (4, 2, "node b joined")
    assert (told["nodes"], told["first_rank"], told["world_size"]) == (3, 2, 6)
    assert rig.last("worker.started")["metadata"]["rank"] == 3
    assert rig.sample("planaria_world_size") == 6


def test_what_happens_many_times_a_second_is_no_event(rig: Rig) -> None:
    rig.see(LeaseMoved(105.0))
    rig.see(ProgressReported(0, 1))
    assert rig.kept.events == []


def test_a_closed_observer_tells_nobody(rig: Rig) -> None:
    rig.begin()
    count = len(rig.kept.events)
    rig.observer.close()
    rig.observer.close()
    assert rig.kept.is_closed
    rig.see(WorkerExited(0, 105.0))
    assert len(rig.kept.events) == count


@pytest.mark.parametrize("crashes", [0, 1, 2, 5])
def test_an_observer_that_comes_late_is_told_what_happened_before(crashes: int) -> None:
    """The story of the driver is led through the machine again, so that nothing is missing but the pids of the dead."""
    group = Group(size=2, max_restarts=9, grace_s=30.0)
    events: list[Any] = [Begun(100.0), WorkersStarted(101.0)]
    for at in range(110, 110 + 10 * crashes, 10):
        bad = failure(0, 3, at=at - 0.5, message="exit status 3")
        events += [WorkerExited(0, float(at), bad), WorkerExited(1, at + 1.0, failure(1, -15, at=at + 1.0))]
        events += [TreeEnded(at + 2.0), WorkersStarted(at + 3.0)]
    story, now = [], group
    for event in events:
        now, effects = step(now, event)
        story.append((event, effects))
    rig = Rig()
    rig.loop.at = 200.0
    rig.workers.given = {0: 200.0, 1: 200.5}
    rig.observer.catch_up(story, group)
    rig.loop.run_until(201.0)
    life = ["worker.exited", "worker.exited", "round.started"]
    names = [name for name in rig.names() if name != "restart"]
    assert names == ["run.started", "round.started", *life * crashes, "worker.started", "worker.started"]
    assert rig.names().count("restart") == len(rig.observer.restarts) == crashes
    assert rig.sample("planaria_restarts_total", reason="failed") == crashes
    assert rig.last("worker.started")["timestamp"] == round((WALL + events[-1].at) * 1000)
    if crashes:
        assert rig.last("restart")["metadata"]["reason"] == "rank 0 failed"
        assert rig.kept.events[2]["metadata"]["pid"] == bad.pid


def test_a_story_that_has_lost_its_beginning_is_not_told() -> None:
    rig = Rig()
    rig.observer.catch_up([(TreeEnded(112.0), ())], GROUP)
    assert rig.names() == []


def test_a_journal_has_the_last_words_that_handlers_are_spared() -> None:
    rig = Rig()
    rig.observer.journal = Journal("host-a-1", None, print)
    rig.begin()
    rig.observer.pulse.reports = lambda: {0: (Progress(7, (("samples", 70.0),)), 105.0)}
    rig.see(ProgressReported(0, 7))
    rig.crash()
    kept = {event["name"]: event["metadata"] for event in rig.observer.journal.notebook.events}
    assert kept["planaria.run.started"]["node"] == "host-a-1"  # type: ignore[index]
    assert kept["planaria.worker.started"]["log_files"] == ["/logs/1/stdout.log"]  # type: ignore[index]
    assert kept["planaria.progress"]["ranks"]["0"]["step"] == 7  # type: ignore[index]
    first = next(one for one in rig.observer.journal.notebook.events if one["name"] == "planaria.worker.exited")
    assert "traceback" in first["metadata"]  # type: ignore[operator]
    assert "traceback" not in rig.last("worker.exited")["metadata"]
    assert "planaria.progress" not in {event["name"] for event in rig.kept.events}


def test_a_message_of_megabytes_is_cut_before_it_is_told() -> None:
    rig = Rig()
    rig.observer.journal = Journal("host-a-1", None, print)
    rig.begin()
    bad = failure(0, 3, at=109.5, message="y" * 3_000_000)
    group = replace(GROUP, failures=(bad,), causes=(bad,))
    rig.see(WorkerExited(0, 110.0, bad), *STOP, group=group)
    rig.see(TreeEnded(112.0), Finish(Outcome("failed", 1, explanation="z" * 3_000_000)), group=group)
    for event in rig.observer.journal.notebook.events:
        assert len(str(event)) < 20_000
    assert len(rig.last("worker.exited")["metadata"]["message"]) == 4000


def test_workers_train_while_they_are_only_told_that_the_world_changes() -> None:
    rig = Rig()
    rig.begin()
    running = replace(GROUP, phase="running", running=frozenset({0, 1}))
    rig.see(WorkersStarted(101.0), group=running)
    rig.see(RoundStarted(place(1), 105.0), group=replace(running, phase="resizing"))
    for at in range(106, 121):
        rig.loop.run_until(float(at))
        rig.see(ProgressReported(0, at), group=replace(running, phase="resizing"))
    assert rig.observer.pace.trained_s(120.0) == 14.0


def test_an_observer_that_fails_costs_nothing_but_itself() -> None:
    """The job goes on, and one line says what is missing from now on."""

    class Broken:
        def saw(self, *_args: object) -> None:
            raise KeyError("promoted")

    said: list[str] = []
    driver = Driver(JOB, replace(GROUP, phase="running", running=frozenset({0, 1})), FakeLoop(), lambda *_: None)  # type: ignore[arg-type]
    driver.say = said.append
    driver.observer = Broken()  # type: ignore[assignment]
    driver.post(ProgressReported(0, 5))
    driver.post(ProgressReported(0, 6))
    assert said == [
        "cannot watch this run any more, which is a bug of planaria's: KeyError('promoted'); the job goes on"
    ]
