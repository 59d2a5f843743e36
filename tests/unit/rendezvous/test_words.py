"""What people read while a leader waits, and why a round changed."""

from __future__ import annotations

import pytest

from planaria.base.value import replace
from planaria.rendezvous import words
from planaria.rendezvous.model import Settings

RANGE = Settings("a", "host-a", "a:1", 1, min_nodes=2, max_nodes=20, join_timeout_s=60.0)
FIXED = replace(RANGE, min_nodes=20)


@pytest.mark.parametrize(
    ("settings", "count", "left_s", "text"),
    [
        (RANGE, 1, 60.0, "1 of 2 to 20 nodes are here (n0); waiting for 1 more, at most 60 s"),
        (RANGE, 1, None, "1 of 2 to 20 nodes are here (n0); waiting for 1 more"),
        (RANGE, 2, 60.0, "2 of 2 to 20 nodes are here (n0, n1); starting in a moment, unless more come"),
        (FIXED, 2, None, "2 of 20 nodes are here (n0, n1); waiting for 18 more"),
        (FIXED, 8, None, "8 of 20 nodes are here (n0, n1, n2, n3, n4, n5, n6, n7); waiting for 12 more"),
        (FIXED, 9, None, "9 of 20 nodes are here; waiting for 11 more"),
    ],
)
def test_a_line_says_who_is_here_while_few_are_how_many_miss_and_until_when_a_first_round_waits(
    settings: Settings, count: int, left_s: float | None, text: str
) -> None:
    hosts = [f"n{index}" for index in reversed(range(count))]
    assert words.waiting(settings, hosts, [], left_s) == text


def test_five_who_joined_are_named_and_of_more_it_is_said_that_there_are_others() -> None:
    assert words.joined(["a"]) == "node a joined"
    assert words.joined(list("abcde")) == "node a, b, c, d, e joined"
    assert words.joined(list("abcdef")) == "node a, b, c, d, e and others joined"
