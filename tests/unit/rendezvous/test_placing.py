"""Who succeeds a leader, and what a place says of the round before."""

from __future__ import annotations

import pytest

from planaria.rendezvous.messages import Join
from planaria.rendezvous.model import Deputy, Standing
from planaria.rendezvous.placing import deputies, places
from planaria.rendezvous.ranks import Candidate
from planaria.rendezvous.seats import Seat


def seats_of(*nodes: str) -> dict[str, Seat]:
    """Return the seats of nodes that came one after the other."""
    joins = [
        Join("run", node, f"host-{node}", f"{node}:1", 1, "default", None, Standing(), "idle", 0, False, 1e9, 1.0)
        for node in nodes
    ]
    return {join.node: Seat(f"in-{join.node}", join, arrival, 0.0) for arrival, join in enumerate(joins)}


def deputies_of(members: list[str], *spectators: str, base: str = "") -> list[Deputy]:
    seats = seats_of(*members, *spectators)
    arranged = [Candidate(node, 1, "default") for node in members]
    return list(deputies(arranged, seats, {node: f"{node}:1" for node in seats}, base))


@pytest.mark.parametrize(("count", "named"), [(8, 8), (9, 8), (64, 8), (65, 3)])
def test_the_first_members_succeed_a_leader_and_few_are_named_where_many_read_it(count: int, named: int) -> None:
    members = [f"n{index}" for index in range(count)]
    assert [one.node for one in deputies_of(members, "x")] == members[:named]


def test_where_members_are_few_spectators_come_after_them_by_arrival_until_there_are_eight() -> None:
    found = deputies_of(list("abcde"), "s", "r", "q", "p")
    assert [one.node for one in found] == ["a", "b", "c", "d", "e", "s", "r", "q"]


def test_seven_members_and_a_spectator_are_eight_deputies() -> None:
    assert [one.node for one in deputies_of(list("abcdefg"), "s")] == list("abcdefgs")


def test_a_deputy_is_known_as_one_of_the_round_before() -> None:
    assert deputies_of(["a", "b"], base="b") == [Deputy("a", "a:1", in_base=False), Deputy("b", "b:1", in_base=True)]


def test_members_and_spectators_are_told_whether_they_were_in_the_round_before() -> None:
    arranged = [Candidate("a", 1, "default"), Candidate("b", 1, "default")]
    standing = Standing("x", 1, 5, 2, base=2)
    found = places(standing, "", arranged, seats_of("a", "b", "s", "t"), {"b", "s"})
    assert {node: (place.slot, place.in_base) for node, place in found.items()} == {
        "a": (0, False),
        "b": (1, True),
        "s": (None, True),
        "t": (None, False),
    }


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ("a", {"a": ("a:1", "")}),
        ("ba", {"b": ("b:1", "a:1"), "a": ("b:1", "b:1")}),
        ("cab", {"c": ("c:1", "a:1"), "a": ("c:1", "b:1"), "b": ("c:1", "c:1")}),
    ],
)
def test_members_know_where_slot_0_and_the_next_slot_are_and_spectators_do_not(
    members: str, expected: dict[str, tuple[str, str]]
) -> None:
    arranged = [Candidate(node, 1, "default") for node in members]
    found = places(Standing("x", 1, 5, len(members)), "", arranged, seats_of(*sorted(members), "s"), set())
    assert {node: (place.anchor, place.buddy) for node, place in found.items()} == {**expected, "s": ("", "")}
