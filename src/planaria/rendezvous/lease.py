"""The lease that an agent's keys in an external store hang on. It counts from the moment its renewal was sent."""

from __future__ import annotations

from planaria.rendezvous.model import StoreAnswered, StoreLeaseLost, StoreTrouble
from planaria.store.model import Denied, Grant, Granted, LeaseGone, Refused, Renew, Renewed, Revoke, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer
    from planaria.rendezvous.model import Event
    from planaria.store.api import Store
    from planaria.store.model import Reply

RENEWALS_A_TTL = 3  # one that gets lost leaves time for another
FIRST_RETRY_S, LONGEST_RETRY_S = 0.1, 2.0
CLOSE_WITHIN_S = 2.5  # a store that is there answers in milliseconds, on a busy disk in a second


def trouble_in(reply: Reply) -> StoreTrouble | None:
    """Return what to report of an answer that says why something was not done; None for every other answer."""
    match reply:
        case Unavailable(why):
            return StoreTrouble(why)
        case Denied(why, by_rights):
            return StoreTrouble(why, by_rights)
        case Refused(why):
            return StoreTrouble(why, final=True)
        case _:
            return None


class Lease:
    """The one lease an agent's keys hang on: granted when it is first needed, renewed for as long as it holds."""

    def __init__(self, loop: Loop, store: Store, ttl_s: float, report: Callable[[Event], object]) -> None:
        self._loop = loop
        self._store = store
        self._ttl_s = ttl_s
        self._report = report
        self._number: int | None = None
        self._sent_at = 0.0
        self._timer: Timer | None = None
        self._closed = False

    def obtain(self, on_lease: Callable[[int], object]) -> None:
        """Call back with the lease, once there is one."""
        if self._number is not None:
            on_lease(self._number)
        else:
            self._grant(on_lease, FIRST_RETRY_S)

    def tell(self) -> None:
        """Report from when on the lease counts."""
        self._report(StoreAnswered(self._sent_at))

    def forget(self) -> None:
        """Give up a lease that the store does not know any more."""
        self._number = None
        if self._timer is not None:
            self._timer.cancel()

    def release(self) -> None:
        """Revoke a lease that nothing hangs on: it would be renewed for nothing."""
        number = self._number
        self.forget()
        if number is not None and not self._closed:
            self._store.ask(Revoke(number), lambda _reply: None)

    def give_back(self, on_done: Callable[[], object]) -> None:
        """Revoke the lease, so that others need not wait for its end, and call back when that is over, or soon."""
        number = self._number
        self.forget()
        self._closed = True
        if number is None:
            on_done()
            return
        limit = self._loop.call_later(CLOSE_WITHIN_S, on_done)

        def revoked(_reply: Reply) -> None:
            limit.cancel()
            on_done()

        self._store.ask(Revoke(number), revoked)

    def _grant(self, on_lease: Callable[[int], object], retry_s: float) -> None:
        if self._closed:
            return
        sent_at = self._loop.now()

        def answered(reply: Reply) -> None:
            if self._closed:
                return
            if not isinstance(reply, Granted):
                self._loop.call_later(retry_s, lambda: self._grant(on_lease, min(retry_s * 2, LONGEST_RETRY_S)))
                self._tell_trouble(reply)
                return
            if self._number is None:
                self._number, self._sent_at = reply.lease, sent_at
                self._renew_at(sent_at + self._ttl_s / RENEWALS_A_TTL)
            on_lease(self._number)

        self._store.ask(Grant(self._ttl_s), answered)

    def _tell_trouble(self, reply: Reply) -> None:
        trouble = trouble_in(reply)
        if trouble is not None:
            self._report(trouble)

    def _renew_at(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._renew)

    def _renew(self) -> None:
        number, sent_at = self._number, self._loop.now()
        if number is None:
            return

        def answered(reply: Reply) -> None:
            if self._number != number:
                return
            match reply:
                case Renewed():
                    self._sent_at = sent_at
                    self._renew_at(sent_at + self._ttl_s / RENEWALS_A_TTL)
                    self.tell()
                case LeaseGone():
                    self.forget()
                    self._report(StoreLeaseLost())
                case Denied() | Refused():  # people have to see to it
                    self._renew_at(self._loop.now() + LONGEST_RETRY_S)
                    self._tell_trouble(reply)
                case _:
                    self._renew_at(self._loop.now() + FIRST_RETRY_S)
                    self._tell_trouble(reply)

        self._store.ask(Renew(number), answered, timeout_s=self._ttl_s / RENEWALS_A_TTL)
