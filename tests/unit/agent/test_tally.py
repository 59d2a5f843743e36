from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from planaria.agent.tally import MOST_KEPT, Tally
from planaria.contract.commit import BRANCH, LINE

ROUND = (1, 4)


def order(generation: int) -> tuple[int, int, int]:
    return (*ROUND, generation)


def seal(tally: Tally, who: int, generation: int, step: int | None = None) -> dict[int, str]:
    found = tally.seal(who, order(generation), generation * 10 if step is None else step, who * 8)
    return {void[2]: why for void, why in found.items()}


def test_what_all_have_sealed_is_whole() -> None:
    tally = Tally(3)
    for who in (2, 0):
        assert seal(tally, who, 1) == {}
        assert not tally.is_whole(order(1))
    assert seal(tally, 2, 1) == {}, "said again"
    assert tally.missing() == (1,)
    seal(tally, 1, 1)
    assert tally.is_whole(order(1))
    assert tally.step(order(1)) == 10
    tally.complete(order(1))
    assert tally.missing() == ()


def test_what_somebody_has_passed_over_is_void_for_all() -> None:
    tally = Tally(2)
    seal(tally, 0, 1)
    seal(tally, 0, 2)
    assert seal(tally, 1, 3) == {1: "", 2: ""}
    assert tally.void == {order(1): "", order(2): ""}
    assert seal(tally, 0, 3) == {}
    assert tally.is_whole(order(3))


def test_what_was_passed_over_before_anybody_sealed_it_is_void_when_somebody_does() -> None:
    tally = Tally(2)
    seal(tally, 1, 1)
    assert seal(tally, 1, 4) == {}
    assert seal(tally, 0, 1) == {}
    tally.complete(order(1))
    assert [seal(tally, 0, generation) for generation in (2, 3)] == [{2: ""}, {3: ""}]
    seal(tally, 0, 4)
    assert tally.is_whole(order(4))


def test_who_went_back_has_passed_over_the_rest_of_the_old_line() -> None:
    """Rank 0 had sealed 3 when all went back; the rank that had not never seals it."""
    tally = Tally(2)
    for generation in (1, 2, 3):
        seal(tally, 0, generation)
    for generation in (1, 2):
        seal(tally, 1, generation)
    assert seal(tally, 1, LINE + 1) == {3: ""}
    seal(tally, 0, LINE + 1)
    assert tally.is_whole(order(LINE + 1))


def test_who_went_back_to_different_commits_hears_so_at_every_commit_and_waits_for_nobody() -> None:
    """Else the one in the higher branch would wait for the other, whose commits are all older, for ever."""
    tally = Tally(2)
    for who in (0, 1):
        seal(tally, who, 1)
    assert seal(tally, 1, LINE + 7 * BRANCH + 1) == {}
    why = "rank 8 and rank 0 have gone back to different commits; what they make now does not fit together"
    assert seal(tally, 0, LINE + 3 * BRANCH + 1) == {LINE + 3 * BRANCH + 1: why, LINE + 7 * BRANCH + 1: why}
    assert seal(tally, 1, LINE + 7 * BRANCH + 2) == {LINE + 7 * BRANCH + 2: why}
    for who in (0, 1):
        assert seal(tally, who, 2 * LINE + 1) == {}, "they have gone back once more"
    assert tally.is_whole(order(2 * LINE + 1))


def test_different_steps_are_void_with_the_reason() -> None:
    tally = Tally(3)
    seal(tally, 1, 1, 24)
    assert seal(tally, 0, 1, 21) == {1: "step is 24 on rank 8 and 21 on rank 0; it must be the same on all ranks"}
    assert seal(tally, 2, 1, 24) == {}
    assert not tally.has_sealed(2, order(1))
    assert not tally.is_whole(order(1))


def test_a_reason_is_news_and_the_same_word_again_is_not() -> None:
    tally = Tally(2)
    assert tally.reject(order(1))
    assert not tally.reject(order(1))
    assert tally.reject(order(1), "different steps")
    assert not tally.reject(order(1), "another reason")
    assert tally.void == {order(1): "different steps"}


def test_what_everybody_has_left_behind_is_forgotten() -> None:
    tally = Tally(2)
    for generation in range(1, 4 * MOST_KEPT):
        seal(tally, generation % 2, generation)
    assert len(tally.void) <= 2 * MOST_KEPT
    assert tally.void.keys() >= {order(4 * MOST_KEPT - 2)}, "which somebody may wait for"


def test_one_who_is_refused_every_commit_makes_nobody_remember_them_all() -> None:
    tally = Tally(2)
    for generation in range(1, 10 * MOST_KEPT):
        seal(tally, 0, generation)
        tally.reject(order(generation))
    assert len(tally.void) <= 2 * MOST_KEPT
    assert seal(tally, 1, 5) == {5: ""}, "it is forgotten, and void all the same"
    assert not tally.is_whole(order(5))
    last = 10 * MOST_KEPT
    assert seal(tally, 0, last) == seal(tally, 1, last) == {}
    assert tally.is_whole(order(last)), "who is taken again counts again"


def test_nobody_remembers_all_that_some_have_passed_over_while_one_is_silent() -> None:
    tally = Tally(3)
    for generation in range(1, 40 * MOST_KEPT, 2):
        seal(tally, 0, generation)
        seal(tally, 1, generation + 1)
    assert len(tally.void) <= 2 * MOST_KEPT
    assert len(tally._gaps) <= 4 * MOST_KEPT


def test_a_first_commit_that_was_refused_is_no_other_branch_although_it_is_the_last_of_its_number() -> None:
    tally = Tally(2)
    assert seal(tally, 0, BRANCH - 1) == {}
    assert seal(tally, 1, BRANCH) == {BRANCH - 1: ""}
    seal(tally, 0, BRANCH)
    assert tally.is_whole(order(BRANCH))


@given(st.lists(st.sets(st.integers(1, 12)), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_in_whatever_order_it_is_heard_each_commit_is_whole_or_void_in_the_end(
    sealed: list[set[int]], rng: object
) -> None:
    """Everybody seals some of twelve commits, in their order, and one more; only the interleaving is left to chance."""
    tally, last = Tally(len(sealed)), 13
    queues = [sorted(ones | {last}) for ones in sealed]
    seen_whole, found = set(), dict[int, str]()
    while any(queues):
        who = rng.choice([at for at, queue in enumerate(queues) if queue])  # type: ignore[attr-defined]
        generation = queues[who].pop(0)
        for void, why in seal(tally, who, generation).items():
            assert void not in found, "told once"
            found[void] = why
        if tally.is_whole(order(generation)):
            seen_whole.add(generation)
    common = set.intersection(*sealed)
    assert seen_whole == common | {last}
    assert set(found) == set.union(*sealed) - common
    assert tally.missing() == ()
