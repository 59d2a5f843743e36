"""What the threads of a store in Kubernetes do: requests about keys in one, about leases in the other.

Two objects have no moment in common, so their order carries the meaning. A lease is made in the Lease object first and then
in the ConfigMap; it is ended in the same order. One that the ConfigMap still names and the Lease object does not has ended,
and whoever finds that ends it for good before saying so. So every key goes with its lease, whoever dies in between.
"""

from __future__ import annotations

from queue import Empty

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.store.kubernetes_api import CONFIG_MAPS, LEASES, Api, ApiAway, ApiConflict, ApiDenied
from planaria.store.kubernetes_keys import read_keys, write_keys
from planaria.store.kubernetes_leases import (
    FIRST_BEAT,
    MOST_LEASES,
    Dead,
    Sent,
    ended,
    fresh_beat,
    granted,
    left_s,
    read_beats,
    renewed,
    write_beats,
)
from planaria.store.model import (
    Delete,
    Denied,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Left,
    List,
    Put,
    Remaining,
    Renew,
    Renewed,
    Revoke,
    Unavailable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from queue import SimpleQueue
    from typing import Any

    from planaria.store.kubernetes_keys import KeyRequest, Keys
    from planaria.store.kubernetes_leases import Beat
    from planaria.store.model import Reply

    Json = dict[str, Any]
    Beats = dict[int, Beat]

MOST_AT_ONCE = 64  # requests that one write of the object answers
_FRESH_S = 1.0  # how long an object that we wrote is worth a write without reading it first
_HOUSEKEEPING_S = 4.0
_DEAD_WITHIN_S = 1.0  # later it may be alive, and those who observe it will say so again


class KeyOrder(Value):
    """A request about keys, the number under which its answer is awaited, and until when a thread may try."""

    number: int
    asked: KeyRequest
    deadline: float


class LeaseOrder(Value):
    """The same about leases."""

    number: int
    asked: Grant | Renew | Revoke | Remaining
    deadline: float


class Sweep(Value):
    """Look for leases that ended in one object and not in the other."""


class KeyDesk:
    """Keys in the ConfigMap. All that was asked meanwhile is answered by one reading and, if anything changes, one writing."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._kept: tuple[Json, float] | None = None

    def work(self, orders: SimpleQueue[KeyOrder | None], answer: Callable[[int, Reply], object]) -> None:
        """Answer until there is a None among the orders."""
        while (first := orders.get()) is not None:
            batch: list[KeyOrder] = [first]
            is_over = False
            while len(batch) < MOST_AT_ONCE and not is_over:
                try:
                    more = orders.get_nowait()
                except Empty:
                    break
                is_over = more is None
                batch += [] if more is None else [more]
            self._settle(batch, answer)
            if is_over:
                break
        self._api.close()

    def _settle(self, batch: list[KeyOrder], answer: Callable[[int, Reply], object]) -> None:
        """Try until everybody has an answer."""
        why = "no time was left to try"
        while batch and not self._api.is_closing:
            now = self._clock()
            for late in [order for order in batch if order.deadline <= now]:
                answer(late.number, Unavailable(why, maybe_done=False))
            batch = [order for order in batch if order.deadline > now]
            if not batch:
                return
            try:
                replies = self.attempt([order.asked for order in batch], min(one.deadline for one in batch) - now)
            except ApiAway as exc:
                why = str(exc)
                if exc.was_sent:
                    for order in [order for order in batch if not _reads(order)]:
                        answer(order.number, Unavailable(why, maybe_done=True))
                    batch = [order for order in batch if _reads(order)]
                continue
            except ApiDenied as exc:
                replies = [Denied(str(exc), exc.by_rights)] * len(batch)
            except Exception as exc:  # noqa: BLE001  a thread that dies takes all later requests with it
                replies = [_unknown(self._api, exc, maybe_done=not _reads(order)) for order in batch]
            for order, reply in zip(batch, replies, strict=True):
                answer(order.number, reply)
            return

    def attempt(self, asked: list[KeyRequest], within_s: float) -> list[Reply]:
        """Perform requests one after the other, all at the moment of one reading or one writing."""

        def perform(keys: Keys) -> list[Reply]:
            return [keys.perform(one) for one in asked]

        return self.change(perform, within_s, alone=all(isinstance(one, (Get, List)) for one in asked))

    def change(self, act: Callable[[Keys], list[Reply]], within_s: float, *, alone: bool = False) -> list[Reply]:
        """Let `act` do something with the keys until nobody else has written meanwhile. `alone`: it only reads."""
        deadline = self._clock() + within_s
        found = None if alone else self._kept_object()
        is_new = found is None
        while True:
            left_s = deadline - self._clock()
            if found is None:
                found, is_new = self._api.get(CONFIG_MAPS, left_s), True
            keys = read_keys(found)
            before = keys.copy()
            said = act(keys)
            if keys.revision == before.revision and keys.leases == before.leases:
                if is_new:  # what was said is true now; of an older reading it was true once
                    return said
                found = None
                continue
            keys.trim()
            try:
                written = self._api.put(CONFIG_MAPS, write_keys(found, keys), left_s)
            except ApiConflict as exc:
                if self._clock() >= deadline:
                    raise ApiAway(f"others write all the time: {exc}", was_sent=False) from exc
                found = None
                continue
            except BaseException:
                self._kept = None
                raise
            self._kept = (written, self._clock())
            return said

    def _kept_object(self) -> Json | None:
        if self._kept is None or self._clock() - self._kept[1] > _FRESH_S:
            return None
        return self._kept[0]


class LeaseDesk:
    """Leases: in the Lease object alone while they are renewed, in both when they begin and end."""

    def __init__(self, api: Api, clock: Callable[[], float], number: Callable[[], int]) -> None:
        self._api = api
        self._clock = clock
        self._number = number
        self._keys = KeyDesk(api, clock)
        self._object: Json | None = None
        self._own: dict[int, Sent] = {}

    def work(self, orders: SimpleQueue[LeaseOrder | None], answer: Callable[[int, Reply], object]) -> None:
        """Answer until there is a None among the orders."""
        while (order := orders.get()) is not None:
            answer(order.number, self.answered(order))
        self._api.close()

    def keep_house(self, chores: SimpleQueue[Dead | Sweep | None], looked: Callable[[Beats], object]) -> None:
        """Look after leases until there is a None. `looked` hears what was found about one that was said to be dead."""
        while (chore := chores.get()) is not None:
            self.do_chore(chore, looked)
        self._api.close()

    def answered(self, order: LeaseOrder) -> Reply:
        """Perform a request."""
        asked, within_s = order.asked, order.deadline - self._clock()
        try:
            if within_s <= 0:
                return Unavailable("no time was left to try", maybe_done=False)
            return self._perform(asked, within_s)
        except ApiAway as exc:
            return Unavailable(str(exc), maybe_done=exc.was_sent and not isinstance(asked, Remaining))
        except ApiDenied as exc:
            return Denied(str(exc), exc.by_rights)
        except Exception as exc:  # noqa: BLE001  a thread that dies takes all later requests with it
            return _unknown(self._api, exc, maybe_done=not isinstance(asked, Remaining))

    def _perform(self, asked: Grant | Renew | Revoke | Remaining, within_s: float) -> Reply:
        match asked:
            case Grant(ttl_s):
                return self._grant(ttl_s, within_s)
            case Renew(lease):
                return self._renew(lease, within_s)
            case Revoke(lease):
                return self._revoke(lease, within_s)
            case Remaining(lease):
                return self._remaining(lease, within_s)

    def _grant(self, ttl_s: float, within_s: float) -> Reply:
        lease, sent_at = self._number(), self._clock()

        def add(beats: Beats) -> Beats | None:
            return granted(beats, lease, ttl_s, self._api.server_now())

        before, beats = self._change(add, within_s, fresh=True)
        if lease not in beats:
            return Denied(f"the store is full: it holds at most {MOST_LEASES} leases", by_rights=False)

        def begin(keys: Keys) -> list[Reply]:
            keys.end_leases(before.keys() - beats.keys())
            keys.leases.add(lease)
            return []

        self._keys.change(begin, max(within_s - (self._clock() - sent_at), 0.0))
        self._own[lease] = Sent(FIRST_BEAT, sent_at)
        return Granted(lease, ttl_s)

    def _renew(self, lease: int, within_s: float) -> Reply:
        sent_at = self._clock()
        fresh = fresh_beat(self._own.get(lease), sent_at)

        def renew(beats: Beats) -> Beats | None:
            return renewed(beats, lease, self._api.server_now(), fresh)

        _, beats = self._change(renew, within_s, fresh=fresh is not None)
        if lease not in beats:
            return self._end_for_good(lease, within_s)
        if beats[lease].count != fresh:
            self._own[lease] = Sent(beats[lease].count, sent_at)
        return Renewed(beats[lease].ttl_s)

    def _revoke(self, lease: int, within_s: float) -> Reply:
        self._change(lambda beats: ended(beats, lease), within_s, fresh=False)
        return self._end_for_good(lease, within_s)

    def _remaining(self, lease: int, within_s: float) -> Reply:
        found = read_beats(self._api.get(LEASES, within_s)).get(lease)
        if found is None:
            return self._end_for_good(lease, within_s)
        return Left(found.ttl_s, left_s(found, self._own.get(lease), self._clock(), self._api.server_now()))

    def _end_for_good(self, lease: int, within_s: float) -> Reply:
        """Say that a lease is gone, once its keys are."""
        self._own.pop(lease, None)
        self._end_in_keys((lease,), within_s)
        return LeaseGone()

    def _end_in_keys(self, leases: Iterable[int], within_s: float) -> None:
        def end(keys: Keys) -> list[Reply]:
            keys.end_leases(leases)
            return []

        self._keys.change(end, within_s)

    def do_chore(self, chore: Dead | Sweep, looked: Callable[[Beats], object]) -> None:
        """Do what nobody asked for and nobody waits for."""
        try:
            if isinstance(chore, Dead):
                looked(self._end_dead(chore))
            else:
                self._sweep()
        except Exception:  # noqa: BLE001  it will be looked at again, and whoever asks for something hears why
            return

    def _end_dead(self, dead: Dead) -> Beats:
        """End a lease, unless its holder has been heard of since."""
        _, beats = self._change(lambda beats: ended(beats, dead.lease, dead.count), _DEAD_WITHIN_S, fresh=True)
        if dead.lease not in beats:
            self._end_for_good(dead.lease, _HOUSEKEEPING_S)
        return beats

    def _sweep(self) -> None:
        """End what somebody began to end. The ConfigMap is read first: a lease is in the Lease object before it is there."""
        named = read_keys(self._api.get(CONFIG_MAPS, _HOUSEKEEPING_S)).leases
        if named:
            over = named - read_beats(self._api.get(LEASES, _HOUSEKEEPING_S)).keys()
            if over:
                self._end_in_keys(over, _HOUSEKEEPING_S)

    def _change(self, act: Callable[[Beats], Beats | None], within_s: float, *, fresh: bool) -> tuple[Beats, Beats]:
        """Let `act` change the leases until nobody else has written meanwhile; return them as they were and as they are.

        It returns None where there is nothing to write. `fresh`: read them first.
        """
        deadline = self._clock() + within_s
        found = None if fresh else self._object
        is_new = False
        while True:
            time_s = deadline - self._clock()
            if found is None:
                found, is_new = self._api.get(LEASES, time_s), True
            before = read_beats(found)
            after = act(before)
            if after is None:
                if is_new:
                    self._object = found
                    return before, before
                found = None
                continue
            try:
                self._object = self._api.put(LEASES, write_beats(found, after), time_s)
            except ApiConflict as exc:
                self._object = found = None
                if self._clock() >= deadline:
                    raise ApiAway(f"others write all the time: {exc}", was_sent=False) from exc
                continue
            except BaseException:
                self._object = None
                raise
            return before, after


def _reads(order: KeyOrder) -> bool:
    return not isinstance(order.asked, (Put, Delete))


def _unknown(api: Api, exc: Exception, *, maybe_done: bool) -> Reply:
    return Unavailable(safe_line(f"the store in {api.access.place}: {exc}", 200), maybe_done=maybe_done)
