"""Perform what the rendezvous machine orders, and tell it what happens. There is no decision here."""

from __future__ import annotations

from collections import deque

from planaria.base.value import Value
from planaria.errors import InternalError
from planaria.rendezvous.links import Links, Traffic, explained
from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.messages import Ack, Renew
from planaria.rendezvous.model import (
    AskAround,
    Close,
    Connect,
    EndRun,
    Fence,
    KillWorkers,
    LeaveRequested,
    ReadKey,
    Received,
    Say,
    Send,
    Standing,
    StartWorkers,
    StopWorkers,
    Ticked,
    WakeAt,
    WriteKey,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.base.loop import Loop, Timer
    from planaria.base.net import Listener
    from planaria.rendezvous.links import Who
    from planaria.rendezvous.messages import Ended, Place
    from planaria.rendezvous.model import Effect, Event, Settings
    from planaria.rendezvous.records import Records
    from planaria.rendezvous.security import Security

    class Hands(Protocol):
        """What the agent does for the rendezvous. It may post events at once: they wait their turn."""

        def start(self, place: Place) -> object:
            """Start the workers of this place."""

        def stop(self, round: int, reason: str, grace_s: float) -> object:  # noqa: A002  # the word of the domain
            """Stop the workers, if any, for `round`; post `WorkersStopped` in any case."""

        def kill(self, reason: str) -> object:
            """Kill the workers at once; post `WorkersStopped`."""

        def fence(self, deadline: float | None) -> object:
            """From this moment on no worker may live, even if this agent is stopped."""

        def end(self, ended: Ended) -> object:
            """The run is over for this agent."""

        def say(self, text: str, passing: bool) -> object:
            """Tell people, in one line."""

    class Opening(Protocol):
        """What finds out where this agent is, before the machine can start."""

        def begin(self) -> object:
            """Call the driver's `start` once everything is known, or its `fail`."""

        def hurry(self) -> object:
            """Do so before this returns, with what is known."""

        def cancel(self) -> object:
            """Do nothing of it any more."""


PART_WITHIN_S = 2.5  # how long one that leaves tries to say so in the store, while others do the same
STORY_LENGTH = 200  # events kept for the day the machine meets one it has no rule for
_HEARTBEATS = (Renew, Ack)  # they would push everything else out of the story


class Snapshot(Value):
    """What a driver shows of itself. Everything is empty before the agent knows where it listens."""

    node: str = ""
    run_id: str = ""
    address: str = ""
    standing: Standing = Standing()
    is_leading: bool = False
    has_leader: bool = False
    is_ended: bool = False
    connections: int = 0
    traffic: Traffic = Traffic()
    waiting_for: str = ""
    """The newest line about what the run waits for."""


class Driver:
    """Runs the rendezvous of one agent. For `on_failed` see `Links`."""

    def __init__(
        self,
        loop: Loop,
        hands: Hands,
        opening: Opening,
        security: Security,
        on_failed: Callable[[str, str, Who], object] = lambda _address, _why, _who: None,
    ) -> None:
        self._loop = loop
        self._hands = hands
        self._opening = opening
        self._machine: Rendezvous | None = None
        self._records: Records | None = None
        self._listeners: tuple[Listener, ...] = ()
        self._queue: deque[Event] = deque()
        self._busy = False
        self._closed = False
        self._parting: Timer | None = None
        self._store_left = True
        self._waker: Timer | None = None
        self._waiting_for = ""
        self.settings: Settings | None = None
        self.story: deque[tuple[Event | None, tuple[Effect, ...]]] = deque(maxlen=STORY_LENGTH)
        self.links = Links(loop, security, self.post, self.say, on_failed)

    def begin(self) -> None:
        """Find out where this agent is, listen, and start to look for the others."""
        self._opening.begin()

    def start(self, settings: Settings, listeners: tuple[Listener, ...], records: Records | None) -> None:
        """Start the machine: called once by the opening, when everything is known."""
        self.settings = settings
        self._listeners = listeners
        self._records = records
        now = self._loop.now()
        self._machine = Rendezvous(settings, now)
        self._busy = True
        self._obey(None, self._machine.begin(now))
        self._turn()

    def post(self, event: Event) -> None:
        """Take an event; events that effects cause wait their turn."""
        if self._closed:
            return
        if self._machine is None and isinstance(event, LeaveRequested):
            self._opening.hurry()  # whoever leaves does not wait for names to be looked up
        self._queue.append(event)
        if self._machine is not None and not self._busy:
            self._busy = True
            self._turn()

    def fail(self, ended: Ended) -> None:
        """End the run on this agent for a reason that the machine cannot know."""
        self.close()
        self._hands.end(ended)

    def close(self) -> None:
        """Leave everything. What was sent is still delivered and the store is told, while somebody turns the loop.

        That is over when `is_gone` says so: at once, or within `LAST_WORDS_S` where a store does not answer.
        """
        if self._closed or self._parting is not None:
            return
        if self._machine is not None and self._machine.is_parting:
            self._parting = self._loop.call_later(PART_WITHIN_S, self._close)
        else:
            self._close()

    def _close(self) -> None:
        self._closed = True
        if self._parting is not None:
            self._parting.cancel()
        self._opening.cancel()
        self._wake_at(None)
        self._queue.clear()
        self.links.close_all()
        for listener in self._listeners:
            listener.close()
        if self._records is not None:
            self._store_left = False
            self._records.close(self._leave_store)

    @property
    def is_gone(self) -> bool:
        """Tell whether nothing is left to be sent after `close`."""
        return self._closed and self._store_left and self.links.is_quiet

    def _leave_store(self) -> None:
        self._store_left = True

    def snapshot(self) -> Snapshot:
        """Return what can be seen from outside."""
        if self.settings is None or self._machine is None:
            return Snapshot(waiting_for=self._waiting_for)
        return Snapshot(
            node=self.settings.node,
            run_id=self.settings.run_id,
            address=self.settings.address,
            standing=self._machine.standing,
            is_leading=self._machine.is_leading,
            has_leader=self._machine.has_leader,
            is_ended=self._machine.is_ended,
            connections=len(self.links),
            traffic=self.links.traffic,
            waiting_for=self._waiting_for,
        )

    def say(self, text: str, *, passing: bool = False) -> None:
        """Tell people, and remember what the run waits for."""
        if passing:
            self._waiting_for = text
        self._hands.say(text, passing)

    def _turn(self) -> None:
        try:
            while self._queue and self._machine is not None:
                event = self._queue.popleft()
                try:
                    effects = self._machine.handle(event, self._loop.now())
                except InternalError as problem:
                    problem.add_note("\n".join(f"{past!r} -> {ordered!r}" for past, ordered in self.story))
                    problem.add_note(f"{event!r} -> ?")
                    raise
                self._obey(event, effects)
                if self._parting is not None and not self._machine.is_parting:
                    self._close()
        finally:
            self._busy = False

    def _obey(self, event: Event | None, effects: tuple[Effect, ...]) -> None:
        if not (isinstance(event, Received) and isinstance(event.message, _HEARTBEATS)):
            self.story.append((event, effects))
        for effect in effects:
            if not self._closed:  # the agent may close its driver when it hears that the run is over
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(conn, message):
                self.links.send(conn, message)
            case WakeAt(when):
                self._wake_at(when)
            case Connect(conn, address):
                self.links.connect(conn, address)
            case Close(conn):
                self.links.close(conn)
            case AskAround(address, ask):
                self.links.ask(address, ask, self.post)
            case Say(text, passing):
                self.say(text, passing=passing)
            case ReadKey() | WriteKey():
                self._ask_store(effect)
            case _:
                self._use_hands(effect)

    def _use_hands(self, effect: StartWorkers | StopWorkers | KillWorkers | Fence | EndRun) -> None:
        match effect:
            case StartWorkers(place):
                self._waiting_for = ""
                self._hands.start(place)
            case StopWorkers(number, reason, grace_s):
                self._hands.stop(number, reason, grace_s)
            case KillWorkers(reason):
                self._hands.kill(reason)
            case Fence(deadline):
                self._hands.fence(deadline)
            case EndRun(ended):
                self._hands.end(explained(ended, self.links.troubles))

    def _ask_store(self, effect: ReadKey | WriteKey) -> None:
        if self._records is None:
            raise InternalError(f"{effect!r}, and this run has no store")
        match effect:
            case ReadKey(key):
                self._records.read(key)
            case WriteKey():
                self._records.write(effect)

    def _wake_at(self, when: float | None) -> None:
        if self._waker is not None and self._waker.when == when:
            return
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        if when is not None:
            self._waker = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._waker = None
        self.post(Ticked())
