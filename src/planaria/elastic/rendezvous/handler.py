"""What all handlers of ours are: the description of a meeting, which is held in a thread for those who use their methods."""

from __future__ import annotations

import time
import weakref
from datetime import timedelta
from logging import getLogger
from threading import Lock
from typing import TYPE_CHECKING

from planaria.agent.trust import OPEN_DOOR, is_trusting, is_within_host
from planaria.elastic.events import NodeState, construct_and_record_rdzv_event
from planaria.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousStoreInfo,
)
from planaria.elastic.rendezvous.attendee import Attendee
from planaria.elastic.store import Store
from planaria.elastic.store.client import Client
from planaria.elastic.store.thread import LoopThread
from planaria.errors import UsageError
from planaria.process.ports import Reservation
from planaria.store.memory import MemoryStore

if TYPE_CHECKING:
    from planaria.agent.settings import Meeting

log = getLogger(__name__)

CLOSE_TIMEOUT = timedelta(seconds=30)
_HERE = "127.0.0.1"


def is_ours(handler: RendezvousHandler) -> bool:
    """Tell whether an agent may hold the meeting of this handler by itself, instead of calling its methods.

    A subclass that waits for rounds in a way of its own is to be called.
    """
    return isinstance(handler, MeetingHandler) and type(handler).next_rendezvous is MeetingHandler.next_rendezvous


