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


def left(nodes: str, term: int = 7, number: int = 2, following: int = 3, epoch: str = "e") -> Left:
    return Left(epoch, following, frozenset((term, number, node) for node in nodes))


def both(one: Left, other: Left) -> Left:
    return Left("e", max(one.next_round, other.next_round), one.names | other.names)


def leave(farewell: Farewell, *gone: str, last: Standing = ROUND, newest: Standing = ROUND) -> list[object]:
    return [*farewell.begin({"a", *gone}, [(last, {"a", "b"})], newest)]


def test_it_says_its_own_name_and_those_of_others_that_are_gone_but_not_of_strangers() -> None:
    farewell = Farewell()
    assert leave(farewell, "b", "s") == [WriteKey("left", left_record(left("ab")), 0)]
    assert farewell.is_under_way
    farewell.written(is_done=True)
    assert not farewell.is_under_way
    assert farewell.go_on(ROUND) == []


def test_it_adds_to_what_others_have_said() -> None:
    farewell = Farewell()
    farewell.found(left_record(left("b", following=5)), 11)
    assert leave(farewell) == [WriteKey("left", left_record(left("ab", following=5)), 11)]


def test_what_others_say_of_a_round_that_never_started_and_of_the_one_before_stands_side_by_side() -> None:
    """One may have heard of a round that was announced and given up, while another knows only the last that started."""
    announced = replace(ROUND, round=3, next_round=4)
    for first, second in ((ROUND, announced), (announced, ROUND)):
        farewell = Farewell()
        farewell.found(left_record(left("b", number=first.round, following=first.next_round)), 11)
        (order,) = leave(farewell, last=second)
        assert isinstance(order, WriteKey)
        assert read_left(order.value) == both(
            left("b", number=first.round), left("a", number=second.round, following=4)
        )


def test_it_leaves_every_round_that_may_turn_out_to_be_the_newest() -> None:
    announced = replace(ROUND, round=3, next_round=4, deputies=DEPUTIES[:1], size=1)
    (order,) = Farewell().begin({"a", "b"}, [(ROUND, {"a", "b"}), (announced, {"a"})], ROUND)
    assert isinstance(order, WriteKey)
    assert read_left(order.value) == both(left("ab"), left("a", number=3, following=4))


@pytest.mark.parametrize("old", [left("b", number=1), left("b", term=6, number=9), left("b", epoch="f")])
def test_what_was_said_of_rounds_before_the_one_in_the_store_and_of_other_runs_is_dropped(old: Left) -> None:
    farewell = Farewell()
    farewell.found(left_record(old), 11)
    assert leave(farewell) == [WriteKey("left", left_record(left("a")), 11)]


def test_where_all_is_known_already_nothing_is_said() -> None:
    farewell = Farewell()
    farewell.found(left_record(left("ab")), 11)
    assert leave(farewell) == []
    assert not farewell.is_under_way


def test_the_word_of_another_run_is_left_alone() -> None:
    farewell = Farewell()
    assert leave(farewell, newest=replace(ROUND, epoch="f")) == []
    assert not farewell.is_under_way


@pytest.mark.parametrize("found_first", [False, True])
def test_whoever_comes_second_tries_again_with_what_the_first_said(found_first: bool) -> None:
    farewell = Farewell()
    leave(farewell)
    steps = [lambda: farewell.written(is_done=False), lambda: farewell.found(left_record(left("b")), 12)]
    orders: list[object] = []
    for step in reversed(steps) if found_first else steps:
        assert orders == []
        step()
        orders += farewell.go_on(ROUND)
        assert farewell.is_under_way
    assert orders == [WriteKey("left", left_record(left("ab")), 12)]


def test_of_no_round_and_of_a_large_one_nothing_is_said() -> None:
    assert leave(Farewell(), last=Standing()) == []
    assert leave(Farewell(), last=replace(ROUND, size=MOST_LEAVING + 1)) == []
    assert leave(Farewell(), last=replace(ROUND, size=MOST_LEAVING)) != []


def test_of_a_large_round_whoever_knows_that_all_are_gone_says_so() -> None:
    nodes = {f"n{number}" for number in range(MOST_LEAVING + 1)}
    large = replace(ROUND, size=len(nodes))
    assert Farewell().begin(nodes - {"n0"}, [(large, nodes)], large) == []
    assert Farewell().begin(nodes, [(large, nodes)], large) != []


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{",
        '{"run": 1}',
        '{"run": ["e"], "names": []}',
        '{"run": ["e", 1]}',
        '{"run": ["e", 1], "names": [3]}',
    ],
)
def test_what_makes_no_sense_says_nothing(text: str | None) -> None:
    assert read_left(text) == Left()


def test_names_that_are_none_are_refused() -> None:
    record = json.loads(left_record(left("b")))
    assert read_left(json.dumps(record)) == left("b")
    for wrong in (7, "", "\x00", ["b"]):
        assert read_left(json.dumps({**record, "names": [[7, 2, wrong]]})) == Left()


def test_a_round_that_all_have_left_is_vacated_and_its_number_is_not_used_again() -> None:
    claim = Claim(Settings("n", "n", "n:1", 1, external=True))
    claim.heard(KeyRead("round", round_record(ROUND), 3), 0.0)
    claim.heard(KeyRead("left", left_record(both(left("b"), left("a", number=3))), 4), 0.0)
    assert not claim.is_vacated(ROUND)
    assert claim._standing() == claim.newest()
    claim.heard(KeyRead("left", left_record(left("ab", following=9)), 5), 0.0)
    assert claim.is_vacated(ROUND)
    assert (claim._standing().size, claim._standing().deputies, claim._standing().next_round) == (0, (), 9)
    assert not claim.is_vacated(replace(ROUND, round=3)), "there is a newer one"
    assert not claim.is_vacated(replace(ROUND, epoch="f")), "it is another run"


def test_it_hears_what_came_of_its_word() -> None:
    claim = Claim(Settings("a", "a", "a:1", 1, external=True))
    leave(claim.farewell)
    claim.heard(KeyWritten("left", 4), 0.0)
    assert not claim.farewell.is_under_way
