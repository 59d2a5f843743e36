"""What ranks write to a disk by themselves, as far as their agent hears of it."""

from __future__ import annotations

from planaria.agent.shelf import Shelf
from planaria.contract.commit import Stamp
from planaria.contract.control import Stored
from planaria.contract.env import Round

LIFE = Round(3, "job7", "default", 1, 2, 2, 4, 2, 4, 2, "10.0.0.1", 4711, 0, 3, "")


def stored(generation: int, *, state: int = 0, run: int = 1, is_done: bool = True) -> Stored:
    return Stored(state, run, generation, 10 * generation, is_done)


def heard(*words: tuple[int, Stored]) -> Shelf:
    shelf = Shelf()
    shelf.begin(LIFE)
    for local_rank, word in words:
        shelf.hear(local_rank, word)
    return shelf


def newest(shelf: Shelf) -> int:
    return shelf.newest["disk"].generation


def test_the_newest_commit_is_the_newest_that_any_rank_has_seen_done() -> None:
    shelf = heard((0, stored(1, is_done=False)), (1, stored(1, is_done=False)))
    assert shelf.newest == {}
    shelf.hear(0, stored(1))
    assert shelf.newest == {"disk": Stamp(1, 0, 1, 10, 4, 2)}
    shelf.hear(0, stored(2, is_done=False))
    shelf.hear(0, stored(2))
    shelf.hear(0, stored(3, is_done=False))
    shelf.hear(1, stored(1))
    assert newest(shelf) == 2, "words of two ranks may overtake each other"


def test_all_is_on_disk_when_every_rank_has_said_so_of_its_last_commit() -> None:
    shelf = heard((0, stored(1, is_done=False)), (1, stored(1, is_done=False)), (0, stored(1)))
    assert not shelf.is_whole, "the other rank has not come so far, for all that is known"
    shelf.hear(1, stored(1))
    assert shelf.is_whole
    shelf.hear(1, stored(2, is_done=False))
    assert not shelf.is_whole
    shelf.hear(1, stored(2))
    assert shelf.is_whole


def test_nothing_is_on_disk_before_anything_was_heard() -> None:
    assert not heard().is_whole


def test_a_life_that_has_not_begun_a_commit_has_lost_none() -> None:
    shelf = heard((0, stored(5)), (1, stored(5)), (0, stored(6, is_done=False)))
    assert not shelf.is_whole
    shelf.begin(LIFE)
    assert shelf.is_whole, "what was begun went with its life; the fifth is there"
    shelf.hear(1, stored(6, is_done=False))
    assert not shelf.is_whole


def test_a_life_that_begins_from_an_older_commit_has_that_one() -> None:
    shelf = heard((0, stored(5)), (1, stored(5)))
    shelf.begin(LIFE)
    assert newest(shelf) == 5, "until something is heard of this life"
    shelf.hear(0, stored(4))
    shelf.hear(1, stored(4))
    assert newest(shelf) == 4
    assert shelf.is_whole


def test_a_later_run_of_the_folder_is_newer_whatever_its_count() -> None:
    shelf = heard((0, stored(9)), (0, stored(2, run=2)))
    assert shelf.newest["disk"].order == (2, 0, 2)


def test_a_commit_of_one_state_says_nothing_of_what_another_has_begun() -> None:
    shelf = heard((0, stored(1)), (0, stored(2, is_done=False)), (0, stored(2, state=1, is_done=False)))
    shelf.hear(0, stored(2, state=1))
    assert not shelf.is_whole, "that of the first one is not there"
    shelf.hear(0, stored(2))
    assert shelf.is_whole


def test_a_state_that_begins_beside_one_that_was_restored_from_elsewhere_has_the_newest_commit() -> None:
    shelf = heard((0, stored(500, run=7)), (1, stored(500, run=7)), (0, stored(1, state=1)), (1, stored(1, state=1)))
    assert shelf.newest["disk"].order == (1, 0, 1), "each folder counts its runs by itself"
    shelf.hear(0, stored(2, state=1))
    shelf.hear(1, stored(1, state=1))
    assert newest(shelf) == 2
