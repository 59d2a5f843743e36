from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.archive.plan import (
    MOST_UNFINISHED,
    Unfinished,
    file_name,
    folder_name,
    forsaken,
    is_fenced,
    order_of,
    superseded,
)

ORDERS = st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**12))
FEW = st.sets(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 5)), max_size=9)


@given(ORDERS)
def test_a_folder_s_name_says_which_commit_it_is(order: tuple[int, int, int]) -> None:
    assert order_of(folder_name(order)) == order


@pytest.mark.parametrize(
    "name",
    [
        "",
        "commit",
        "commit-1-2-3",
        "commit-000001-000002-0000000003-x",
        "commit-000001-000002-000000000x",
        "checkpoint-000001",
        "commit-000001-000002-0000000003.bak",
        "commit--00001-000002-0000000003",
        "commit-00000²-000002-0000000003",
    ],
)
def test_what_is_not_ours_is_left_alone(name: str) -> None:
    assert order_of(name) is None


def test_files_are_named_by_rank() -> None:
    assert file_name(3) == "rank-00003.snapshot"


@given(FEW, st.randoms(use_true_random=False), st.integers(0, 4))
def test_the_newest_complete_commits_and_what_is_newer_stay(
    present: set[tuple[int, int, int]], rng: object, keep: int
) -> None:
    complete = {order for order in present if rng.random() < 0.5}  # type: ignore[attr-defined]
    gone = superseded(present, complete, keep)
    left = present - {*gone}
    assert gone == sorted(gone)
    if not complete:
        assert not gone
        return
    newest = max(complete)
    assert {order for order in present if order >= newest} <= left
    assert len(left & complete) == min(len(complete), max(keep, 1))
    assert all(order in complete for order in left if order < newest)


def test_what_nobody_finishes_is_what_failed_what_earlier_runs_left_and_what_is_many_commits_behind() -> None:
    mine = Unfinished()
    assert forsaken((2, 0, 9), 2, [(1, 7, 3), (2, 0, 4), (2, 0, 10)], mine) == [], "the disk does what it should"
    mine = mine.after((2, 0, 4), is_written=False)
    assert forsaken((2, 0, 9), 2, [(1, 7, 3), (2, 0, 4), (2, 0, 5)], mine) == [(1, 7, 3), (2, 0, 4)]
    assert forsaken((2, 0, 4), 2, [(2, 0, 4)], mine) == [], "it is tried once more"
    mine = mine.after((2, 0, 4), is_written=True)
    assert forsaken((2, 0, 9), 2, [(2, 0, 4)], mine) == [], "and others may finish it"
    for generation in range(5, 5 + MOST_UNFINISHED):
        assert forsaken((2, 0, generation), 2, mine.written, mine) == []
        mine = mine.after((2, 0, generation), is_written=True)
    assert forsaken((2, 1, 1), 2, mine.written, mine) == [(2, 0, 4)]
    assert mine.among([(2, 0, 5)]) == Unfinished((), ((2, 0, 5),))
    mine = Unfinished().after((2, 0, 4), is_written=False).after((2, 0, 5), is_written=False)
    assert mine.among([]) == Unfinished(((2, 0, 5),)), "a folder that could not even be made"
    assert forsaken((2, 0, 9), 2, [(1, 7, 3)], mine.among([])) == [(1, 7, 3)]
    assert forsaken((2, 0, 9), 2, [(1, 7, 3)], mine.after((1, 7, 3), is_written=True)) == [], "it is written again"


def test_a_writer_of_a_world_that_is_over_is_fenced() -> None:
    assert not is_fenced((1, 3), [])
    assert not is_fenced((1, 3), [(1, 3, 50), (1, 2, 99)])
    assert is_fenced((1, 3), [(1, 4, 1)])
    assert is_fenced((1, 3), [(2, 0, 1)])
    assert not is_fenced((2, 0), [(1, 7, 1)])
