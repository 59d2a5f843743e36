"""The driver performs what a machine orders, in order, and keeps the story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rendezvous_rig import Hands

from planaria.base.channel import PEER
from planaria.base.loop import Loop
from planaria.errors import InternalError
from planaria.rendezvous import driver as driver_module
from planaria.rendezvous.driver import PART_WITHIN_S, STORY_LENGTH, Driver
from planaria.rendezvous.links import Trouble
from planaria.rendezvous.messages import Done, Ended, Heard, Renew, Welcome
from planaria.rendezvous.model import (
    SELF,
    Close,
    Connect,
    EndRun,
    Fence,
    KillWorkers,
    LeaveRequested,
    Lost,
    Opened,
    ReadKey,
    Received,
    Say,
    Send,
    Settings,
    Standing,
    StopWorkers,
    Ticked,
    WakeAt,
    WorkersDone,
    WorkersStopped,
)
from planaria.rendezvous.security import Security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.rendezvous.model import Effect, Event
    from planaria.rendezvous.records import Records

SETTINGS = Settings("n0", "127.0.0.1", "127.0.0.1:1", 1)


class FakeMachine:
    """Orders what a test put into its rules, by the event or its class."""

    made: FakeMachine

    def __init__(self, settings: Settings, _now: float) -> None:
        FakeMachine.made = self
        self.settings = settings
        self.standing = Standing()
        self.is_leading = self.has_leader = self.is_ended = self.is_parting = False
        self.heard: list[Event] = []
        self.rules: dict[object, tuple[Effect, ...]] = {}

    def begin(self, _now: float) -> tuple[Effect, ...]:
        return (Say("begun", passing=True),)

    def handle(self, event: Event, _now: float) -> tuple[Effect, ...]:
        self.heard.append(event)
        found = self.rules.get(event, self.rules.get(type(event), ()))
        if not isinstance(found, tuple):
            raise found
        return found


class Known:
    """An opening that knows everything at once; or only in a hurry."""

    def __init__(self, *, late: bool = False) -> None:
        self.driver: Driver | None = None
        self.late = late
        self.records: Records | None = None

    def begin(self) -> None:
        if not self.late:
            self.hurry()

    def hurry(self) -> None:
        assert self.driver is not None
        self.driver.start(SETTINGS, (), self.records)

    def cancel(self) -> None:
        pass


class Bench:
    def __init__(self, *, late: bool = False) -> None:
        self.now = 10.0
        self.loop = Loop(lambda: self.now)
        self.hands = Hands()
        self.opening = opening = Known(late=late)
        self.driver = self.hands.driver = opening.driver = Driver(self.loop, self.hands, opening, Security())
        self.driver.begin()

    @property
    def machine(self) -> FakeMachine:
        return FakeMachine.made

    def turn(self, times: int = 5) -> None:
        for _ in range(times):
            self.loop.run_once(0)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    monkeypatch.setattr(driver_module, "Rendezvous", FakeMachine)
    made: list[Bench] = []

    def build(*, late: bool = False) -> Bench:
        made.append(Bench(late=late))
        return made[-1]

    yield build
    for bench in made:
        bench.driver.close()
        bench.loop.close()


def test_events_that_effects_cause_wait_their_turn(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {WorkersDone: (StopWorkers(3, "why", 1.0), Say("after", passing=False))}
    bench.driver.post(WorkersDone())
    assert bench.machine.heard == [WorkersDone(), WorkersStopped(20003)]
    assert bench.hands.stops == ["why"]
    assert bench.hands.said == [("begun", True), ("after", False)]


def test_hands_get_what_is_theirs(make: Callable[..., Bench]) -> None:
    bench = make()
    ended = Ended("done", 0, "", (), 0)
    bench.machine.rules = {WorkersDone: (Fence(12.0), KillWorkers("late"), EndRun(ended))}
    bench.driver.post(WorkersDone())
    assert (bench.hands.fences, bench.hands.kills, bench.hands.ended) == ([12.0], ["late"], ended)


def test_only_the_last_moment_ordered_comes(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {WorkersDone: (WakeAt(11.0),), Heard: ()}
    bench.driver.post(WorkersDone())
    bench.machine.rules = {WorkersDone: (WakeAt(12.0),)}
    bench.driver.post(WorkersDone())
    bench.now = 11.5
    bench.turn()
    assert Ticked() not in bench.machine.heard
    bench.now = 12.0
    bench.turn()
    assert bench.machine.heard.count(Ticked()) == 1
    bench.machine.rules = {WorkersDone: (WakeAt(13.0), WakeAt(None))}
    bench.driver.post(WorkersDone())
    bench.now = 20.0
    bench.turn()
    assert bench.machine.heard.count(Ticked()) == 1


def test_an_agent_talks_to_itself_over_two_ends(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {
        WorkersDone(): (Connect("to-1", SELF),),
        Opened("to-1"): (Send("to-1", Done(1)),),
        Received(SELF, Done(1)): (Send(SELF, Welcome(1, "n0")),),
    }
    bench.driver.post(WorkersDone())
    assert bench.machine.heard == [WorkersDone()]
    bench.turn()
    assert bench.machine.heard[1:] == [Opened("to-1"), Received(SELF, Done(1)), Received("to-1", Welcome(1, "n0"))]


@pytest.mark.parametrize(("closed", "other"), [("to-1", SELF), (SELF, "to-1")])
def test_one_end_that_is_closed_is_lost_to_the_other_after_what_was_sent(
    make: Callable[..., Bench], closed: str, other: str
) -> None:
    bench = make()
    bench.machine.rules = {
        WorkersDone(): (Connect("to-1", SELF),),
        Heard(): (),
        LeaveRequested("now"): (Send(other, Done(9)), Send(closed, Done(1)), Close(closed), Send(closed, Done(2))),
    }
    bench.driver.post(WorkersDone())
    bench.turn()
    bench.driver.post(LeaveRequested("now"))
    bench.turn()
    assert bench.machine.heard[-2:] == [Received(other, Done(1)), Lost(other)]


def test_a_new_connection_to_itself_hears_nothing_of_the_old_one(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {
        WorkersDone(): (Connect("to-1", SELF),),
        LeaveRequested("now"): (Send("to-1", Done(1)), Close("to-1"), Connect("to-2", SELF), Send("to-2", Done(2))),
    }
    bench.driver.post(WorkersDone())
    bench.turn()
    bench.driver.post(LeaveRequested("now"))
    bench.turn()
    assert bench.machine.heard[-2:] == [Opened("to-2"), Received(SELF, Done(2))]


def test_a_message_to_nobody_is_dropped(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {WorkersDone(): (Send("in-9", Done(1)), Close("in-9"))}
    bench.driver.post(WorkersDone())
    assert bench.machine.heard == [WorkersDone()]


def test_a_bug_of_the_machine_comes_with_its_story(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {LeaveRequested: InternalError("no rule")}  # type: ignore[dict-item]
    bench.driver.post(WorkersDone())
    with pytest.raises(InternalError) as caught:
        bench.driver.post(LeaveRequested("bad"))
    told = str(caught.value)
    assert told.index("begun") < told.index("WorkersDone()") < told.index("LeaveRequested(reason='bad') -> ?")


def test_the_story_is_bounded_and_heartbeats_are_not_in_it(make: Callable[..., Bench]) -> None:
    bench = make()
    for _ in range(STORY_LENGTH * 2):
        bench.driver.post(WorkersDone())
    for _ in range(STORY_LENGTH):
        bench.driver.post(Received("in-1", Renew(1, 1)))
    assert len(bench.driver.story) == STORY_LENGTH
    assert {type(event) for event, _ in bench.driver.story} == {WorkersDone}


def test_an_event_that_comes_before_the_machine_makes_it_start(make: Callable[..., Bench]) -> None:
    bench = make(late=True)
    assert bench.driver.snapshot().node == ""
    bench.driver.post(LeaveRequested("early"))
    assert bench.machine.heard == [LeaveRequested("early")]
    assert bench.driver.snapshot().node == "n0"


def test_nothing_happens_after_close(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {WorkersDone: (WakeAt(11.0), Connect("to-1", SELF))}
    bench.driver.post(WorkersDone())
    bench.driver.close()
    bench.driver.close()
    bench.now = 12.0
    bench.turn()
    bench.driver.post(WorkersDone())
    assert bench.machine.heard == [WorkersDone()]


class Leaving:
    """Records that tell a test when they want to be called back."""

    def __init__(self) -> None:
        self.on_done: Callable[[], object] = lambda: None

    def close(self, on_done: Callable[[], object]) -> None:
        self.on_done = on_done


def test_a_driver_is_gone_when_its_store_was_told(make: Callable[..., Bench]) -> None:
    bench = make(late=True)
    records = Leaving()
    bench.opening.records = records  # type: ignore[assignment]
    bench.opening.hurry()
    assert not bench.driver.is_gone
    bench.driver.close()
    assert not bench.driver.is_gone
    records.on_done()
    assert bench.driver.is_gone


def test_a_driver_goes_on_until_the_store_has_heard_that_its_node_has_left(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.is_parting = True
    bench.driver.close()
    bench.driver.close()  # once is enough
    bench.driver.post(Ticked())
    assert not bench.driver.is_gone
    bench.machine.is_parting = False
    bench.driver.post(Ticked())
    assert bench.driver.is_gone
    bench.driver.post(Ticked())
    assert bench.machine.heard == [Ticked(), Ticked()]


def test_a_driver_goes_when_the_store_does_not_hear_that_its_node_has_left(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.is_parting = True
    bench.driver.close()
    bench.now += PART_WITHIN_S
    bench.turn()
    assert bench.driver.is_gone


def test_a_driver_that_has_nothing_to_say_is_gone_at_once(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.driver.close()
    assert bench.driver.is_gone


def test_a_run_that_did_not_begin_says_whom_it_could_not_reach(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.driver.links.troubles["a:1"] = Trouble(PEER, "cannot reach a:1 (it has another token)")
    bench.machine.rules = {WorkersDone: (EndRun(Ended("timeout", 124, "no leader was found", (), 0)),)}
    bench.driver.post(WorkersDone())
    assert bench.hands.ended is not None
    assert bench.hands.ended.explanation == "no leader was found; cannot reach a:1 (it has another token)"


def test_an_agent_may_close_the_driver_when_it_hears_the_end(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.hands.end = lambda _ended: bench.driver.close()  # type: ignore[method-assign]
    bench.machine.rules = {WorkersDone: (EndRun(Ended("done", 0, "", (), 0)), Say("too late", passing=False))}
    bench.driver.post(WorkersDone())
    assert ("too late", False) not in bench.hands.said


def test_a_snapshot_shows_what_the_run_waits_for(make: Callable[..., Bench]) -> None:
    bench = make()
    assert bench.driver.snapshot().waiting_for == "begun"


def test_keys_without_a_store_are_a_bug(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.machine.rules = {WorkersDone: (ReadKey("leader"),)}
    with pytest.raises(InternalError):
        bench.driver.post(WorkersDone())
