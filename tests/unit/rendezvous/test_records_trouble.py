"""The run's keys in a store that does not do as it is asked: what is said of it, and what is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from faulty_store import AWAY, LOST, TTL_S, Bench

from planaria.rendezvous.model import KeyRead, KeyWritten, StoreAnswered, StoreTrouble, WriteKey
from planaria.store.model import Get, Grant, List, Put, Remaining, Renew

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


@pytest.mark.parametrize(
    ("word", "trouble"),
    [
        (AWAY, StoreTrouble("away")),
        ("full", StoreTrouble("no room")),
        ("denied", StoreTrouble("not permitted", final=True)),
    ],
)
def test_a_listing_that_is_not_answered_says_why_and_is_asked_for_again(
    bench: Bench, word: str, trouble: StoreTrouble
) -> None:
    bench.store.script[List] = [word]
    bench.records.read("round")
    bench.settle()
    assert bench.take_all() == [trouble]
    bench.settle(1)
    assert bench.take_all() == [KeyRead("round", None, 0)]


def test_a_listing_that_is_denied_is_asked_for_less_and_less_often(bench: Bench) -> None:
    bench.store.script[List] = ["denied"] * 100
    bench.records.read("round")
    bench.settle(60)
    assert 10 < sum(isinstance(asked, List) for asked in bench.store.asked) < 20


def test_a_listing_that_no_store_can_answer_is_said(bench: Bench) -> None:
    bench.store.script[List] = ["refused"]
    bench.records.read("round")
    bench.settle(10)
    assert bench.take_all() == [StoreTrouble("too long", final=True), KeyRead("round", None, 0)], "and asked again"


@pytest.mark.parametrize(
    ("word", "final"), [("denied", True), ("full", False), ("refused", True), (AWAY, False), (LOST, False)]
)
@pytest.mark.parametrize(
    "order", [WriteKey("round", "one", 0), WriteKey("leader", "me", 0, leased=True), WriteKey("outcome", "done", None)]
)
def test_a_write_that_was_not_done_says_why_and_is_tried_again_as_nobody_came_first(
    bench: Bench, word: str, final: bool, order: WriteKey
) -> None:
    bench.store.script[Put] = [word] * 2
    bench.records.write(order)
    bench.settle(5)
    heard = bench.take_all()
    written = [event for event in heard if isinstance(event, KeyWritten)]
    assert [(event.key, event.revision > 0) for event in written] == [(order.key, True)]
    troubles = [event for event in heard if isinstance(event, StoreTrouble)]
    assert {event.final for event in troubles} == {final}
    assert len(troubles) == (1 if word == LOST else 2)


def test_whoever_cannot_read_what_came_of_a_write_says_why_and_reads_again(bench: Bench) -> None:
    bench.store.script[Put] = [LOST]
    bench.store.script[Get] = ["denied", "full", AWAY]
    bench.records.write(WriteKey("round", "one", 0))
    bench.settle(5)
    heard = bench.take_all()
    assert heard[:-1] == [
        StoreTrouble("lost"),
        StoreTrouble("not permitted", final=True),
        StoreTrouble("no room"),
        StoreTrouble("away"),
    ]
    assert heard[-1].revision


@pytest.mark.parametrize("asked", [Grant, Renew])
def test_a_lease_that_cannot_be_had_or_kept_says_why(bench: Bench, asked: type) -> None:
    bench.store.script[asked] = ["denied", AWAY]
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle(TTL_S)
    heard = bench.take_all()
    troubles = [event for event in heard if isinstance(event, StoreTrouble)]
    assert troubles == [StoreTrouble("not permitted", final=True), StoreTrouble("away")]
    assert isinstance(heard[-1], StoreAnswered)


def test_an_outcome_whose_age_cannot_be_read_is_not_taken_for_none(bench: Bench) -> None:
    bench.other.write(WriteKey("outcome", "done", None))
    bench.settle()
    bench.store.script[Remaining] = ["denied", AWAY]
    bench.records.read("outcome")
    bench.settle(3)
    assert [event.value for event in bench.take()] == ["done"]


def test_an_outcome_whose_own_lease_is_gone_gets_another_and_the_leaders_stays(bench: Bench) -> None:
    bench.records.write(WriteKey("leader", "mine", 0, leased=True))
    bench.settle()
    bench.take()
    bench.store.script[Put] = ["gone"]
    bench.records.write(WriteKey("outcome", "done", None))
    bench.settle(1)
    (written,) = bench.take()
    assert (written.key, written.revision > 0) == ("outcome", True)
    assert sum(isinstance(asked, Grant) for asked in bench.store.asked) == 3
    bench.settle(TTL_S)
    assert {type(event) for event in bench.take()} == {StoreAnswered}, "its renewals go on"


def test_nothing_is_said_of_a_store_that_was_left(bench: Bench) -> None:
    bench.store.script[List] = [AWAY]
    bench.records.read("round")
    bench.records.close()
    bench.settle(5)
    assert bench.take_all() == []
