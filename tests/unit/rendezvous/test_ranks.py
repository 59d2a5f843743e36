"""Slots and ranks: who stays, who inherits, who moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.rendezvous.ranks import Candidate, Ranks, arrange, choose, ranks_of

CAREFUL = settings(max_examples=40, database=None)


def node(
    name: str, slot: int | None = None, *, workers: int = 1, role: str = "default", wish: int | None = None
) -> Candidate:
    return Candidate(name, workers, role, slot, wish)


def names(arranged: tuple[Candidate, ...]) -> str:
    return " ".join(one.node for one in arranged)


@pytest.mark.parametrize(
    ("candidates", "most", "chosen"),
    [
        ([], 3, ""),
        ([node("x"), node("y")], 3, "x y"),
        ([node("x"), node("y"), node("z")], 2, "x y"),
        ([node("x"), node("b", 1), node("a", 0)], 3, "a b x"),
        ([node("x"), node("b", 1), node("a", 0)], 2, "a b"),
        ([node("c", 2), node("b", 1), node("a", 0)], 2, "a b"),
        ([node("x"), node("c", 7)], 1, "c"),
    ],
)
def test_members_go_before_newcomers_by_slot_and_newcomers_by_arrival(
    candidates: list[Candidate], most: int, chosen: str
) -> None:
    assert names(choose(candidates, most)) == chosen


@pytest.mark.parametrize(
    ("what", "chosen", "sizes", "arranged"),
    [
        ("a first round is in order of arrival", [node("x"), node("y")], {}, "x y"),
        ("survivors stay", [node("a", 0), node("c", 2), node("x")], {0: 1, 1: 1, 2: 1}, "a x c"),
        ("a replacement of the first inherits", [node("b", 1), node("c", 2), node("x")], {0: 1, 1: 1, 2: 1}, "x b c"),
        ("two replacements, in order of arrival", [node("b", 1), node("x"), node("y")], {0: 1, 1: 1, 2: 1}, "x b y"),
        ("a shrunken round moves the last only", [node("b", 1), node("c", 2)], {0: 1, 1: 1, 2: 1}, "c b"),
        ("and nobody if the last is lost", [node("a", 0), node("b", 1)], {0: 1, 1: 1, 2: 1}, "a b"),
        ("a larger one appends", [node("a", 0), node("b", 1), node("x")], {0: 1, 1: 1}, "a b x"),
        (
            "newcomers go where as many workers were",
            [node("b", 1), node("x", workers=2), node("y", workers=8)],
            {0: 8, 1: 1, 2: 2},
            "y b x",
        ),
        ("and anywhere if none fits", [node("b", 1), node("x", workers=3)], {0: 8, 1: 1}, "x b"),
        ("wishes are kept", [node("x", wish=2), node("y", wish=0), node("z", wish=1)], {}, "y z x"),
        ("a wish goes before an old slot", [node("a", 0, wish=1), node("b", 1, wish=0)], {0: 1, 1: 1}, "b a"),
        ("a wish beyond the round is not kept", [node("x", wish=7), node("y", wish=0)], {}, "y x"),
        ("those without a wish take what is left", [node("x"), node("y", wish=0), node("z")], {}, "y x z"),
        ("one slot claimed twice goes to the first", [node("a", 1), node("b", 1), node("c", 0)], {}, "c a b"),
    ],
)
def test_arranging(what: str, chosen: list[Candidate], sizes: dict[int, int], arranged: str) -> None:
    assert names(arrange(chosen, sizes)) == arranged, what


def test_a_newcomer_goes_where_as_many_workers_were_also_if_an_earlier_slot_fits_nobody() -> None:
    chosen = [node("x", workers=4), node("y", workers=8)]
    assert names(arrange(chosen, {0: 2, 1: 4})) == "y x"


def test_ranks_follow_slots_workers_and_roles() -> None:
    arranged = [node("a", workers=2, role="actor"), node("b", workers=3, role="learner"), node("c", role="actor")]
    assert ranks_of(arranged) == {
        "a": Ranks(slot=0, first_rank=0, world_size=6, first_role_rank=0, role_world_size=3),
        "b": Ranks(slot=1, first_rank=2, world_size=6, first_role_rank=0, role_world_size=3),
        "c": Ranks(slot=2, first_rank=5, world_size=6, first_role_rank=2, role_world_size=3),
    }


def test_nobody_has_no_ranks() -> None:
    assert ranks_of(()) == {}
    assert arrange((), {0: 4}) == ()


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[Candidate], int, dict[int, int]]:
    """Draw survivors of a round, newcomers, a maximum and the sizes of the round before."""
    size = draw(st.integers(0, 8))
    sizes = {slot: draw(st.integers(1, 4)) for slot in range(size)}
    survivors = [node(f"s{slot}", slot, workers=sizes[slot]) for slot in range(size) if draw(st.booleans())]
    fresh = [
        node(f"n{index}", workers=draw(st.integers(1, 4)), role=draw(st.sampled_from("xy")))
        for index in range(draw(st.integers(0, 5)))
    ]
    return draw(st.permutations([*survivors, *fresh])), draw(st.integers(1, 10)), sizes


@CAREFUL
@given(rounds())
def test_survivors_keep_their_slots_and_only_what_must_moves(
    drawn: tuple[list[Candidate], int, dict[int, int]],
) -> None:
    candidates, most, sizes = drawn
    chosen = choose(candidates, most)
    arranged = arrange(chosen, sizes)
    assert sorted(names(arranged).split()) == sorted(names(chosen).split())
    assert len(chosen) == min(most, len(candidates))
    for slot, one in enumerate(arranged):
        if one.slot is not None and one.slot < len(arranged):
            assert one.slot == slot
    left_out = [one for one in candidates if one not in chosen]
    assert all(one.slot is None for one in left_out) or all(one.slot is not None for one in chosen)


@CAREFUL
@given(rounds())
def test_ranks_are_contiguous_in_the_world_and_in_every_role(
    drawn: tuple[list[Candidate], int, dict[int, int]],
) -> None:
    candidates, most, sizes = drawn
    arranged = arrange(choose(candidates, most), sizes)
    ranks = ranks_of(arranged)
    world = [
        rank
        for one in arranged
        for rank in range(ranks[one.node].first_rank, ranks[one.node].first_rank + one.local_world_size)
    ]
    assert world == list(range(len(world)))
    assert all(one.world_size == len(world) for one in ranks.values())
    assert [ranks[one.node].slot for one in arranged] == list(range(len(arranged)))
    for role in {one.role for one in arranged}:
        those = [one for one in arranged if one.role == role]
        first = [ranks[one.node].first_role_rank for one in those]
        own = [rank for one, at in zip(those, first, strict=True) for rank in range(at, at + one.local_world_size)]
        assert own == list(range(len(own)))
        assert {ranks[one.node].role_world_size for one in those} == {len(own)}
