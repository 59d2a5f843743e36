from __future__ import annotations

from planaria.kube.settling import MOST_NEW, SETTLE_S, Settling, awaited, heard, seen

A, B, C = ("a", 0), ("b", 0), ("c", 0)


def settled(*lives: tuple[str, int]) -> Settling:
    done = heard(seen(Settling(), lives, 0.0), lives, 1.0)
    assert done.is_settled
    return done


def test_nobody_counts_before_all_of_the_first_workers_have_printed_a_step() -> None:
    state = seen(Settling(), (A, B), 0.0)
    state = heard(state, [A], 1.0)
    assert (state.is_settled, awaited(state)) == (False, (B,))
    assert heard(state, [B], 2.0).is_settled


def test_a_replacement_is_awaited_whatever_its_index_and_though_the_number_is_the_same() -> None:
    new = ("new", 0)
    state = seen(settled(A, B, C), (new, B, C), 10.0)
    assert awaited(state) == (new,)
    assert not heard(state, [B, C], 11.0).is_settled
    assert heard(state, [new], 11.0).is_settled


def test_a_container_that_is_started_again_in_place_is_awaited() -> None:
    state = seen(settled(A, B), (("a", 1), B), 10.0)
    assert (state.is_settled, awaited(state)) == (False, (("a", 1),))


def test_where_somebody_only_left_the_next_step_of_anybody_will_do() -> None:
    state = seen(settled(A, B, C), (A, B), 10.0)
    assert not heard(state, [], 11.0).is_settled
    assert heard(state, [B], 11.0).is_settled


def test_who_spoke_before_the_workers_changed_again_has_to_speak_again() -> None:
    state = heard(seen(settled(A), (A, B, C), 10.0), [B], 11.0)
    state = seen(state, (A, B), 12.0)
    assert (state.is_settled, awaited(state)) == (False, (B,))


def test_where_only_one_rank_prints_a_minute_has_to_do() -> None:
    state = seen(settled(A), (A, B), 10.0)
    assert not heard(state, [A], 9.9 + SETTLE_S).is_settled
    assert heard(state, [], 10.0 + SETTLE_S).is_settled


def test_the_same_workers_stay_settled() -> None:
    state = settled(A, B)
    assert seen(state, (A, B), 100.0) is state


def test_of_many_new_ones_a_few_have_to_speak() -> None:
    lives = tuple((f"w-{index}", 0) for index in range(100))
    state = seen(Settling(), lives, 0.0)
    assert awaited(state) == lives[-MOST_NEW:]
    assert heard(state, lives[-MOST_NEW:], 1.0).is_settled
