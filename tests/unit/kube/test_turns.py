from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planaria.kube.turns import Turns

Key = tuple[str, str]


def drawn(turns: Turns) -> list[Key]:
    return [turns.take() for _ in range(len(turns))]


def test_namespaces_take_turns_and_within_one_who_came_first_is_first() -> None:
    turns = Turns()
    for key in [("big", "a"), ("big", "b"), ("big", "c"), ("small", "x"), ("big", "a"), ("other", "y")]:
        turns.add(key)
    assert drawn(turns) == [("big", "a"), ("small", "x"), ("other", "y"), ("big", "b"), ("big", "c")]
    assert len(turns) == 0


def test_one_who_comes_back_at_once_waits_for_the_other_namespaces() -> None:
    turns = Turns()
    for number in range(1000):
        turns.add(("big", str(number)))
    turns.take()
    turns.add(("small", "x"))
    turns.add(("big", "0"))
    assert [turns.take()[0] for _ in range(2)] == ["big", "small"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"))))
def test_everybody_who_waits_is_drawn_once(keys: list[Key]) -> None:
    turns = Turns()
    for key in keys:
        turns.add(key)
    assert sorted(drawn(turns)) == sorted(set(keys))
    assert len(turns) == 0
