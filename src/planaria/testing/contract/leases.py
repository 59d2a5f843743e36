"""What every store keeps about leases."""

from __future__ import annotations

from planaria.store.model import (
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Entry,
    Found,
    Get,
    LeaseGone,
    Left,
    Put,
    Remaining,
    Renew,
    Renewed,
    Revoke,
    Written,
)
from planaria.testing.contract.bed import Bed, grant, listed, write
from planaria.testing.store_client import Client, run_for

_TTL_S = 2.0  # etcd gives no shorter lease, whatever it is asked for
_BUSY_TTL_S = 5.0  # time for some requests before it ends, on a machine that others keep busy
_NO_LEASE = 7_000_000_000_000_007  # not a number that any store has given out


class Leases(Bed):
    """The tests."""

    def test_a_lease_is_given_for_at_least_the_time_asked_for(self, client: Client) -> None:
        for ttl_s in (_TTL_S, 7.5, 3600.0):
            granted = grant(client, ttl_s)
            assert granted.ttl_s >= ttl_s

    def test_leases_have_different_numbers(self, client: Client) -> None:
        assert len({grant(client).lease for _ in range(5)}) == 5

    def test_a_key_tells_its_lease(self, client: Client, at: str) -> None:
        lease = grant(client).lease
        revision = write(client, at + "k", b"v", lease)
        assert client.ask(Get(at + "k")) == Found(b"v", revision, lease)
        assert listed(client, at).entries == (Entry(at + "k", b"v", revision, lease),)

    def test_a_lease_that_is_not_renewed_takes_its_keys_with_it(self, client: Client, at: str) -> None:
        lease = grant(client, _BUSY_TTL_S).lease
        start = listed(client, at).revision
        write(client, at + "1", b"v", lease)
        write(client, at + "2", b"v", lease)
        kept = write(client, at + "3", b"v")
        gone = client.watch(at, start).wait_for(5)[3:]
        assert {event.key for event in gone if isinstance(event, Changed) and event.value is None} == {
            at + "1",
            at + "2",
        }
        assert listed(client, at).entries == (Entry(at + "3", b"v", kept),)
        assert client.ask_all(Renew(lease), Remaining(lease), Put(at + "4", b"v", lease=lease)) == [LeaseGone()] * 3

    def test_a_lease_does_not_end_before_its_time(self, client: Client, at: str) -> None:
        asked_at = client.loop.now()
        granted = grant(client, _BUSY_TTL_S)
        write(client, at + "k", b"v", granted.lease)
        while isinstance(client.ask(Get(at + "k")), Found):  # a store that looks at its leases when asked is asked
            run_for(client.loop, 0.02)
        assert client.loop.now() - asked_at >= granted.ttl_s - 0.1  # two clocks of one machine may tick apart a little

    def test_a_lease_that_is_renewed_in_time_does_not_end(self, client: Client, at: str) -> None:
        granted = grant(client, 3.0)
        revision = write(client, at + "k", b"v", granted.lease)
        for _ in range(8):
            run_for(client.loop, 0.5)
            assert client.ask(Renew(granted.lease)) == Renewed(granted.ttl_s)
        assert client.ask(Get(at + "k")) == Found(b"v", revision, granted.lease)

    def test_a_lease_that_is_revoked_takes_its_keys_with_it_at_once(self, client: Client, at: str) -> None:
        lease = grant(client).lease
        revision = write(client, at + "k", b"v", lease)
        watched = client.watch(at, revision)
        assert client.ask(Revoke(lease)) == LeaseGone()
        assert client.ask(Get(at + "k")) == Absent()
        event = watched.wait_for(1)[0]
        assert isinstance(event, Changed)
        assert (event.key, event.value) == (at + "k", None)

    def test_a_lease_that_nobody_has_is_gone_whatever_is_asked_of_it(self, client: Client, at: str) -> None:
        asked = (Renew(_NO_LEASE), Revoke(_NO_LEASE), Remaining(_NO_LEASE))
        writes = (Put(at + "k", b"v", lease=_NO_LEASE), Put(at + "k", b"v", expect=0, lease=_NO_LEASE))
        assert client.ask_all(*asked, *writes) == [LeaseGone()] * 5
        assert client.ask(Get(at + "k")) == Absent()

    def test_a_conflict_is_told_before_a_lease_that_is_gone(self, client: Client, at: str) -> None:
        revision = write(client, at + "k", b"v")
        assert client.ask(Put(at + "k", b"w", expect=0, lease=_NO_LEASE)) == Conflict(revision)

    def test_a_key_that_is_written_without_its_lease_outlives_it(self, client: Client, at: str) -> None:
        lease = grant(client).lease
        write(client, at + "k", b"1", lease)
        revision = write(client, at + "k", b"2")
        client.ask(Revoke(lease))
        assert client.ask(Get(at + "k")) == Found(b"2", revision, None)

    def test_a_key_that_was_removed_has_nothing_to_do_with_its_lease_any_more(self, client: Client, at: str) -> None:
        lease = grant(client).lease
        for name in ("1", "2"):
            write(client, at + name, b"v", lease)
            assert client.ask(Delete(at + name)) == Deleted()
        revision = write(client, at + "1", b"w")
        assert client.ask(Revoke(lease)) == LeaseGone()
        assert listed(client, at).entries == (Entry(at + "1", b"w", revision),)

    def test_a_key_that_moved_to_another_lease_goes_with_that_one(self, client: Client, at: str) -> None:
        first, second = grant(client).lease, grant(client).lease
        write(client, at + "k", b"1", first)
        revision = write(client, at + "k", b"2", second)
        client.ask(Revoke(first))
        assert client.ask(Get(at + "k")) == Found(b"2", revision, second)
        client.ask(Revoke(second))
        assert client.ask(Get(at + "k")) == Absent()

    def test_what_remains_of_a_lease_tells_its_age(self, client: Client) -> None:
        now = client.loop.now
        before = now()
        granted = grant(client, 60.0)
        after = now()
        run_for(client.loop, 1.2)
        asked_at = now()
        left = client.ask(Remaining(granted.lease))
        assert isinstance(left, Left)
        assert left.granted_s == granted.ttl_s
        # Each request took some time, and some stores count whole seconds.
        assert asked_at - after - 1.1 <= left.granted_s - left.remaining_s <= now() - before + 1.1
        before = now()
        client.ask(Renew(granted.lease))
        renewed = client.ask(Remaining(granted.lease))
        assert isinstance(renewed, Left)
        assert renewed.granted_s - renewed.remaining_s <= now() - before + 1.1

    def test_leases_belong_to_the_store_and_not_to_who_asked_for_them(
        self, clients: tuple[Client, Client], at: str
    ) -> None:
        one, other = clients
        granted = grant(one)
        one.store.close()
        assert other.ask(Renew(granted.lease)) == Renewed(granted.ttl_s)
        assert isinstance(other.ask(Put(at + "k", b"v", lease=granted.lease)), Written)
