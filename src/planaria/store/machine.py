"""What every request means, decided without clock and I/O: the reference that all backends are measured by.

The caller says what time it is, hears when the next lease ends, and fetches what has changed. The simulator drives this
class; `hub.py` puts it on a loop.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque

from planaria.base.value import Value
from planaria.store.model import (
    ENTRY_COST_BYTES,
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Denied,
    Entry,
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Left,
    List,
    Listed,
    Put,
    Refused,
    Remaining,
    Renew,
    Renewed,
    Revoke,
    Written,
    why_not_listed,
    why_refused,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.store.model import Reply, Request


class Limits(Value):
    """How much a machine holds. Over it, requests are denied and the oldest history is forgotten."""

    size_bytes: int = 64 << 20
    leases: int = 100_000
    history: int = 4096
    history_bytes: int = 8 << 20


class _Lease:
    """A lease: how long it was given for, when it ends, and what hangs on it."""

    __slots__ = ("deadline", "keys", "ttl_s")

    def __init__(self, ttl_s: float, now: float) -> None:
        self.ttl_s = ttl_s
        self.deadline = now + ttl_s
        self.keys: set[str] = set()


class Machine:
    """A store without hands. Two that are asked the same at the same times are equal in everything they say.

    `start` is the revision before the first write. A server takes a random one in each of its lives, so that revisions
    and leases of an earlier life match nothing.
    """

    def __init__(self, *, start: int = 0, limits: Limits | None = None) -> None:
        self.revision = start
        self._last_lease = start
        self._limits = limits or Limits()
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        self._size_bytes = 0
        self._leases: dict[int, _Lease] = {}
        self._ends: list[tuple[float, int]] = []
        self._news: list[Changed] = []
        self._history: deque[Changed] = deque()
        self._history_bytes = 0
        self._forgotten = start

    def request(self, asked: Request, now: float) -> Reply:
        """Perform one request; leases that have ended by `now` are ended first."""
        self.expire(now)
        why = why_refused(asked)
        if why is not None:
            return Refused(why)
        match asked:
            case Get(key):
                entry = self._entries.get(key)
                return Found(entry.value, entry.revision, entry.lease) if entry else Absent()
            case List(prefix):
                return self._list(prefix)
            case Put():
                return self._put(asked)
            case Delete(key, expect):
                return self._delete(key, expect)
            case _:
                return self._lease_request(asked, now)

    def expire(self, now: float) -> None:
        """End the leases whose time is over at `now`, the earliest first."""
        while (end := self.next_expiry()) is not None and end <= now:
            self._end(self._ends[0][1])

    def next_expiry(self) -> float | None:
        """Return when the next lease ends, if none is renewed, or None."""
        while self._ends:
            end, number = self._ends[0]
            lease = self._leases.get(number)
            if lease is None:
                heapq.heappop(self._ends)
            elif lease.deadline != end:  # renewed since: the heap holds one moment for each lease, and learns late
                heapq.heapreplace(self._ends, (lease.deadline, number))
            else:
                return end
        return None

    def take_changes(self) -> tuple[Changed, ...]:
        """Return what has changed since this was last asked, in order."""
        news, self._news = tuple(self._news), []
        return news

    def changes_after(self, revision: int, limit: int) -> list[Changed] | None:
        """Return the first `limit` changes after `revision`, in order, or None when not all of them are remembered."""
        if not self._forgotten <= revision <= self.revision:
            return None
        # Every change has a revision of its own, one more than the last: its place follows from it.
        skipped = revision - self._forgotten
        return [self._history[place] for place in range(skipped, min(skipped + limit, len(self._history)))]

    def _list(self, prefix: str) -> Reply:
        found = []
        for place in range(bisect_left(self._keys, prefix), len(self._keys)):
            if not self._keys[place].startswith(prefix):
                break
            found.append(self._entries[self._keys[place]])
        why = why_not_listed(tuple(found))
        return Refused(why) if why else Listed(tuple(found), self.revision)

    def _put(self, asked: Put) -> Reply:
        before = self._entries.get(asked.key)
        if asked.expect is not None and asked.expect != _revision_of(before):
            return Conflict(_revision_of(before))
        if asked.lease is not None and asked.lease not in self._leases:
            return LeaseGone()
        after = Entry(asked.key, asked.value, self.revision + 1, asked.lease)
        size_bytes = self._size_bytes + _cost(after) - (_cost(before) if before else 0)
        if size_bytes > self._limits.size_bytes:
            return Denied(f"the store is full: it holds at most {self._limits.size_bytes} bytes", by_rights=False)
        if before is None:
            insort(self._keys, asked.key)
        else:
            self._detach(before)
        self._size_bytes = size_bytes
        self._entries[asked.key] = after
        if asked.lease is not None:
            self._leases[asked.lease].keys.add(asked.key)
        self._tell(asked.key, asked.value)
        return Written(self.revision)

    def _delete(self, key: str, expect: int | None) -> Reply:
        before = self._entries.get(key)
        if expect is not None and expect != _revision_of(before):
            return Conflict(_revision_of(before))
        if before is None:
            return Absent()
        self._remove(before)
        return Deleted()

    def _lease_request(self, asked: Grant | Renew | Revoke | Remaining, now: float) -> Reply:
        if isinstance(asked, Grant):
            return self._grant(asked.ttl_s, now)
        lease = self._leases.get(asked.lease)
        if lease is None:
            return LeaseGone()
        match asked:
            case Renew():
                lease.deadline = now + lease.ttl_s
                return Renewed(lease.ttl_s)
            case Revoke(number):
                self._end(number)
                return LeaseGone()
            case Remaining():
                return Left(lease.ttl_s, lease.deadline - now)

    def _grant(self, ttl_s: float, now: float) -> Reply:
        if len(self._leases) >= self._limits.leases:
            return Denied(f"the store is full: it holds at most {self._limits.leases} leases", by_rights=False)
        self._last_lease += 1
        lease = self._leases[self._last_lease] = _Lease(ttl_s, now)
        heapq.heappush(self._ends, (lease.deadline, self._last_lease))
        if len(self._ends) > 2 * len(self._leases) + 64:  # revoked leases leave their moments behind
            self._ends = [(lease.deadline, number) for number, lease in self._leases.items()]
            heapq.heapify(self._ends)
        return Granted(self._last_lease, ttl_s)

    def _end(self, number: int) -> None:
        for key in sorted(self._leases[number].keys):
            self._remove(self._entries[key])
        del self._leases[number]

    def _remove(self, entry: Entry) -> None:
        self._detach(entry)
        self._size_bytes -= _cost(entry)
        del self._entries[entry.key]
        del self._keys[bisect_left(self._keys, entry.key)]
        self._tell(entry.key, None)

    def _detach(self, entry: Entry) -> None:
        if entry.lease is not None:
            self._leases[entry.lease].keys.remove(entry.key)

    def _tell(self, key: str, value: bytes | None) -> None:
        self.revision += 1
        change = Changed(key, value, self.revision)
        self._news.append(change)
        self._history.append(change)
        self._history_bytes += _weight(change)
        while len(self._history) > self._limits.history or self._history_bytes > self._limits.history_bytes:
            oldest = self._history.popleft()
            self._history_bytes -= _weight(oldest)
            self._forgotten = oldest.revision


def _revision_of(entry: Entry | None) -> int:
    return entry.revision if entry else 0


def _cost(entry: Entry) -> int:
    return len(entry.key) + len(entry.value) + ENTRY_COST_BYTES


def _weight(change: Changed) -> int:
    return len(change.key) + len(change.value or b"") + ENTRY_COST_BYTES
