"""The machine against a model that is too simple to be wrong, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.store.machine import Limits, Machine
from planaria.store.model import (
    LISTING_LIMIT_BYTES,
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
)

if TYPE_CHECKING:
    from planaria.store.model import Reply, Request


class Naive:
    """Keys are rows in a list, leases are rows in a list, and everything is looked for from the start."""

    def __init__(self) -> None:
        self.rows: list[Entry] = []
        self.leases: list[list[float]] = []  # number, ttl, end
        self.revision = 0
        self.granted = 0
        self.told: list[Changed] = []

    def change(self, key: str, entry: Entry | None) -> None:
        self.revision += 1
        self.rows = [row for row in self.rows if row.key != key] + ([entry] if entry else [])
        self.told.append(Changed(key, entry.value if entry else None, self.revision))

    def end(self, number: float) -> None:
        self.leases = [lease for lease in self.leases if lease[0] != number]
        for key in sorted(row.key for row in self.rows if row.lease == number):
            self.change(key, None)

    def request(self, asked: Request, now: float) -> Reply:
        for end, number in sorted((lease[2], lease[0]) for lease in self.leases):
            if end <= now:
                self.end(number)
        if isinstance(asked, (Get, Put, Delete)):
            return self.on_key(asked, next((row for row in self.rows if row.key == asked.key), None))
        if isinstance(asked, List):
            found = sorted((row for row in self.rows if row.key.startswith(asked.prefix)), key=lambda row: row.key)
            return Listed(tuple(found), self.revision)
        if isinstance(asked, Grant):
            self.granted += 1
            self.leases.append([self.granted, asked.ttl_s, now + asked.ttl_s])
            return Granted(self.granted, asked.ttl_s)
        lease = next((lease for lease in self.leases if lease[0] == asked.lease), None)
        if lease is None:
            return LeaseGone()
        if isinstance(asked, Revoke):
            self.end(asked.lease)
            return LeaseGone()
        if isinstance(asked, Renew):
            lease[2] = now + lease[1]
            return Renewed(lease[1])
        return Left(lease[1], lease[2] - now)

    def on_key(self, asked: Get | Put | Delete, row: Entry | None) -> Reply:
        revision = row.revision if row else 0
        if isinstance(asked, Get):
            return Found(row.value, row.revision, row.lease) if row else Absent()
        if asked.expect not in (None, revision):
            return Conflict(revision)
        if isinstance(asked, Put):
            if asked.lease is not None and asked.lease not in [lease[0] for lease in self.leases]:
                return LeaseGone()
            self.change(asked.key, Entry(asked.key, asked.value, self.revision + 1, asked.lease))
            return Written(self.revision)
        if row is None:
            return Absent()
        self.change(asked.key, None)
        return Deleted()


KEYS = st.sampled_from(["a", "a/1", "a/2", "a0", "b", "ä"])
NUMBERS = st.integers(0, 12)
EXPECTED = st.none() | NUMBERS
LEASES = st.none() | st.integers(1, 4)
REQUESTS = st.one_of(
    st.builds(Get, KEYS),
    st.builds(List, st.sampled_from(["", "a", "a/", "b", "c"])),
    st.builds(Put, KEYS, st.binary(max_size=2), EXPECTED, LEASES),
    st.builds(Put, KEYS, st.binary(max_size=2)),
    st.builds(Delete, KEYS, EXPECTED),
    st.builds(Grant, st.sampled_from([1.0, 2.0, 5.0])),
    st.builds(Renew, st.integers(1, 4)),
    st.builds(Revoke, st.integers(1, 4)),
    st.builds(Remaining, st.integers(1, 4)),
)
STEPS = st.lists(st.tuples(REQUESTS, st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0])), max_size=60)


@settings(max_examples=600)
@given(STEPS)
def test_the_machine_answers_and_tells_what_the_naive_model_does(steps: list[tuple[Request, float]]) -> None:
    machine, naive, now, told = Machine(), Naive(), 100.0, []
    for asked, waited_s in steps:
        now += waited_s
        assert machine.request(asked, now) == naive.request(asked, now)
        assert machine.next_expiry() == min((lease[2] for lease in naive.leases), default=None)
        told += machine.take_changes()
    assert told == naive.told
    for revision in range(machine.revision + 1):
        assert machine.changes_after(revision, 1000) == naive.told[revision:]


@settings(max_examples=200)
@given(STEPS, st.integers(1, 6))
def test_a_short_history_is_right_or_says_that_it_is_lost(steps: list[tuple[Request, float]], length: int) -> None:
    machine, now, told = Machine(start=1000, limits=Limits(history=length)), 0.0, []
    for asked, waited_s in steps:
        now += waited_s
        machine.request(asked, now)
        told += machine.take_changes()
    for revision in range(990, machine.revision + 10):
        known = max(1000, machine.revision - length) <= revision <= machine.revision
        expected = told[revision - 1000 :] if known else None
        assert machine.changes_after(revision, 1000) == expected
        assert machine.changes_after(revision, 2) == (expected[:2] if expected is not None else None)


def test_history_is_bounded_in_bytes_too() -> None:
    machine = Machine(limits=Limits(history_bytes=10_000))
    for number in range(100):
        machine.request(Put("k", bytes(1000)), float(number))
    assert machine.changes_after(0, 1) is None
    assert len(machine.changes_after(95, 100) or []) == 5


def test_a_full_store_refuses_writes_and_takes_them_again_when_there_is_room() -> None:
    machine = Machine(limits=Limits(size_bytes=10_000))
    replies = [machine.request(Put(f"{number}", bytes(1000)), 0.0) for number in range(20)]
    assert [type(reply) for reply in replies] == [Written] * 9 + [Denied] * 11
    assert isinstance(machine.request(Put("0", b"smaller"), 0.0), Written)
    machine.request(Delete("1"), 0.0)
    assert isinstance(machine.request(Put("another", bytes(1000)), 0.0), Written)


def test_leases_are_bounded_in_number() -> None:
    machine = Machine(limits=Limits(leases=3))
    replies = [machine.request(Grant(1.0), 0.0) for _ in range(4)]
    assert [type(reply) for reply in replies] == [Granted] * 3 + [Denied]
    assert isinstance(machine.request(Grant(1.0), 1.0), Granted)


def test_leases_that_come_and_go_leave_nothing_behind() -> None:
    machine = Machine()
    for _ in range(1000):
        granted = machine.request(Grant(1e6), 0.0)
        assert isinstance(granted, Granted)
        machine.request(Revoke(granted.lease), 0.0)
    assert len(machine._ends) < 100


def test_a_lease_that_is_renewed_a_thousand_times_keeps_one_place_in_the_queue() -> None:
    machine = Machine()
    granted = machine.request(Grant(10.0), 0.0)
    assert isinstance(granted, Granted)
    for now in range(1000):
        machine.request(Renew(granted.lease), float(now))
    assert len(machine._ends) == 1
    assert machine.next_expiry() == 1009.0


def test_a_listing_over_its_limit_is_refused() -> None:
    machine = Machine()
    for number in range(LISTING_LIMIT_BYTES // 60_000 + 1):
        machine.request(Put(f"{number}", bytes(60_000)), 0.0)
    assert isinstance(machine.request(List(""), 0.0), Refused)
    assert isinstance(machine.request(List("1"), 0.0), Listed)


@pytest.mark.parametrize("start", [0, 1 << 40])
def test_nothing_of_another_life_matches(start: int) -> None:
    machine = Machine(start=start)
    written = machine.request(Put("k", b"v"), 0.0)
    assert isinstance(written, Written)
    other = Machine(start=start + (1 << 30))
    other.request(Put("k", b"v"), 0.0)
    assert isinstance(other.request(Put("k", b"w", expect=written.revision), 0.0), Conflict)
    assert other.changes_after(written.revision, 1) is None
