"""A store in one Lease and one ConfigMap of Kubernetes, which must exist: agents may read and update these two, and no more.

Kubernetes expires nothing and orders nothing. Keys, their revisions and the newest changes are in the ConfigMap
(`kubernetes_keys.py`), written on the condition that nobody else has; leases are in annotations of the Lease, so that a renewal
writes one small object, and are ended by whoever has not seen them change for their time (`kubernetes_leases.py`).

The calls block, so threads make them: one for keys, one for leases, one that looks after what others left behind, one that
looks at the Lease, and one for each watch. A bridge brings what they find to the loop. Only users of this store pay for them.
"""

from __future__ import annotations

import os
from queue import SimpleQueue

from planaria.store.api import ANSWER_WITHIN_S, Store, Watching
from planaria.store.bridge import Bridge
from planaria.store.kubernetes_api import LEASES, Api, Manners, access_to
from planaria.store.kubernetes_leases import Vigil, read_beats
from planaria.store.kubernetes_watch import KubernetesWatching, Stream
from planaria.store.kubernetes_work import KeyDesk, KeyOrder, LeaseDesk, LeaseOrder, Sweep
from planaria.store.model import Delete, Get, List, Put, Refused, why_not_prefix, why_refused
from planaria.store.pending import Pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from planaria.base.loop import Loop, Timer
    from planaria.store.api import Where
    from planaria.store.kubernetes_leases import Beat, Dead
    from planaria.store.model import Event, Reply, Request

_THREADS_SHARE = 0.8  # of a request's time: the thread knows better than the deadline whether the API server got it
_SWEEP_WITHIN_S = 2.0  # whoever ends a lease removes its keys at once; who saw that looks after it a little later


class KubernetesStore(Store):
    """A client of the store in the Lease and the ConfigMap that `where.endpoints` names: `[NAMESPACE/]NAME`."""

    def __init__(self, loop: Loop, where: Where) -> None:
        self._loop = loop
        self._reach = (access_to(where), Manners())
        self._bridge = Bridge(loop)
        self._pending = Pending(loop)
        self._key_orders: SimpleQueue[KeyOrder | None] = SimpleQueue()
        self._lease_orders: SimpleQueue[LeaseOrder | None] = SimpleQueue()
        self._chores: SimpleQueue[Dead | Sweep | None] = SimpleQueue()
        self._watches: list[KubernetesWatching] = []
        self._vigil = Vigil(_fraction)
        self._sight: Stream | None = None
        self._timer: Timer | None = None
        self._is_blind = True
        self._is_closed = False

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = ANSWER_WITHIN_S) -> None:
        """Hand a request to a thread."""
        if self._is_closed:
            return
        why = why_refused(asked)
        if why is not None:
            self._loop.call_soon(lambda: None if self._is_closed else on_reply(Refused(why)))
            return
        self._begin()
        number = self._pending.add(asked, on_reply, timeout_s, was_sent=True)
        deadline = self._loop.now() + timeout_s * _THREADS_SHARE
        if isinstance(asked, (Get, List, Put, Delete)):
            self._key_orders.put(KeyOrder(number, asked, deadline))
        else:
            self._lease_orders.put(LeaseOrder(number, asked, deadline))

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        """Tell every change under `prefix` after a revision."""
        why = why_not_prefix(prefix)
        if why is not None:
            raise ValueError(why)
        if self._is_closed:
            return Watching()
        self._begin()
        watching = KubernetesWatching(self._bridge, self._reach, (prefix, after), on_event)
        self._watches = [*filter(lambda known: known.is_open, self._watches), watching]
        return watching

    def close(self) -> None:
        """Tell the threads to leave; they do so once what they wait for has come or timed out."""
        self._is_closed = True
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
        for watching in self._watches:
            watching.cancel()
        if self._sight is not None:
            self._sight.end()
        self._key_orders.put(None)
        self._lease_orders.put(None)
        self._chores.put(None)
        self._bridge.close()

    def _begin(self) -> None:
        """Start the threads with the first use."""
        if self._sight is not None:
            return
        clock = self._bridge.clock
        keys, leases, house = KeyDesk(self._api(), clock), self._lease_desk(), self._lease_desk()
        self._bridge.start_thread(lambda: keys.work(self._key_orders, self._answer))
        self._bridge.start_thread(lambda: leases.work(self._lease_orders, self._answer))
        self._bridge.start_thread(lambda: house.keep_house(self._chores, self._looked))
        self._observe()

    def _lease_desk(self) -> LeaseDesk:
        return LeaseDesk(self._api(), self._bridge.clock, _lease_number)

    def _api(self) -> Api:
        return Api(*self._reach, self._bridge.clock, self._bridge.closing)

    def _answer(self, number: int, reply: Reply) -> None:
        self._bridge.post(lambda: self._pending.answer(number, reply))

    # Observing the holders of leases.

    def _observe(self) -> None:
        self._sight = Stream(self._bridge, self._reach, LEASES, self._saw_lease, self._lost_sight)

    def _saw_lease(self, found: dict[str, Any] | None) -> None:
        if found is None:
            self._bridge.post(self._lose_sight)
        else:
            self._looked(read_beats(found))

    def _looked(self, beats: dict[int, Beat]) -> None:
        self._bridge.post(lambda: self._saw(beats))

    def _lose_sight(self) -> None:
        """Call nobody dead by what was seen before: who could not be seen to renew may not have been able to."""
        self._vigil = Vigil(_fraction)
        self._is_blind = True
        self._wake()

    def _lost_sight(self) -> None:
        """The Lease was removed, or may not be seen any more: look again, for as long as this store is used."""
        self._bridge.post(self._lose_sight)
        self._bridge.post(self._observe)

    def _saw(self, beats: dict[int, Beat]) -> None:
        gone = self._vigil.saw(beats, self._loop.now())
        if gone or self._is_blind:
            self._is_blind = False
            self._loop.call_later(_SWEEP_WITHIN_S * _fraction(), lambda: self._chores.put(Sweep()))
        self._wake()

    def _wake(self) -> None:
        when = self._vigil.wakes_at()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None or self._is_closed else self._loop.call_at(when, self._end_dead)

    def _end_dead(self) -> None:
        self._timer = None
        for dead in self._vigil.dead(self._loop.now()):
            self._chores.put(dead)
        self._wake()


def _fraction() -> float:
    return os.urandom(1)[0] / 256


def _lease_number() -> int:
    return int.from_bytes(os.urandom(7)) | 1
