from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from planaria.kube import tenure
from planaria.kube.tenure import Sight, Terms

TERMS = Terms.of(15.0)
WALL = "2022-09-11T12:08:29.000000Z"


def lease(version: str, holder: str = "a", lasts_s: int = 15, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "x", "namespace": "y", "resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": lasts_s, **spec},
    }


def test_a_lease_that_another_holds_is_taken_once_it_has_not_changed_for_its_time() -> None:
    sight = tenure.seen(lease("1"), None, now=100.0)
    assert not tenure.may_take(sight, "b", now=114.9)
    assert tenure.may_take(sight, "b", now=115.0)


def test_a_renewal_begins_the_time_anew_and_a_look_without_one_does_not() -> None:
    first = tenure.seen(lease("1"), None, now=100.0)
    assert tenure.seen(lease("1"), first, now=110.0) == first
    assert tenure.seen(lease("2"), first, now=110.0) == Sight("2", "a", 15.0, 110.0)


def test_the_times_that_a_holder_writes_are_never_read() -> None:
    old = lease("1", renewTime="1970-01-01T00:00:00.000000Z", acquireTime="1970-01-01T00:00:00.000000Z")
    sight = tenure.seen(old, None, now=5.0)
    assert not tenure.may_take(sight, "b", now=19.9)
    assert tenure.may_take(sight, "b", now=20.0)


def test_a_lease_that_was_released_or_is_ours_is_taken_at_once() -> None:
    for holder in ("", "b"):
        assert tenure.may_take(tenure.seen(lease("1", holder), None, now=0.0), "b", now=0.0)
    left = tenure.released(lease("1", leaseTransitions=3), WALL)["spec"]
    assert (left["holderIdentity"], left["leaseTransitions"]) == ("", 3)
    assert tenure.released({}, WALL)["spec"]["holderIdentity"] == ""


def test_a_holder_counts_how_often_the_lease_changed_hands_and_keeps_when_it_got_it() -> None:
    taken = tenure.written(lease("1", "a", leaseTransitions=3, acquireTime="then"), "b", TERMS, WALL)["spec"]
    assert (taken["leaseTransitions"], taken["acquireTime"], taken["renewTime"]) == (4, WALL, WALL)
    renewed = tenure.written(lease("1", "b", leaseTransitions=4, acquireTime="then"), "b", TERMS, WALL)["spec"]
    assert (renewed["leaseTransitions"], renewed["acquireTime"], renewed["renewTime"]) == (4, "then", WALL)


def test_a_lease_where_there_is_none_says_everything_that_a_look_reads() -> None:
    made = tenure.fresh("y", "x", "b", TERMS, WALL)
    made["metadata"]["resourceVersion"] = "1"
    assert tenure.seen(made, None, 3.0) == Sight("1", "b", 15.0, 3.0)


@given(
    lasts_s=st.floats(3, 3600),
    written_at=st.floats(0, 1e6),
    answered_after=st.floats(0, 1e4),
    seen_after=st.floats(0, 1e4),
)
def test_a_holder_has_given_up_before_any_observer_takes_the_lease(
    lasts_s: float, written_at: float, answered_after: float, seen_after: float
) -> None:
    """Both clocks run alike and begin anywhere; what is compared is what each of them measured."""
    terms = Terms.of(lasts_s)
    began = written_at - answered_after  # on one time line: the holder began, the server wrote, the observer saw
    first_seen = written_at + seen_after
    taken_at = first_seen + max(1, round(lasts_s))
    assert tenure.may_take(Sight("1", "a", max(1, round(lasts_s)), first_seen), "b", taken_at)
    assert not tenure.is_held(began, terms, taken_at)


def test_two_renewals_may_be_lost() -> None:
    for lasts_s in (3.0, 15.0, 60.0):
        terms = Terms.of(lasts_s)
        assert 2 * terms.renew_s < terms.give_up_s < terms.lasts_s
