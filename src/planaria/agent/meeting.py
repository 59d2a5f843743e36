"""This node's seat among the others: the rendezvous' orders become events of the group, the group's reports go back to it.

Only a job of many nodes imports this file. It decides nothing: `member.py` does for this node, the rendezvous for all.
"""

from __future__ import annotations

import os

from planaria.agent.membership import (
    AnnounceLeave,
    Fenced,
    GoodbyeSaid,
    LeaseMoved,
    LeaveRun,
    MeetOthers,
    ReportDone,
    ReportFailed,
    ReportStopped,
    RequestEnd,
    RoundStarted,
    RoundStopped,
    RunEnded,
    TakePlace,
    TellFence,
    TellLife,
    TellResize,
)
from planaria.agent.report import life_line, round_line
from planaria.agent.rounds import Neighbours, placed_round
from planaria.base.text import safe_line
from planaria.contract import exit_status
from planaria.contract.control import Resize, encode
from planaria.contract.env import POD_UID
from planaria.contract.failure import from_json, names_a_lost_peer
from planaria.contract.failure_json import failures_as_json
from planaria.errors import InternalError
from planaria.process.guardian import Fence
from planaria.process.ports import Reservation
from planaria.rendezvous.model import (
    EndRequested,
    LeaveAnnounced,
    LeaveRequested,
    Settings,
    WorkersDone,
    WorkersFailed,
    WorkersStopped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.agent.dock import Dock, Host
    from planaria.agent.driver import Driver
    from planaria.agent.membership import EndKind, SeatEffect
    from planaria.agent.model import Job
    from planaria.agent.settings import Meeting
    from planaria.base.loop import Loop
    from planaria.base.net import Connection
    from planaria.process.guardian import Line
    from planaria.rendezvous.driver import Driver as MeetingDriver
    from planaria.rendezvous.driver import Hands, Snapshot
    from planaria.rendezvous.links import Links
    from planaria.rendezvous.messages import Ended, Place
    from planaria.rendezvous.model import Event
    from planaria.store.api import Store

    class Rendezvous(Protocol):
        """What a seat needs of the rendezvous' driver."""

        def begin(self) -> object:
            """Look for the others."""

        def post(self, event: Event) -> object:
            """Take what happened to the workers."""

        def close(self) -> object:
            """Let go of everything."""

        def snapshot(self) -> Snapshot:
            """Return what can be seen from outside."""

        @property
        def links(self) -> Links:
            """Return the connections with other agents."""

        @property
        def is_gone(self) -> bool:
            """Tell whether the last words were heard; before that the loop has to be turned."""

    class Screen(Protocol):
        """Where people read."""

        def say(self, text: str, *, passing: bool = False) -> object:
            """Say one line; `passing`: until the next one."""


LONGEST_REASON = 500  # characters of a reason that workers are told
FAREWELL_S = 0.1  # what was sent is the kernel's to deliver at once, unless its buffer is full
# How long the end waits for peers to take what was sent, and for a store to answer and to take its lease back. What the last
# to leave has to say must not be lost: those who come after it would wait for it for ever.
LAST_WORDS_S = 7.5


class Seat:
    """Connects the group's driver with the rendezvous, which calls it as its `Hands`."""

    def __init__(self, job: Job, loop: Loop, group: Driver, line: Line, screen: Screen) -> None:
        self._job = job
        self._loop = loop
        self._group = group
        self._screen = screen
        self._fence = Fence(line)
        self._port: Reservation | None = None
        self._rendezvous: Rendezvous
        self._dock: Dock | None = None

    def open(self, open_driver: Callable[[Loop, Job, Seat], Rendezvous]) -> None:
        """Make the rendezvous. When it begins, and what it is told first, is the group's to say."""
        self._rendezvous = open_driver(self._loop, self._job, self)

    def close(self) -> None:
        """Give it up: the job is over on this node. What was sent last has a moment to arrive."""
        if self._dock is not None:
            self._dock.close()
        self._rendezvous.close()
        self._release_port()
        deadline = self._loop.now() + LAST_WORDS_S
        while not self._rendezvous.is_gone and (left_s := deadline - self._loop.now()) > 0:
            self._loop.run_once(left_s)

    def snapshot(self) -> Snapshot:
        """Return what can be seen of the rendezvous."""
        return self._rendezvous.snapshot()

    def dock(self, host: Host) -> Dock:
        """Make this node's dock: `host` answers what other agents ask of it. For once, after the rendezvous has begun."""
        from planaria.agent.dock import Dock

        own, links = self._rendezvous.snapshot(), self._rendezvous.links
        self._dock = Dock(self._loop, links.security, own.run_id, host, links.complaints)
        return self._dock

    def guest(self, connection: Connection, payload: bytes) -> None:
        """Take a connection that is not for the rendezvous. Before this node has a life, it has to dial again."""
        if self._dock is None and self._group.life is not None:
            self._group.hearing.keep()  # another node's workers asked for memory sooner than ours
        if self._dock is None:
            connection.close()
        else:
            self._dock.guest(connection, payload)

    # The hands of the rendezvous.

    def start(self, place: Place) -> None:
        """Start the workers of this place."""
        self._group.post(RoundStarted(place, self._loop.now()))

    def stop(self, round: int, reason: str, grace_s: float) -> None:  # noqa: A002  the word of the domain
        """Stop the workers, if any runs, and tell when none does."""
        self._group.once_looked(lambda: self._stop(round, reason, grace_s))

    def _stop(self, number: int, reason: str, grace_s: float) -> None:
        listening = self._group.control.has_listeners
        self._group.post(RoundStopped(number, reason, grace_s, self._loop.now(), listening))

    def kill(self, reason: str) -> None:
        """Kill the workers at once, and tell when none is left."""
        self._group.post(Fenced(reason, self._loop.now()))

    def fence(self, deadline: float | None) -> None:
        """Let no worker live from `deadline` on, even if this process is stopped."""
        self._fence.move(deadline, self._loop.now())
        self._group.post(LeaseMoved(deadline))

    def end(self, ended: Ended) -> None:
        """Finish: the run is over."""
        kind: EndKind = ended.kind if ended.kind in ("done", "timeout", "lost", "refused", "stopped") else "failed"  # type: ignore[assignment]
        failures = tuple(found for found in map(from_json, ended.failures) if found is not None)
        is_usage = ended.kind == "refused" or ended.status == exit_status.USAGE
        status = exit_status.USAGE if is_usage else exit_status.WORKER_FAILED
        told = (kind, ended.explanation, failures, ended.restart_count)
        self._group.once_looked(lambda: self._group.post(RunEnded(*told, self._loop.now(), status)))

    def say(self, text: str, passing: bool) -> None:
        """Tell people. What other nodes said is in it, so it is made safe."""
        self._screen.say(safe_line(text, 1000), passing=passing)

    # The orders of the group.

    def perform(self, effect: SeatEffect) -> None:
        """Do what only a group among others is ordered."""
        match effect:
            case MeetOthers():
                self._rendezvous.begin()
            case TakePlace(place):
                self._take(place)
            case TellResize(reason, grace_s):
                self._group.control.broadcast(encode(Resize(reason[:LONGEST_REASON], grace_s, self._loop.now())))
            case TellFence(reason):
                self._screen.say(f"killed the workers of this node: {safe_line(reason)}")
            case TellLife(clean):
                self._tell(clean=clean)
            case LeaveRun(reason):
                self._rendezvous.post(LeaveRequested(reason))
                self._loop.call_later(FAREWELL_S, lambda: self._group.post(GoodbyeSaid()))
            case _:
                self._rendezvous.post(self._as_report(effect))

    def _as_report(self, effect: ReportStopped | ReportDone | ReportFailed | AnnounceLeave | RequestEnd) -> Event:
        match effect:
            case ReportStopped():
                return WorkersStopped(self._fresh_port())
            case ReportDone():
                return WorkersDone()
            case ReportFailed(failures, free, why):
                times, names_peer = tuple(one.at for one in failures), tuple(map(names_a_lost_peer, failures))
                return WorkersFailed(failures_as_json(failures), times, names_peer, free, why)
            case AnnounceLeave(reason):
                return LeaveAnnounced(reason)
            case RequestEnd(reason, grace_s):
                return EndRequested(reason, grace_s)

    def _take(self, place: Place) -> None:
        self._screen.say(round_line(self._group.group, place))
        if self._port is not None:
            self._port.is_fresh = False
        self._group.neighbours = Neighbours(place.anchor, place.buddy)
        self._group.begin(placed_round(self._job, place))

    def _tell(self, *, clean: bool) -> None:
        told = life_line(self._group.group)
        if told:
            self._screen.say(told)
        if not clean:
            self._screen.say("some processes of the last life could not be ended; the next one starts beside them")

    def _fresh_port(self) -> int:
        """Return a port that no life has used, reserved until a life has used it and the next is asked for."""
        if self._job.master_port is not None:
            return self._job.master_port
        if self._port is None or not self._port.is_fresh:
            before, self._port = self._port, Reservation()
            if before is not None:
                before.release()
        return self._port.port

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.release()
            self._port = None


def open_rendezvous(loop: Loop, job: Job, hands: Seat) -> Rendezvous:
    """Make the rendezvous of a job of many nodes; nothing is opened or sent before its `begin`.

    Raises:
        UsageError: The meeting cannot be held as the command line says.
    """
    if job.meeting is None:
        raise InternalError("a node alone has nobody to meet")
    driver = open_meeting(loop, job.meeting, draft_settings(job, job.meeting), hands)
    driver.links.on_guest = hands.guest
    return driver


def open_meeting(loop: Loop, meeting: Meeting, draft: Settings, hands: Hands) -> MeetingDriver:
    """Make the driver of a meeting, for whoever has hands.

    Raises:
        UsageError: The meeting cannot be held as it is described.
    """
    from planaria.rendezvous.opening import EMBEDDED, STATIC, open_driver

    return open_driver(
        loop,
        meeting,
        hands,
        draft,
        hostname=os.uname().nodename,
        random=os.urandom(4),
        store=None if meeting.backend in (EMBEDDED, STATIC) else lambda: open_store_of(loop, meeting),
    )


def draft_settings(job: Job, meeting: Meeting) -> Settings:
    """Return what the rendezvous has to know about a job; where this node is, it finds out by itself."""
    return Settings(
        node="",
        host="",
        address="",
        local_world_size=job.local_world_size,
        role=job.role,
        pod_uid=job.environment.get(POD_UID, ""),
        run_id=meeting.run_id,
        min_nodes=meeting.min_nodes,
        max_nodes=meeting.max_nodes,
        max_restarts=job.max_restarts,
        ttl_s=meeting.ttl_s,
        quiet_s=meeting.quiet_s,
        join_timeout_s=meeting.join_timeout_s,
        resize_grace_s=meeting.resize_grace_s,
        on_lost_majority=meeting.on_lost_majority,
        always_restart=job.always_restart,
    )


def open_store_of(loop: Loop, meeting: Meeting) -> Store:
    """Make a client of the store that a meeting is held through.

    Raises:
        UsageError: It lacks its library, or cannot use what the meeting says.
    """
    from planaria.store.api import Where
    from planaria.store.backends import open_store

    options = meeting.options
    scheme = "https://" if meeting.backend == "etcd" and options.get("protocol") == "https" else ""
    where = Where(
        endpoints=tuple(f"{scheme}{endpoint}" for endpoint in meeting.endpoints),
        token=meeting.token.reveal() if meeting.token is not None else None,
        user=options.get("username", ""),
        password=options.get("password", ""),
        ca=options.get("cacert", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
        options=tuple(options.items()),
    )
    return open_store(meeting.backend, loop, where)
