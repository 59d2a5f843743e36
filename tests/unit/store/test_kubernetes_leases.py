"""Who is called dead, and when: several observers in virtual time, each with a clock of its own."""

from __future__ import annotations

import random

import pytest

from planaria.store.kubernetes_leases import (
    ANNOTATION,
    JITTER,
    MOST_LEASES,
    SLACK_S,
    TRY_AGAIN_S,
    Beat,
    Dead,
    Sent,
    Vigil,
    ended,
    fresh_beat,
    granted,
    left_s,
    read_beats,
    renewed,
    write_beats,
)

TTL_S = 5.0


def test_the_object_holds_the_leases_and_keeps_what_is_not_ours() -> None:
    found = {"metadata": {"annotations": {"theirs": "stays"}}, "spec": {"holderIdentity": "x"}}
    beats = {7: Beat(5.0, 3, 1000.5), 9: Beat(86400.0, 0, 2.0)}
    written = write_beats(found, beats)
    assert read_beats(written) == beats
    assert written["metadata"]["annotations"]["theirs"] == "stays"
    assert written["spec"] == found["spec"]
    assert read_beats({"metadata": {}}) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2}',
        '{"version": 1, "leases": {"x": [1, 2, 3]}}',
        '{"version": 1, "leases": {"7": [1, 1e999, 3]}}',
    ],
)
def test_an_annotation_that_is_not_ours_is_said_and_not_taken(text: str) -> None:
    with pytest.raises(ValueError, match=f"^the annotation {ANNOTATION} of the Lease is not ours: "):
        read_beats({"metadata": {"annotations": {ANNOTATION: text}}})


def test_a_holder_that_was_never_seen_to_renew_is_dead_after_its_time_and_no_sooner() -> None:
    vigil = Vigil(lambda: 0.0)
    vigil.saw({1: Beat(TTL_S, 0, 0.0)}, 100.0)
    end = 100.0 + TTL_S + SLACK_S
    assert vigil.wakes_at() == end
    assert vigil.dead(end - 0.001) == ()
    assert vigil.dead(end) == (Dead(1, 0),)
    assert vigil.dead(end) == ()
    assert vigil.dead(end + TRY_AGAIN_S) == (Dead(1, 0),)


def test_a_beat_that_changes_begins_a_new_time_and_one_that_does_not_does_not() -> None:
    vigil = Vigil(lambda: 0.0)
    beat = Beat(TTL_S, 0, 0.0)
    vigil.saw({1: beat}, 0.0)
    vigil.saw({1: beat}, 4.0)
    assert vigil.wakes_at() == TTL_S + SLACK_S
    vigil.saw(renewed({1: beat}, 1, 1.0, None) or {}, 4.0)
    assert vigil.wakes_at() == 4.0 + TTL_S + SLACK_S


def test_leases_that_are_gone_are_told_and_forgotten() -> None:
    vigil = Vigil(lambda: 0.0)
    vigil.saw({1: Beat(TTL_S, 0, 0.0), 2: Beat(TTL_S, 0, 0.0)}, 0.0)
    assert vigil.saw({2: Beat(TTL_S, 0, 0.0)}, 1.0) == {1}
    assert vigil.saw({}, 2.0) == {2}
    assert vigil.wakes_at() is None
    assert vigil.dead(1e9) == ()


def test_of_many_observers_not_all_strike_at_once() -> None:
    rng = random.Random(1)
    vigils = [Vigil(rng.random) for _ in range(100)]
    for vigil in vigils:
        vigil.saw({1: Beat(TTL_S, 0, 0.0)}, 0.0)
    ends = sorted(vigil.wakes_at() or 0.0 for vigil in vigils)
    assert TTL_S + SLACK_S <= ends[0] < ends[-1] <= TTL_S * (1 + JITTER) + SLACK_S
    assert ends[50] > ends[0] + TTL_S * JITTER / 4


def test_room_is_made_by_what_has_long_been_over() -> None:
    few = {1: Beat(1.0, 0, 0.0)}
    assert granted(few, 2, 5.0, 99.0) == {**few, 2: Beat(5.0, 0, 99.0)}, "while there is room nobody has to go"
    beats = {number: Beat(10.0, 0, float(number)) for number in range(MOST_LEASES)}
    assert granted(beats, 99, 5.0, 9.0) is None
    after = granted(beats, 99, 5.0, 12.5)
    assert after is not None
    assert (beats.keys() - after.keys(), after[99]) == ({0}, Beat(5.0, 0, 12.5))
    assert len(beats) == MOST_LEASES, "what was read stays as it was"


def test_a_renewal_raises_the_beat_unless_the_one_that_was_just_written_is_still_there() -> None:
    beats = {1: Beat(TTL_S, 4, 10.0), 2: Beat(TTL_S, 0, 0.0)}
    assert renewed(beats, 1, 11.0, None) == {**beats, 1: Beat(TTL_S, 5, 11.0)}
    assert renewed(beats, 1, 11.0, 4) is None
    assert renewed(beats, 1, 11.0, 3) == {**beats, 1: Beat(TTL_S, 5, 11.0)}, "a write that was lost, and is not"
    assert renewed(beats, 3, 11.0, None) is None


def test_a_beat_is_fresh_for_as_long_as_observers_wait_longer() -> None:
    sent = Sent(4, 100.0)
    assert (fresh_beat(None, 100.0), fresh_beat(sent, 100.0 + SLACK_S / 2), fresh_beat(sent, 101.2)) == (None, 4, None)


def test_a_lease_is_ended_for_being_dead_only_while_its_beat_is_the_same() -> None:
    beats = {1: Beat(TTL_S, 4, 10.0), 2: Beat(TTL_S, 0, 0.0)}
    assert ended(beats, 1) == ended(beats, 1, 4) == {2: beats[2]}
    assert ended(beats, 1, 3) is None
    assert ended(beats, 3) is None
    assert ended(beats, 2, 0) == {1: beats[1]}


def test_what_is_left_of_our_own_lease_is_by_our_clock_and_of_anothers_by_the_servers() -> None:
    beat = Beat(10.0, 4, 1000.0)
    assert left_s(beat, Sent(4, 50.0), 53.0, 2000.0) == 7.0
    assert left_s(beat, Sent(4, 50.0), 70.0, 1000.0) == 0.0
    assert left_s(beat, Sent(3, 50.0), 53.0, 1002.0) == left_s(beat, None, 53.0, 1002.0) == 7.0
    assert left_s(beat, None, 53.0, 990.0) == 10.0