class MeetingHandler(RendezvousHandler):
    """A handler that describes a meeting.

    An agent that can be told what happens takes `meeting` and holds it on its own loop. For all others `next_rendezvous`
    and its sisters hold it in a thread.
    """

    local_addr: str | None = None
    master: RendezvousStoreInfo | None = None
    """Where the workers meet, if that is fixed: the endpoint of a static rendezvous."""
    close_timeout = CLOSE_TIMEOUT
    """How long `shutdown` waits for the others to hear that the run is over."""

    def __init__(self, backend: str, run_id: str, meeting: Meeting | None) -> None:
        self._backend_name = backend
        self._run_id = run_id
        self._described = meeting
        self._is_closed = False
        self._has_warned = False
        self._entering = Lock()
        self._attendee: Attendee | None = None
        self._goodbye: weakref.finalize[..., MeetingHandler] | None = None
        self._alone: _Alone | None = None

    @property
    def meeting(self) -> Meeting | None:
        """What `planaria run` would hold; None for a node that has nobody to meet and needs no network."""
        return self._described

    def warn_if_open(self) -> None:
        """Say once, before the meeting is held, that strangers can come to it."""
        meeting = self.meeting
        if meeting is None or self._has_warned or not is_trusting(meeting) or is_within_host(meeting):
            return
        self._has_warned = True
        log.warning("%s: %s", self._run_id, OPEN_DOOR)

    def describe(self, meeting: Meeting | None) -> None:
        """Hold another meeting than the one given first; nobody has come to it yet."""
        self._described = meeting

    def get_backend(self) -> str:
        """Return the name that this handler was asked for by."""
        return self._backend_name

    def get_run_id(self) -> str:
        """Return the name that all nodes of the run share."""
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """Tell that workers have a store of their own: the agents' is over with every round, and torch cannot speak to it."""
        return False

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round, and for a place in it. No worker of this node is alive when this is called.

        Who calls this in a round that nobody wanted to end, ends it: all others are asked to come, too.

        Raises:
            RendezvousClosedError: The run is over.
            RendezvousGracefulExitError: It ended well without this node.
            RendezvousTimeoutError: There was no place within `join_timeout`.
            RendezvousConnectionError: The others, or the store they meet through, cannot be reached.
        """
        with self._entering:
            try:
                info = self._next(self.meeting)
            except Exception as problem:
                self._record(f"{type(problem).__name__}: {problem}", NodeState.FAILED)
                raise
            self._record(f"has rank {info.rank} in a world of size {info.world_size}", NodeState.RUNNING, info.rank)
            return info

    def is_closed(self) -> bool:
        """Tell whether the run is known to be over."""
        attendee = self._attendee
        ended = attendee.ended if attendee is not None else None
        return self._is_closed or (ended is not None and ended.kind in ("done", "failed", "stopped"))

    def set_closed(self) -> None:
        """End the run: everybody is asked to stop, and no round follows. Who waits for a place is told at once."""
        self._is_closed = True
        attendee = self._attendee
        if attendee is not None:
            attendee.close()

    def num_nodes_waiting(self) -> int:
        """Return 1 as soon as the round is to end, for whatever reason: nodes came, left, failed or were lost; else 0."""
        attendee = self._attendee
        return int(attendee is not None and attendee.wants_change)

    def shutdown(self) -> bool:
        """End the run and let go of everything; no worker of this node is alive when this is called.

        The others are waited for, up to `close_timeout`. Returns whether all are known to have heard of it.
        """
        self._is_closed = True
        if self._alone is not None:
            self._alone.close()
        attendee = self._forget_attendee()
        if attendee is None:
            return True
        heard = attendee.shut(self.close_timeout.total_seconds())
        if not heard:
            log.warning("%s: not everybody is known to have heard that the run is over", self._run_id)
        return heard

    def _next(self, meeting: Meeting | None) -> RendezvousInfo:
        if meeting is None:
            return self._alone_again()
        deadline = time.monotonic() + meeting.join_timeout_s
        if self._is_closed:
            self.shutdown()  # who looks for a next round has no workers left
        self._check_open()
        attendee = self._attendee or self._attend(meeting)
        try:
            self._check_open()  # once more: who closed meanwhile may not have seen the attendee
            info = attendee.next_round(deadline, self.master)
            self._check_open()
        except BaseException as problem:
            if isinstance(problem, RendezvousClosedError):
                self.shutdown()
            self._leave("it gave up")
            raise
        else:
            return info

    def _record(self, message: str, state: NodeState, rank: int | None = None) -> None:
        name = f"{type(self).__name__}.next_rendezvous"
        construct_and_record_rdzv_event(self._run_id, message, state, name=name, rank=rank)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RendezvousClosedError(f"the rendezvous '{self._run_id}' is closed")

    def _attend(self, meeting: Meeting) -> Attendee:
        self.warn_if_open()
        try:
            attendee = self._attendee = Attendee(meeting)
        except (UsageError, OSError) as problem:
            raise RendezvousConnectionError(str(problem)) from problem
        # Whoever forgets a handler, or ends, says goodbye: the others need not find out by themselves.
        self._goodbye = weakref.finalize(self, attendee.leave, "its process ended")
        return attendee

    def _leave(self, reason: str) -> None:
        attendee = self._forget_attendee()
        if attendee is not None:
            attendee.leave(reason)

    def _forget_attendee(self) -> Attendee | None:
        attendee, self._attendee = self._attendee, None
        if self._goodbye is not None:
            self._goodbye.detach()
        return attendee

    def _alone_again(self) -> RendezvousInfo:
        self._check_open()
        if self._alone is None:
            self._alone = _Alone()
            weakref.finalize(self, self._alone.close)
        return self._alone.next_round(self.master, self.local_addr or _HERE)


class _Alone:
    """The rounds of a node that has nobody to meet."""

    def __init__(self) -> None:
        self._thread = LoopThread()
        self._client: Client | None = None
        self._port: Reservation | None = None

    def next_round(self, master: RendezvousStoreInfo | None, host: str) -> RendezvousInfo:
        """Return the only place, with an empty store and a port that no round has used."""
        self._let_go("its round is over")
        if master is None:
            self._port = Reservation()
            master = RendezvousStoreInfo(host, self._port.port)
        self._client = Client(self._thread, MemoryStore)
        return RendezvousInfo(Store(self._client), 0, 1, master)

    def close(self) -> None:
        """End the thread, and with it the store."""
        self._let_go("it was shut down")
        self._thread.stop()

    def _let_go(self, why: str) -> None:
        if self._client is not None:
            self._client.close(f"this store is over: {why}")
        if self._port is not None:
            self._port.release()
        self._client = self._port = None
