from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract.commit import (
    BRANCH,
    LINE,
    ONE_COMMIT,
    ONE_STEP,
    Origin,
    Stamp,
    check_memory,
    hint_for,
    next_line,
    other_step,
    size_text,
    slot_to_write,
    went_apart,
)
from planaria.errors import StateRefused


def stamp(generation: int, rank: int = 0, world_size: int = 1, *, run: int = 1, round_: int = 1) -> Stamp:
    return Stamp(run, round_, generation, generation, world_size, rank)


def newest_complete(sealed: list[Stamp]) -> tuple[int, int, int] | None:
    """Return the newest commit that every rank of its world has sealed, or None."""
    ranks: dict[tuple[tuple[int, int, int], int], set[int]] = {}
    for one in sealed:
        ranks.setdefault((one.order, one.world_size), set()).add(one.rank)
    return max((order for (order, world), found in ranks.items() if len(found) == world), default=None)


@pytest.mark.parametrize(
    ("slots", "complete", "pinned", "wanted"),
    [
        ((None, None), None, (), 0),
        ((stamp(1), None), stamp(1).order, (), 1),
        ((stamp(1), stamp(2)), stamp(2).order, (), 0),
        ((stamp(3), stamp(2)), stamp(3).order, (), 1),
        ((stamp(1), stamp(2)), stamp(1).order, (), None),  # 2 may become complete, and until then there is only 1
        ((stamp(1), stamp(2)), None, (), None),
        ((stamp(1), stamp(2)), stamp(2).order, (0,), None),
        ((stamp(1), stamp(2), None), stamp(2).order, (0,), 2),
        ((stamp(1), stamp(2), stamp(3)), stamp(3).order, (), 0),
    ],
)
def test_the_slot_that_may_be_overwritten(
    slots: tuple[Stamp | None, ...], complete: tuple[int, int, int] | None, pinned: tuple[int, ...], wanted: int | None
) -> None:
    assert slot_to_write(slots, complete, pinned) == wanted


@given(st.integers(1, 4), st.randoms(use_true_random=False), st.integers(1, 40))
def test_ranks_that_seal_in_any_order_always_have_a_complete_commit_in_common(
    world: int, rng: object, steps: int
) -> None:
    """Each rank has two slots and overwrites one only when the rule allows it; a death may come after any step."""
    slots: list[list[Stamp | None]] = [[None, None] for _ in range(world)]
    writing: dict[int, int] = {}
    last, done = [0] * world, 0
    for _ in range(steps * world):
        rank = rng.randrange(world)  # type: ignore[attr-defined]
        complete = newest_complete(one for rows in slots for one in rows if one)
        if rank in writing:
            last[rank] += 1
            slots[rank][writing.pop(rank)] = stamp(last[rank], rank, world)
        elif (number := slot_to_write(slots[rank], complete)) is not None:
            slots[rank][number] = None
            writing[rank] = number
        complete = newest_complete(one for rows in slots for one in rows if one)
        assert complete is not None or not done
        assert complete is None or complete[2] >= done
        done = complete[2] if complete else 0


def test_memory_that_does_not_suffice_is_refused_with_the_numbers() -> None:
    check_memory(10, 10, 40)
    with pytest.raises(StateRefused) as caught:
        check_memory(12_000_000_000, 11_000_000_000, 44_999_999_999)
    assert caught.value.message == (
        "a snapshot of 12.0 GB does not fit: it takes 46.0 GB of memory (twice 12.0 GB of its own and twice 11.0 GB of a "
        "buddy's), and 45.0 GB are free"
    )
    assert "--snapshot-buddy=off" in caught.value.hint
    with pytest.raises(StateRefused, match=r"twice 1.50 kB of its own\), and 2.00 kB are free"):
        check_memory(1500, 0, 2000)


def test_sizes_are_for_readers() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 10_000, 100_000, 12_345_678, 123_456_789_000)] == [
        "0 bytes",
        "999 bytes",
        "1.00 kB",
        "10.0 kB",
        "100 kB",
        "12.3 MB",
        "123 GB",
    ]


def test_a_place_stamps_its_commits() -> None:
    assert Origin(2, 3, 1, 4).stamp(7, 70) == Stamp(2, 3, 7, 70, 4, 1)
    assert str(Stamp(2, 3, 7, 70, 4, 1)) == "commit 7 (step 70, round 3, rank 1 of 4)"


def test_a_line_follows_what_was_used_and_has_a_branch_for_each_commit() -> None:
    first, second = next_line(7, (1, 2, 6)), next_line(7, (1, 2, 5))
    assert first // LINE == second // LINE == 1
    assert abs(first - second) >= BRANCH
    assert first % BRANCH == 0
    assert next_line(first + 9, None) == 2 * LINE
    assert str(Stamp(1, 2, first + 3, 70, 2, 0)) == "commit 3 of line 1 (step 70, round 2, rank 0 of 2)"
    assert str(Stamp(1, 2, 3, 70, 2, 0)) == "commit 3 (step 70, round 2, rank 0 of 2)"


def test_a_mistake_has_a_hint_that_fits() -> None:
    assert hint_for(other_step(4, 0, 5, 1)) == ONE_STEP
    assert hint_for(went_apart(0, 1)) == ONE_COMMIT
