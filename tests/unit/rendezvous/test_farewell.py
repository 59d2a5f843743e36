"""What a node that leaves says in the store, and what is made of it."""

from __future__ import annotations

import json

import pytest

from planaria.base.value import replace
from planaria.rendezvous.claim import Claim
from planaria.rendezvous.farewell import MOST_LEAVING, Farewell
from planaria.rendezvous.keys import Left, left_record, read_left, round_record
from planaria.rendezvous.model import Deputy, KeyRead, KeyWritten, Settings, Standing, WriteKey

DEPUTIES = (Deputy("a", "a:1"), Deputy("b", "b:1"), Deputy("s", "s:1"))
ROUND = Standing("e", 7, 2, 2, None, 0, DEPUTIES, 3)  # a and b are in it, and s looks on
LEFT = Left("e", 7, 2, 3, frozenset({"b"}))


def said(orders: list[object]) -> list[Left]:
    found = []
    for order in orders:
        assert isinstance(order, WriteKey)
        assert order.key == "left"
        found.append(read_left(order.value))
    return found


def leave(farewell: Farewell, *gone: str, last: Standing = ROUND, awaits_round: bool = False) -> list[object]:
    return [*farewell.begin(last, {"a", "b"}, {"a", *gone}, awaits_round=awaits_round)]


def test_it_says_its_own_name_and_those_of_others_that_are_gone_but_not_of_strangers() -> None:
    farewell = Farewell("a")
    assert leave(farewell, "b", "s") == [WriteKey("left", left_record(replace(LEFT, nodes=frozenset("ab"))), 0)]
    assert farewell.is_under_way
    farewell.written(is_done=True)
    assert not farewell.is_under_way
    assert farewell.go_on() == []


def test_it_adds_to_what_others_have_said_of_this_round() -> None:
    farewell = Farewell("a")
    farewell.found(left_record(replace(LEFT, next_round=5)), 11)
    (order,) = leave(farewell)
    assert order == WriteKey("left", left_record(Left("e", 7, 2, 5, frozenset("ab"))), 11)


@pytest.mark.parametrize("old", [replace(LEFT, round=1), replace(LEFT, term=6, round=9), replace(LEFT, epoch="f")])
def test_what_was_said_of_older_rounds_and_other_runs_is_replaced(old: Left) -> None:
    farewell = Farewell("a")
    farewell.found(left_record(old), 11)
    assert said(leave(farewell)) == [replace(LEFT, nodes=frozenset("a"))]


@pytest.mark.parametrize(
    "newer", [replace(LEFT, round=3), replace(LEFT, term=8, round=1), replace(LEFT, nodes=frozenset("ab"))]
)
def test_where_more_is_known_already_nothing_is_said(newer: Left) -> None:
    farewell = Farewell("a")
    farewell.found(left_record(newer), 11)
    assert leave(farewell) == []
    assert not farewell.is_under_way


@pytest.mark.parametrize("found_first", [False, True])
def test_whoever_comes_second_tries_again_with_what_the_first_said(found_first: bool) -> None:
    farewell = Farewell("a")
    leave(farewell)
    steps = [lambda: farewell.written(is_done=False), lambda: farewell.found(left_record(LEFT), 12)]
    orders = []
    for step in reversed(steps) if found_first else steps:
        assert orders == []
        step()
        orders += farewell.go_on()
        assert farewell.is_under_way
    assert orders == [WriteKey("left", left_record(replace(LEFT, nodes=frozenset("ab"))), 12)]


def test_a_leader_that_leaves_while_it_writes_a_round_leaves_that_one() -> None:
    farewell = Farewell("a")
    assert said(leave(farewell, "b", awaits_round=True)) == [replace(LEFT, nodes=frozenset("ab"))]
    alone = Standing("e", 7, 3, 1, None, 0, DEPUTIES[:1], 4)
    farewell.round_written(is_done=True)
    farewell.found_round(alone)
    assert farewell.go_on() == [], "one word at a time"
    farewell.written(is_done=True)
    assert farewell.is_under_way
    farewell.found(left_record(replace(LEFT, nodes=frozenset("ab"))), 12)
    assert said([*farewell.go_on()]) == [Left("e", 7, 3, 4, frozenset("a"))]


def test_a_round_that_was_not_written_is_not_waited_for() -> None:
    farewell = Farewell("a")
    leave(farewell, awaits_round=True)
    farewell.written(is_done=True)
    assert farewell.is_under_way
    farewell.round_written(is_done=False)
    assert not farewell.is_under_way


def test_a_round_of_others_is_none_that_it_leaves() -> None:
    farewell = Farewell("a")
    farewell.found_round(replace(ROUND, round=3))
    assert not farewell.is_under_way, "it has not left"
    leave(farewell, awaits_round=True)
    farewell.written(is_done=True)
    farewell.found_round(replace(ROUND, round=3, deputies=DEPUTIES[1:]))
    assert not farewell.is_under_way


def test_of_no_round_and_of_a_large_one_nothing_is_said() -> None:
    assert leave(Farewell("a"), last=Standing()) == []
    assert leave(Farewell("a"), last=replace(ROUND, size=MOST_LEAVING + 1)) == []
    assert leave(Farewell("a"), last=replace(ROUND, size=MOST_LEAVING)) != []


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{", '{"round": 1}', '{"round": ["e", 1, 2], "nodes": []}', '{"round": ["e", 1, 2, 3]}']
)
def test_what_makes_no_sense_says_nothing(text: str | None) -> None:
    assert read_left(text) == Left()


def test_names_that_are_none_are_refused() -> None:
    record = json.loads(left_record(LEFT))
    assert read_left(json.dumps(record)) == LEFT
    for wrong in (7, "", "\x00", ["b"]):
        assert read_left(json.dumps({**record, "nodes": [wrong]})) == Left()


def test_a_round_that_all_have_left_is_vacated_and_its_number_is_not_used_again() -> None:
    claim = Claim(Settings("n", "n", "n:1", 1, external=True))
    claim.heard(KeyRead("round", round_record(ROUND), 3), 0.0)
    claim.heard(KeyRead("left", left_record(LEFT), 4), 0.0)
    assert not claim.is_vacated(ROUND)
    assert claim._standing() == replace(ROUND, deputies=tuple(replace(one, in_base=False) for one in DEPUTIES))
    claim.heard(KeyRead("left", left_record(Left("e", 7, 2, 9, frozenset("ab"))), 5), 0.0)
    assert claim.is_vacated(ROUND)
    assert (claim._standing().size, claim._standing().deputies, claim._standing().next_round) == (0, (), 9)
    assert not claim.is_vacated(replace(ROUND, round=3)), "there is a newer one"


def test_what_came_of_writing_a_round_is_heard_by_one_that_leaves() -> None:
    claim = Claim(Settings("a", "a", "a:1", 1, external=True))
    leave(claim.farewell, awaits_round=True)
    claim.heard(KeyWritten("left", 4), 0.0)
    assert claim.farewell.is_under_way
    claim.heard(KeyWritten("round", 0), 0.0)
    assert not claim.farewell.is_under_way
