"""The run's few keys in an external store: read and watched, written by compare-and-set, and kept by a lease.

A store may be away, and an answer may get lost after the write was done. Reads are repeated until they are answered. A
write without an answer is settled by reading: what is stored carries the name of who wrote it, so equal means ours.
"""

from __future__ import annotations

from planaria.rendezvous.lease import CLOSE_WITHIN_S, FIRST_RETRY_S, LONGEST_RETRY_S, Lease, trouble_in
from planaria.rendezvous.model import KeyRead, KeyWritten, StoreLeaseLost, WriteKey
from planaria.store.follow import follow
from planaria.store.model import (
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Denied,
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Left,
    Listed,
    Put,
    Refused,
    Remaining,
    Unavailable,
    Written,
    why_refused,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer
    from planaria.rendezvous.model import Event
    from planaria.store.api import Store, Watching
    from planaria.store.model import Reply, Request

OUTCOME = "outcome"
OUTCOME_TTL_S = 86400.0
"""How long the end of a run is remembered: a node that was away longer starts a new one."""
GONE = 1
"""What `KeyWritten` says for a key that was removed as ordered: it has no revision, and 0 means another came first."""


def key_of(run_id: str, key: str) -> str:
    """Return the name of one of a run's keys in the store."""
    return f"planaria/{run_id}/{key}"


def why_no_run(run_id: str) -> str | None:
    """Return the sentence that says why no store can hold a run of this name, or None."""
    return why_refused(Get(key_of(run_id, OUTCOME)))


def _text(value: bytes) -> str:
    return value.decode(errors="replace")  # what is no text of ours makes no sense to the machine either


class Records:
    """One agent's view of its run's keys."""

    def __init__(self, loop: Loop, store: Store, run_id: str, ttl_s: float, report: Callable[[Event], object]) -> None:
        self._loop = loop
        self._store = store
        self._run_id = run_id
        self._report = report
        self._keys: dict[str, str] = {}
        self._following: Watching | None = None
        self._is_listed = False
        self._writes: dict[str, _Write] = {}
        self._ages: dict[str, int] = {}
        self._closed = False
        self._unanswered = 0
        self._on_answered: Callable[[], object] | None = None
        self.lease = Lease(loop, store, ttl_s, report)

    def read(self, key: str) -> None:
        """Report a key now, and whenever it changes. Asked again, all keys begin again with now.

        One watch serves all keys of the run: a store has many more nodes to tell than the leader has.
        """
        self._keys[self.name_of(key)] = key
        if self._following is not None and not self._is_listed:
            return  # the listing under way is as new as this question
        self._follow()

    def _follow(self) -> None:
        """List the run's keys and watch them from then on."""
        if self._following is not None:
            self._following.cancel()
        self._is_listed = False
        self._following = follow(self._loop, self._store, key_of(self._run_id, ""), self._changed, self.tell_trouble)

    def write(self, order: WriteKey) -> None:
        """Write a key and report what came of it; a newer order for the same key takes the place of one under way."""
        if order.key in self._writes:
            self._writes.pop(order.key).cancel()
        write = _Write(self, order)
        self._writes[order.key] = write
        write.attempt()

    def close(self, on_done: Callable[[], object] = lambda: None) -> None:
        """Leave the store, once it has answered what it was asked and has the lease back; then call back.

        A store that does not answer has `CLOSE_WITHIN_S` for each. Somebody has to turn the loop until then: what the last to
        leave wrote would be lost, and others wait for the end of a lease that is not given back. `on_done` is called before
        this returns when there is nothing to wait for.
        """
        self._closed = True
        if self._following is not None:
            self._following.cancel()
        for write in self._writes.values():
            write.cancel()

        def leave() -> None:
            self._store.close()
            on_done()

        def give_back() -> None:
            self._on_answered = None
            limit.cancel()
            self.lease.give_back(leave)

        limit = self._loop.call_later(CLOSE_WITHIN_S, give_back)
        self._on_answered = give_back
        if not self._unanswered:
            give_back()

    def ask(self, asked: Request, on_reply: Callable[[Reply], object]) -> None:
        """Ask the store; nobody is called back after `close`."""

        def answered(reply: Reply) -> None:
            self._unanswered -= 1
            if not self._closed:
                on_reply(reply)
            elif not self._unanswered and self._on_answered is not None:
                self._on_answered()

        self._unanswered += 1
        self._store.ask(asked, answered)

    def later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call back after a while, unless closed by then."""
        return self._loop.call_later(delay_s, lambda: None if self._closed else callback())

    def written(self, key: str, revision: int) -> None:
        """Report the end of a write."""
        self._writes.pop(key, None)
        self._report(KeyWritten(key, revision))

    def lease_lost(self) -> None:
        """Report that what hung on the lease is gone."""
        self._report(StoreLeaseLost())

    def tell_trouble(self, reply: Reply) -> None:
        """Report why something was not done, if that is what an answer says."""
        trouble = trouble_in(reply)
        if trouble is not None and not self._closed:
            self._report(trouble)

    def name_of(self, key: str) -> str:
        """Return the name of a key in the store."""
        return key_of(self._run_id, key)

    def _changed(self, event: Listed | Changed | Refused) -> None:
        """Take what lies under the run's name: other keys may lie there too."""
        match event:
            case Listed(entries):
                self._is_listed = True
                found = {entry.key: Found(entry.value, entry.revision, entry.lease) for entry in entries}
                for name, key in list(self._keys.items()):
                    self._found(key, found.get(name, Absent()))
            case Changed(name, value, revision):
                if name in self._keys:
                    self._found(self._keys[name], Absent() if value is None else Found(value, revision))
            case Refused():
                self._is_listed = True  # it was the last word of this listing: another begins
                self.tell_trouble(event)
                self.later(LONGEST_RETRY_S, self._follow)

    def _found(self, key: str, found: Found | Absent) -> None:
        turn = self._ages[key] = self._ages.get(key, 0) + 1
        if isinstance(found, Absent):
            self._report(KeyRead(key, None, 0))
        elif key == OUTCOME:
            self._find_age(key, turn, found, FIRST_RETRY_S)
        else:
            self._report(KeyRead(key, _text(found.value), found.revision))

    def _find_age(self, key: str, turn: int, found: Found, retry_s: float) -> None:
        """Ask for the lease of an outcome, then how much of it is gone; `turn`: a newer value makes this one moot."""

        def answered(reply: Reply) -> None:
            if self._ages[key] != turn:
                return
            match reply:
                case Left(granted_s, remaining_s):
                    age_s = max(granted_s - remaining_s, 0.0)
                    self._report(KeyRead(key, _text(found.value), found.revision, age_s))
                case Found(_, _, None):  # written by hand: nobody knows when
                    self._report(KeyRead(key, _text(reply.value), reply.revision, OUTCOME_TTL_S))
                case Found():
                    self._find_age(key, turn, reply, retry_s)
                case Unavailable() | Denied() | Refused():
                    again_s = min(retry_s * 2, LONGEST_RETRY_S)
                    self.later(retry_s, lambda: self._find_age(key, turn, found, again_s))
                    self.tell_trouble(reply)
                case _:  # gone meanwhile
                    self._report(KeyRead(key, None, 0))

        self.ask(Get(self.name_of(key)) if found.lease is None else Remaining(found.lease), answered)


class _Write:
    """One order to write, until it is known what came of it."""

    def __init__(self, records: Records, order: WriteKey) -> None:
        self._records = records
        self._order = order
        self._name = records.name_of(order.key)
        self._value = (order.value or "").encode()
        self._retry_s = FIRST_RETRY_S
        self._in_doubt = False
        self._over = False

    def cancel(self) -> None:
        """Forget it: a newer order counts."""
        self._over = True

    def attempt(self) -> None:
        """Try to write, after getting the lease that the key is to hang on."""
        if self._over:
            return
        if self._order.value is None:
            self._ask(Delete(self._name, self._order.expect))
        elif self._order.key == OUTCOME:
            # A fresh lease in every attempt: what is gone of it is the age of the outcome.
            self._records.ask(Grant(OUTCOME_TTL_S), self._granted)
        elif self._order.leased:
            self._records.lease.obtain(self._put)
        else:
            self._put(None)

    def _granted(self, reply: Reply) -> None:
        if isinstance(reply, Granted):
            self._put(reply.lease)
        elif not self._over:
            self._again(self.attempt, reply)

    def _put(self, lease: int | None) -> None:
        if not self._over:
            self._ask(Put(self._name, self._value, self._order.expect, lease))

    def _ask(self, asked: Request) -> None:
        self._records.ask(asked, lambda reply: None if self._over else self._answered(reply))

    def _answered(self, reply: Reply) -> None:
        match reply:
            case Written(revision):
                self._end(revision)
            case Deleted():
                self._end(GONE)
            case Unavailable(_, maybe_done):
                self._in_doubt |= maybe_done
                self._again(self._settle if maybe_done else self.attempt, reply)
            case Denied() | Refused():
                self._again(self.attempt, reply)  # nobody came first: whoever waits for this should know what for
            case Conflict() | Absent() if self._in_doubt:
                self._settle()
            case LeaseGone() if not self._order.leased:  # the outcome's own, not the one that the leader key hangs on
                self._again(self.attempt)
            case LeaseGone():
                self._records.lease.forget()
                self._end(0)
                self._records.lease_lost()
            case _:  # somebody else came first
                self._end(GONE if isinstance(reply, Absent) and self._order.expect is None else 0)

    def _settle(self) -> None:
        """Read what is there: ours, the state before, or somebody else's."""
        if not self._over:
            self._records.ask(Get(self._name), lambda reply: None if self._over else self._compared(reply))

    def _compared(self, reply: Reply) -> None:
        match reply:
            case Found(value, revision) if self._order.value is not None and value == self._value:
                self._end(revision)
            case Absent() if self._order.value is None:
                self._end(GONE)
            case Found(_, revision) if self._order.expect in (None, revision):
                self._again(self.attempt)
            case Absent() if not self._order.expect:
                self._again(self.attempt)
            case Unavailable() | Denied() | Refused():
                self._again(self._settle, reply)
            case _:
                self._end(0)

    def _again(self, step: Callable[[], object], reply: Reply | None = None) -> None:
        """Go on in a while; tell what the store said, if it was no good."""
        self._records.later(self._retry_s, step)
        self._retry_s = min(self._retry_s * 2, LONGEST_RETRY_S)
        if reply is not None:
            self._records.tell_trouble(reply)

    def _end(self, revision: int) -> None:
        self._over = True
        if not revision and self._order.leased:
            self._records.lease.release()
        self._records.written(self._order.key, revision)
        if revision and self._order.leased and self._order.value is not None:
            self._records.lease.tell()
