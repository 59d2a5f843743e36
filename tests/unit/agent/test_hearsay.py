"""What ranks write to a disk by themselves, as far as their agent hears of it."""

from __future__ import annotations

import pytest

from planaria.agent.hearsay import MOST_WORDS, Hearsay
from planaria.contract.commit import Stamp
from planaria.contract.control import Stored
from planaria.contract.env import Round

LIFE = Round(3, "job7", "default", 1, 2, 2, 4, 2, 4, 2, "10.0.0.1", 4711, 0, 3, "")


def stored(generation: int, *, state: int = 0, run: int = 1, is_done: bool = True) -> Stored:
    return Stored(state, run, generation, 10 * generation, is_done)


def heard(*words: tuple[int, Stored]) -> Hearsay:
    hearsay = Hearsay()
    hearsay.begin(LIFE)
    for local_rank, word in words:
        hearsay.hear(local_rank, word)
    return hearsay


def newest(hearsay: Hearsay) -> int:
    return hearsay.newest["disk"].generation


def test_the_newest_commit_is_the_newest_that_any_rank_has_seen_done() -> None:
    hearsay = heard((0, stored(1, is_done=False)), (1, stored(1, is_done=False)))
    assert hearsay.newest == {}
    hearsay.hear(0, stored(1))
    assert hearsay.newest == {"disk": Stamp(1, 0, 1, 10, 4, 2)}
    hearsay.hear(0, stored(2, is_done=False))
    hearsay.hear(0, stored(2))
    hearsay.hear(0, stored(3, is_done=False))
    hearsay.hear(1, stored(1))
    assert newest(hearsay) == 2, "words of two ranks may overtake each other"


def test_all_is_on_disk_when_no_rank_has_begun_a_newer_commit_than_the_newest() -> None:
    hearsay = heard((0, stored(1, is_done=False)), (1, stored(1, is_done=False)))
    assert not hearsay.is_whole
    hearsay.hear(0, stored(1))
    assert hearsay.is_whole, "the other rank's part is there, too, though its word is not"
    hearsay.hear(1, stored(2, is_done=False))
    assert not hearsay.is_whole
    hearsay.hear(0, stored(2))
    assert hearsay.is_whole


def test_ranks_that_have_gone_back_have_lost_nothing_since() -> None:
    hearsay = heard((0, stored(5)), (1, stored(5)), (0, stored(6, is_done=False)), (1, stored(6, is_done=False)))
    hearsay.hear(0, stored(5))
    assert not hearsay.is_whole
    hearsay.hear(1, stored(5))
    assert hearsay.is_whole


def test_what_a_life_that_is_over_had_begun_is_not_lost_by_the_drain_that_comes_then() -> None:
    hearsay = heard((0, stored(5)), (1, stored(5)), (0, stored(6, is_done=False)))
    hearsay.end()
    assert hearsay.is_whole
    hearsay.hear(1, stored(6, is_done=False))
    assert hearsay.is_whole, "said before its end, and read after it"
    hearsay.begin(LIFE)
    hearsay.hear(1, stored(6, is_done=False))
    assert not hearsay.is_whole


def test_a_life_that_begins_from_nothing_has_no_commit_to_go_back_to() -> None:
    hearsay = heard((0, stored(5)), (1, stored(5)))
    hearsay.begin(LIFE)
    hearsay.hear(0, stored(0))
    assert (hearsay.newest, hearsay.is_whole) == ({}, False)
    hearsay.hear(0, stored(1))
    hearsay.hear(1, stored(0))
    assert newest(hearsay) == 1, "a word that comes late"
    hearsay.hear(0, stored(0, state=1))
    assert newest(hearsay) == 1, "of the one state; the other has nothing yet"


def test_nothing_is_on_disk_before_anything_was_heard() -> None:
    assert not heard().is_whole


def test_a_life_that_has_not_begun_a_commit_has_lost_none() -> None:
    hearsay = heard((0, stored(5)), (1, stored(5)), (0, stored(6, is_done=False)))
    assert not hearsay.is_whole
    hearsay.begin(LIFE)
    assert hearsay.is_whole, "what was begun went with its life; the fifth is there"
    hearsay.hear(1, stored(6, is_done=False))
    assert not hearsay.is_whole


def test_a_life_that_begins_from_an_older_commit_has_that_one() -> None:
    hearsay = heard((0, stored(5)), (1, stored(5)))
    hearsay.begin(LIFE)
    assert newest(hearsay) == 5, "until something is heard of this life"
    hearsay.hear(0, stored(4))
    hearsay.hear(1, stored(4))
    assert newest(hearsay) == 4
    assert hearsay.is_whole


@pytest.mark.parametrize(
    "begun_in", [0, 1], ids=["without a life: the folder cannot be written to", "in a copied folder"]
)
def test_within_a_life_only_the_number_of_a_commit_counts(begun_in: int) -> None:
    """What was restored may tell of a higher run than the commits that follow."""
    hearsay = heard((0, stored(5, run=3)), (1, stored(5, run=3)), (0, stored(6, run=begun_in, is_done=False)))
    assert not hearsay.is_whole
    hearsay.hear(0, stored(6, run=begun_in))
    assert hearsay.is_whole
    assert newest(hearsay) == 6


def test_what_a_copy_of_the_folder_has_says_nothing_of_the_folder() -> None:
    """As a process below a rank finds that evaluates a copy: it speaks as that rank."""
    hearsay = heard((0, stored(7)), (0, stored(8, is_done=False)), (0, stored(8, state=2)))
    assert not hearsay.is_whole


def test_a_state_that_begins_from_nothing_does_not_forget_what_another_one_had() -> None:
    hearsay = heard((0, stored(6)), (0, stored(5, state=1)), (0, stored(3, state=2)))
    hearsay.begin(LIFE)
    hearsay.hear(0, stored(0, state=2))
    assert hearsay.is_whole, "the others have not restored yet"
    assert newest(hearsay) == 5
    hearsay.begin(LIFE)
    hearsay.hear(0, stored(0, state=1))
    assert newest(hearsay) == 6
    hearsay.hear(0, stored(0))
    assert (hearsay.is_whole, hearsay.newest) == (False, {})


def test_of_a_flood_of_states_only_so_much_is_kept_and_nothing_is_said_to_be_safe() -> None:
    hearsay = heard(*((0, stored(1, state=state)) for state in range(MOST_WORDS)))
    assert hearsay.is_whole
    hearsay.hear(0, stored(2, state=0))
    assert newest(hearsay) == 2, "of one that is known"
    hearsay.hear(0, stored(1, state=MOST_WORDS))
    assert not hearsay.is_whole
    hearsay.begin(LIFE)
    assert hearsay.is_whole


def test_a_commit_of_one_state_says_nothing_of_what_another_has_begun() -> None:
    hearsay = heard((0, stored(1)), (0, stored(2, is_done=False)), (0, stored(2, state=1, is_done=False)))
    hearsay.hear(0, stored(2, state=1))
    assert not hearsay.is_whole, "that of the first one is not there"
    hearsay.hear(0, stored(2))
    assert hearsay.is_whole


def test_a_state_that_begins_beside_one_that_was_restored_from_elsewhere_has_the_newest_commit() -> None:
    hearsay = heard((0, stored(500, run=7)), (1, stored(500, run=7)), (0, stored(1, state=1)), (1, stored(1, state=1)))
    assert hearsay.newest["disk"].order == (1, 0, 1), "each folder counts its runs by itself"
    hearsay.hear(0, stored(2, state=1))
    hearsay.hear(1, stored(1, state=1))
    assert newest(hearsay) == 2
