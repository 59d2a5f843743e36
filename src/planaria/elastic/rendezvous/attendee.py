"""This process' seat at a meeting, for a caller that asks instead of being told: the protocol runs in a thread beside it.

The caller's thread takes places and reports, the loop's thread does what the rendezvous orders. A caller that is asked to
stop does so when it next looks; nobody can kill its workers for it. See docs/elastic-rendezvous.md for what that costs.
"""

from __future__ import annotations

import time
from datetime import timedelta
from logging import getLogger
from threading import Condition
from typing import TYPE_CHECKING

from planaria.agent.meeting import FAREWELL_S, LAST_WORDS_S, open_meeting
from planaria.agent.trust import is_within_host
from planaria.base.addresses import join_address, split_address
from planaria.base.text import safe_line
from planaria.contract import exit_status
from planaria.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousInfo,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from planaria.elastic.store import DistStoreError, Store
from planaria.elastic.store.client import Client
from planaria.elastic.store.thread import LoopThread, Over
from planaria.process.ports import Reservation
from planaria.rendezvous.model import EndRequested, LeaveRequested, Settings, WorkersFailed, WorkersStopped
from planaria.rendezvous.security import security_of
from planaria.store.client import RemoteStore
from planaria.store.server import StoreServer

if TYPE_CHECKING:
    from planaria.agent.settings import Meeting
    from planaria.elastic.rendezvous.api import RendezvousError
    from planaria.rendezvous.driver import Driver
    from planaria.rendezvous.messages import Ended, Place

log = getLogger(__name__)

_ANOTHER_ROUND = WorkersFailed((), (), (), free=True)
_THE_END = EndRequested("a handler closed it", 0.0)
_BOOTSTRAP_S = 30.0  # how long rank 0 of a round that started may take to say where its workers listen
_GONE_WITHIN_S = FAREWELL_S + LAST_WORDS_S + 2.0
_LOOK_S = 0.01


