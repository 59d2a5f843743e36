"""Several clients at two objects in virtual time: at every call of the API another may do something, or die.

What may never be: a lease that ends before its time, also by a renewal that was promised, and one that is said to be gone while
a key hangs on it. What has to be in the end: no key without its lease.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria.store.kubernetes_api import CONFIG_MAPS, LEASES, ApiAway, ApiConflict
from planaria.store.kubernetes_keys import read_keys
from planaria.store.kubernetes_leases import Dead, Vigil, read_beats
from planaria.store.kubernetes_work import KeyDesk, LeaseDesk, LeaseOrder, Sweep
from planaria.store.model import (
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Put,
    Remaining,
    Renew,
    Renewed,
    Revoke,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.store.kubernetes_leases import Beat
    from planaria.store.model import Reply

TTL_S = 4.0
DEPTH = 3


class Died(BaseException):
    """The process that made this call was killed, before or after it was performed."""


class World:
    """Two objects, the time, and what is promised about leases."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 1000.0
        self.version = 0
        self.objects: dict[str, dict[str, Any]] = {
            kind: {"metadata": {"uid": "a1", "resourceVersion": "0"}} for kind in (CONFIG_MAPS, LEASES)
        }
        self.kept_until: dict[int, float] = {}
        self.revoked: set[int] = set()
        self.broken: list[str] = []  # what is raised inside a desk becomes an answer
        self.ends = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.depth = 0

    def call(self) -> None:
        """Let time pass, and others act, before a call is performed."""
        self.now += self.rng.random() * 0.05
        if self.depth < DEPTH and self.rng.random() < 0.4:
            self.depth += 1
            try:
                self.meanwhile()
            finally:
                self.depth -= 1

    def write(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["resourceVersion"] != self.objects[kind]["metadata"]["resourceVersion"]:
            raise ApiConflict("somebody was first")
        if kind == LEASES:
            self._check(read_beats(self.objects[kind]), read_beats(body))
        else:
            self._check_keys(read_keys(self.objects[kind]).leases - read_keys(body).leases)
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.objects[kind] = {**body, "metadata": metadata}
        return self.objects[kind]

    def _check_keys(self, ended: set[int]) -> None:
        """A lease is ended in the Lease first, or it would be renewed and have no keys."""
        early = ended & read_beats(self.objects[LEASES]).keys()
        self.broken += [f"lease {lease} ended early in the ConfigMap" for lease in early]

    def _check(self, before: dict[int, Beat], after: dict[int, Beat]) -> None:
        for lease in before.keys() - after.keys() - self.revoked:
            if self.now < self.kept_until[lease]:
                self.broken.append(f"lease {lease} ended {self.kept_until[lease] - self.now:.2f} s early")
        self.ends += len(before.keys() - after.keys())
        for lease, beat in after.items():
            if before.get(lease) != beat:
                self.kept_until[lease] = self.now + beat.ttl_s


class FakeApi:
    """What the desks use of `Api`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.access = SimpleNamespace(place="ours/job-run")
        self.is_closing = False
        self.dies = False
        self.performed_at = 0.0

    def get(self, kind: str, _within_s: float) -> dict[str, Any]:
        self._world.call()
        self._perhaps_die()
        self.performed_at = self._world.now
        return self._world.objects[kind]

    def put(self, kind: str, body: dict[str, Any], _within_s: float) -> dict[str, Any]:
        self._world.call()
        self._perhaps_die()
        written = self._world.write(kind, body)
        self.performed_at = self._world.now
        self._perhaps_die()
        if self._world.rng.random() < 0.03:
            raise ApiAway("the answer was lost", was_sent=True)
        return written

    def _perhaps_die(self) -> None:
        if self.dies and self._world.rng.random() < 0.3:
            raise Died

    def server_now(self) -> float:
        return float(int(self._world.now))


class Client:
    """One agent: it holds leases of its own, and observes those of all."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number
        self._given = 0
        self.begin()

    def begin(self) -> None:
        world = self._world
        self._api = FakeApi(world)
        self._keys = KeyDesk(self._api, lambda: world.now)  # type: ignore[arg-type]
        self._leases = LeaseDesk(self._api, lambda: world.now, self._lease_number)  # type: ignore[arg-type]
        self._vigil = Vigil(world.rng.random)
        self._busy = False
        self.held: list[int] = []
        self._leases_sweep_due = True

    def _lease_number(self) -> int:
        self._given += 1
        return self._number * 10_000 + self._given

    def act(self) -> None:
        """Do one thing, unless this client is in the middle of one."""
        if self._busy:
            return
        self._busy = True
        rng = self._world.rng
        self._api.dies = rng.random() < 0.05
        try:
            rng.choice([self._grant, self._renew, self._renew, self._put, self._revoke, self.observe, self.observe])()
        except Died:
            self.begin()
        finally:
            self._busy = False

    def ask(self, asked: Grant | Renew | Revoke | Remaining) -> Reply:
        return self._leases.answered(LeaseOrder(1, asked, self._world.now + 4.0))

    def _grant(self) -> None:
        if len(self.held) < 3:
            reply = self.ask(Grant(TTL_S))
            if isinstance(reply, Granted):
                self.held.append(reply.lease)

    def _renew(self) -> None:
        if self.held:
            lease = self._world.rng.choice(self.held)
            reply = self.ask(Renew(lease))
            if isinstance(reply, Renewed):
                self._world.kept_until[lease] = self._api.performed_at + TTL_S  # perhaps without a write
                return
            if reply == LeaseGone():
                self.held.remove(lease)
                self._check_gone(lease)

    def _put(self) -> None:
        if self.held:
            lease = self._world.rng.choice(self.held)
            key = f"k{self._world.rng.randrange(6)}"
            try:
                self._keys.attempt([Put(key, b"v", lease=lease), Get(key)], 4.0)
            except ApiAway:
                return

    def _revoke(self) -> None:
        if self.held and self._world.rng.random() < 0.3:
            lease = self._world.rng.choice(self.held)
            self._world.revoked.add(lease)
            if self.ask(Revoke(lease)) == LeaseGone():
                self.held.remove(lease)
                self._check_gone(lease)

    def _check_gone(self, lease: int) -> None:
        keys = read_keys(self._world.objects[CONFIG_MAPS])
        assert lease not in keys.leases
        assert all(entry.lease != lease for entry in keys.entries())

    def observe(self) -> None:
        """See the Lease as it is, call dead who is, and look after what others have begun."""
        world = self._world
        if self._vigil.saw(read_beats(world.objects[LEASES]), world.now) or self._leases_sweep_due:
            self._leases_sweep_due = False
            self._leases.do_chore(Sweep(), lambda _beats: None)
        for dead in self._vigil.dead(world.now):
            self._leases.do_chore(dead, lambda beats: self._vigil.saw(beats, world.now))


def settle(world: World, clients: list[Client]) -> None:
    """Let nobody renew any more, and time pass."""
    world.meanwhile = lambda: None
    for client in clients:
        client.begin()
    for _ in range(40):
        world.now += 0.5
        for client in clients:
            client.observe()


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_events_ends_a_lease_early_or_leaves_a_key_behind(seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    clients = [Client(world, number + 1) for number in range(3)]
    world.meanwhile = lambda: rng.choice(clients).act()
    for _ in range(100):
        world.now += rng.random() * 0.4
        rng.choice(clients).act()
    assert world.broken == []
    assert world.ends
    settle(world, clients)
    keys = read_keys(world.objects[CONFIG_MAPS])
    assert read_beats(world.objects[LEASES]) == {}
    assert keys.leases == set()
    assert keys.entries() == []


def test_the_campaign_can_fail() -> None:
    """A lease that somebody ends early is found."""
    world = World(random.Random(4))
    client = Client(world, 1)
    granted = client.ask(Grant(TTL_S))
    assert isinstance(granted, Granted)
    assert client._keys.attempt([Put("k", b"v", lease=granted.lease)], 4.0)
    assert isinstance(client._keys.attempt([Get("k")], 4.0)[0], Found)
    client._leases._end_dead(Dead(granted.lease, 0))
    assert "early" in world.broken[0]
    assert not isinstance(client._keys.attempt([Get("k")], 4.0)[0], Found)