class Attendee:
    """One membership: from looking for the others to the end of the run, or to our goodbye."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._security = security_of(meeting.token, meeting.options)
        self._changed = Condition()
        self._place: Place | None = None
        self._is_taken = False  # the caller has the place: its workers may be alive
        self._had_place = False
        self._is_closed = False
        self._ordered = ""
        self._ended: Ended | None = None
        self._client: Client | None = None
        self._port: Reservation | None = None
        self._waiting_for = ""
        # What only the loop's thread knows.
        self._life: int | None = None  # the round that was started here and not yet reported as stopped
        self._was_told = False
        self._is_closing = False
        self._server: StoreServer | None = None
        self._is_server_fresh = False
        self._driver: Driver
        self._thread = LoopThread()
        try:
            self._thread.call(self._open)
        except BaseException:
            self._thread.stop()
            raise

    # For the caller.

    @property
    def ended(self) -> Ended | None:
        """How the run ended, once that is known."""
        return self._ended

    @property
    def wants_change(self) -> bool:
        """Tell whether the caller should stop its workers and look for its next place."""
        with self._changed:
            is_over = self._thread.has_ended or (self._ended is not None and self._ended.kind != "done")
            return self._is_taken and (bool(self._ordered) or is_over)

    def next_round(self, deadline: float, master: RendezvousStoreInfo | None) -> RendezvousInfo:
        """Say that no worker of the last round is alive, and wait for the next. `master`: where workers meet, if it is fixed.

        Raises:
            RendezvousError: There is none.
        """
        while True:
            place = self._next_place(deadline)
            try:
                store = self._store_of(place)
                told = master or self._bootstrap(place, store)
            except (DistStoreError, Over) as problem:
                if not self.wants_change:
                    raise RendezvousConnectionError(
                        f"rank 0 of round {place.round} does not say where its workers listen: {problem}; "
                        "do all nodes of this run use a handler in the same way?"
                    ) from problem
            else:
                return RendezvousInfo(store, place.slot or 0, place.size, told)

    def close(self) -> None:
        """End the run, in good order: everybody is asked to stop, this caller too."""
        self._thread.post(self._close)
        self._wake_as_closed()

    def shut(self, timeout_s: float) -> bool:
        """End the run, whose workers are dead here; tell whether it has ended everywhere. Then go."""
        self._wake_as_closed()
        try:
            is_with_others = self._thread.call(self._close_stopped)
        except Over:
            is_with_others = False
        with self._changed:
            self._is_taken = False
            if is_with_others:
                self._changed.wait_for(lambda: self._ended is not None or self._thread.has_ended, timeout_s)
            heard = self._ended is not None or not is_with_others
        self.leave("it shut down")
        return heard

    def leave(self, reason: str) -> None:
        """Say goodbye and let go of everything. The others go on."""
        if self._thread.is_inherited:
            return
        self._thread.post(lambda: self._leave(reason))
        self._thread.wait_end(_GONE_WITHIN_S)
        self._release_port()
        with self._changed:
            self._changed.notify_all()

    def _wake_as_closed(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _next_place(self, deadline: float) -> Place:
        with self._changed:
            if self._is_taken and self._place is not None:
                number = self._place.round
                self._thread.post(lambda: self._stopped_by_caller(number))
                self._place, self._is_taken, self._ordered = None, False, ""
            self._drop_client("its round is over")
            while self._place is None:
                if self._is_closed:
                    raise RendezvousClosedError(f"the rendezvous '{self._meeting.run_id}' is closed")
                if self._ended is not None:
                    raise self._error(self._ended)
                if self._thread.has_ended:
                    raise RendezvousConnectionError("the rendezvous was shut down") from self._thread.problem
                if not self._changed.wait(max(deadline - time.monotonic(), 0.0)) and self._place is None:
                    raise RendezvousTimeoutError(self._too_late())
            self._is_taken = self._had_place = True
            return self._place

    def _too_late(self) -> str:
        why = f"there was no place in a round of '{self._meeting.run_id}' in time"
        return f"{why}: {self._waiting_for}" if self._waiting_for else why

    def _error(self, ended: Ended) -> RendezvousError:
        why = safe_line(ended.explanation, 1000)
        if ended.kind == "timeout":
            return RendezvousTimeoutError(why)
        if ended.kind in ("lost", "refused") or ended.status == exit_status.USAGE:
            return RendezvousConnectionError(why)
        if ended.kind == "done" and not self._had_place:
            return RendezvousGracefulExitError(f"the run '{self._meeting.run_id}' ended without this node")
        return RendezvousClosedError(f"the rendezvous '{self._meeting.run_id}' is closed{': ' if why else ''}{why}")

    def _store_of(self, place: Place) -> Store:
        address = join_address(place.master_addr, place.master_port)
        token, tls = self._security.token, self._security.dial_tls
        client = Client(self._thread, lambda loop: RemoteStore(loop, (address,), token=token, tls=tls))
        with self._changed:
            self._client = client
            if self._ordered:
                self._drop_client(self._ordered, self._meeting.ttl_s)
        return Store(client, host=place.master_addr, port=place.master_port)

    def _bootstrap(self, place: Place, store: Store) -> RendezvousStoreInfo:
        """Agree on where the workers meet. Rank 0's agent keeps the port until its next round."""
        usual = store.timeout
        store.set_timeout(timedelta(seconds=_BOOTSTRAP_S))
        self._release_port()
        self._port = Reservation() if place.slot == 0 else None
        port = self._port.port if self._port is not None else None
        told = RendezvousStoreInfo.build(place.slot or 0, store, place.master_addr, port)
        store.set_timeout(usual)
        return told

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.release()
            self._port = None

    def _drop_client(self, why: str, after_s: float = 0.0) -> None:
        """Let nobody wait for long in a store whose round is to end."""
        if self._client is not None:
            self._client.close(f"this store is over: {why}", after_s)
            self._client = None

    # The hands of the rendezvous, on the loop.

    def start(self, place: Place) -> None:
        """Offer the place to the caller."""
        self._life, self._was_told = place.round, False
        self._is_server_fresh = self._is_server_fresh and place.slot != 0
        if self._is_closing:
            self._stopped()
            return
        with self._changed:
            self._place, self._ordered, self._waiting_for = place, "", ""
            self._changed.notify_all()

    def stop(self, round: int, reason: str, grace_s: float) -> None:  # noqa: ARG002  # the caller takes its own time
        """Ask the caller to stop; one that has no place yet has no workers either."""
        self._was_told = True
        with self._changed:
            if self._is_taken and self._place is not None:
                self._ordered = reason or "the world changes"
                self._drop_client(self._ordered, self._meeting.ttl_s)
                return
            self._place = None
        self._stopped()

    def kill(self, reason: str) -> None:
        """Ask the caller to stop: nobody can do it in its place."""
        self.stop(-1, reason, 0.0)

    def fence(self, deadline: float | None) -> None:
        """Do nothing: there is no guardian who could kill the workers of others."""

    def end(self, ended: Ended) -> None:
        """Tell the caller that the run is over."""
        with self._changed:
            self._ended = ended
            self._drop_client("the run has ended", self._meeting.ttl_s)
            self._changed.notify_all()
        self._thread.loop.call_soon(self._driver.close)

    def say(self, text: str, passing: bool) -> None:
        """Tell those who read logs."""
        line = safe_line(text, 1000)
        if passing:
            self._waiting_for = line
        log.log(10 if passing else 20, "%s: %s", self._meeting.run_id, line)

    # What happens on the loop.

    def _open(self) -> None:
        self._driver = open_meeting(self._thread.loop, self._meeting, _draft(self._meeting), self)
        port = self._fresh_port()
        self._driver.begin()
        self._driver.post(WorkersStopped(port))

    def _stopped(self) -> None:
        self._life = None
        self._driver.post(WorkersStopped(self._fresh_port()))

    def _stopped_by_caller(self, number: int) -> None:
        """Report that the caller's workers are dead; if nobody asked for that, ask all others for another round."""
        if self._life != number:
            return
        was_told = self._was_told
        self._stopped()
        if not was_told:
            self._driver.post(_ANOTHER_ROUND)

    def _close(self) -> None:
        self._is_closing = True
        self._driver.post(_THE_END)

    def _close_stopped(self) -> bool:
        """Close for a caller without workers; tell whether there is anybody who will answer."""
        if self._life is not None:
            self._stopped()
        self._close()
        seen = self._driver.snapshot()
        return seen.is_leading or seen.standing.round >= 0

    def _leave(self, reason: str) -> None:
        self._driver.post(LeaveRequested(reason))
        self._thread.loop.call_later(FAREWELL_S if self._ended is None else 0.0, self._go)

    def _go(self) -> None:
        self._driver.close()
        if self._server is not None:
            self._server.close()
        self._finish(self._thread.loop.now() + LAST_WORDS_S)

    def _finish(self, deadline: float) -> None:
        loop = self._thread.loop
        if self._driver.is_gone or loop.now() >= deadline:
            loop.stop()
        else:
            loop.call_later(_LOOK_S, lambda: self._finish(deadline))

    def _fresh_port(self) -> int:
        """Return the port of a store that no round has used: if this node gets rank 0, its agents meet there."""
        if self._server is None or not self._is_server_fresh:
            if self._server is not None:
                self._server.close()
            token, tls = self._security.token, self._security.listen_tls
            listen = (_listen_host(self._meeting), 0)
            self._server = StoreServer(self._thread.loop, listen, token=token, tls=tls, on_refused=log.warning)
            self._is_server_fresh = True
        return self._server.port


def _listen_host(meeting: Meeting) -> str:
    """Return where the store listens: on loopback where the agents do, else everywhere, as they do."""
    if not is_within_host(meeting):
        return ""
    if meeting.local_addr is not None:
        return meeting.local_addr
    return "::1" if ":" in split_address(meeting.endpoints[0])[0] else "127.0.0.1"


def _draft(meeting: Meeting) -> Settings:
    """Return what the rendezvous has to know. Restarts are counted by each agent for itself, as with torch."""
    return Settings(
        node="",
        host="",
        address="",
        local_world_size=1,
        run_id=meeting.run_id,
        min_nodes=meeting.min_nodes,
        max_nodes=meeting.max_nodes,
        ttl_s=meeting.ttl_s,
        quiet_s=meeting.quiet_s,
        join_timeout_s=meeting.join_timeout_s,
        resize_grace_s=meeting.resize_grace_s,
        on_lost_majority=meeting.on_lost_majority,
        always_restart=True,
    )
