"""One node's part at its edges: when it hurries, whom it believes to be gone, what it repeats, and when it may sleep."""

from __future__ import annotations

import pytest
from lone_member import (
    ENDED,
    LEASE_S,
    OWN,
    RENEW_S,
    SILENCE_S,
    joined,
    place,
    placed,
    rejoin,
    running,
    sent,
    taken,
    told,
)

from planaria.base.value import replace
from planaria.rendezvous.member import ALWAYS, MANY_NODES, Member
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Farewell,
    Join,
    Redirect,
    Renew,
    Stop,
    Stopped,
    Waiting,
)
from planaria.rendezvous.model import SELF, EndRun, Send

# Renewals.


@pytest.mark.parametrize(
    ("what", "size", "left_s", "waits_s"),
    [
        ("nothing", 2, 0.0, RENEW_S / 10),
        ("less than a quarter of a lease", 2, 0.9, RENEW_S / 10),
        ("a quarter is enough", 2, 1.0, RENEW_S),
        ("a whole one", 2, LEASE_S, RENEW_S),
        ("the largest round that hurries its leader", MANY_NODES, 0.9, RENEW_S / 10),
        ("a larger one does so gently", MANY_NODES + 1, 0.9, RENEW_S / 2),
    ],
)
def test_a_member_asks_again_soon_only_if_it_was_granted_little(
    what: str, size: int, left_s: float, waits_s: float
) -> None:
    member = running(size=size)
    member.tick(1.0)
    told(member, 1.0, Ack(2, left_s))
    assert member.wakes_at() == pytest.approx(1.0 + waits_s), what


def test_a_node_without_a_place_does_not_hurry_a_leader_that_grants_it_nothing() -> None:
    member = joined()
    told(member, 0.1, Ack(1, 0.0))
    assert member.wakes_at() == pytest.approx(3.0)


def test_a_leader_that_has_had_time_to_hear_from_all_is_not_hurried() -> None:
    member = running()
    for now in (1.0, 2.5, 4.0, SILENCE_S):
        member.tick(now)
        told(member, now, Ack(member._seq, LEASE_S if now < SILENCE_S else 0.9))
    assert member.wakes_at() == pytest.approx(SILENCE_S + RENEW_S)


def test_an_answer_counts_once() -> None:
    member = running()
    member.tick(1.0)
    told(member, 1.1, Ack(2, 3.5), Ack(2, LEASE_S))
    assert member.post.lease_until == 4.5


def test_a_renewal_is_sent_when_it_is_due_and_not_before() -> None:
    member = running()
    assert not member.tick(RENEW_S - 0.01)
    assert sent(member) == []
    assert not member.tick(RENEW_S)
    assert sent(member) == [Renew(2, 0)]


# Whom it believes to be gone.


def gone_for(member: Member, now: float, gone: str) -> tuple[str, ...]:
    """Return whom a node names to the next leader after the last redirected it."""
    told(member, now, Redirect("c:1", 1, gone=gone))
    member.opened(now)
    (join,) = (one for one in sent(member) if isinstance(one, Join))
    return join.gone


def test_a_redirect_that_names_nobody_makes_nobody_gone() -> None:
    assert gone_for(running(), 1.0, "") == ()


def test_a_goodbye_counts_for_one_who_was_told_the_newest_round_by_that_leader_whatever_its_lease() -> None:
    assert gone_for(placed(), 1.0, "a") == ("a",)
    assert gone_for(running(), LEASE_S + 1.0, "a") == ("a",)


def test_a_goodbye_counts_for_one_who_came_back_within_its_lease() -> None:
    member = running()
    rejoin(member, 1.0)
    assert gone_for(member, 1.5, "a") == ("a",)


def test_a_goodbye_counts_for_nothing_to_one_who_was_away_and_may_have_missed_a_round() -> None:
    member = running()
    rejoin(member, LEASE_S + 1.0)
    assert gone_for(member, LEASE_S + 1.5, "a") == ()


# Stops, and what is said of them.


def test_a_node_that_was_never_stopped_says_nothing_of_it_when_it_joins() -> None:
    member = Member(OWN, 0.0)
    assert not [one for one in rejoin(member, 0.0) if isinstance(one, Stopped)]


def test_a_node_whose_workers_are_still_stopping_does_not_tell_the_next_leader_that_they_are_dead() -> None:
    member = running()
    told(member, 1.0, Stop(1, "", 3.0))
    assert not [one for one in rejoin(member, 1.5) if isinstance(one, Stopped)]


@pytest.mark.parametrize("number", [0, 3])
def test_a_stop_that_was_obeyed_is_told_to_the_next_leader_and_with_every_new_port(number: int) -> None:
    member = joined()
    told(member, 1.0, Stop(number, "", 0.0))
    assert Stopped(number, 0, fenced=False) in rejoin(member, 1.5)
    member.post.stopped(4001)
    assert sent(member) == [Stopped(number, 4001, fenced=False)]


def test_a_lease_that_ran_out_between_two_rounds_is_confessed_also_when_there_is_a_new_one() -> None:
    member = running()
    told(member, 1.0, Stop(1, "", 0.0))
    member.post.stopped(4000)
    member.tick(2.0)
    member.fence_if_due(LEASE_S)
    told(member, LEASE_S, Ack(2, LEASE_S))
    assert not member.post.is_lapsed(LEASE_S)
    assert Send("to-1", Stopped(2, 4000, fenced=True)) in told(member, 4.1, Stop(2, "", 0.0))


def test_a_lease_that_runs_out_costs_a_spectator_nothing() -> None:
    member = joined()
    told(member, 0.0, place(slot=None))
    member.fence_if_due(100.0)
    assert not member.post.fenced


def test_a_node_that_stays_announces_no_goodbye_when_it_joins() -> None:
    assert not [one for one in rejoin(Member(OWN, 0.0), 0.0) if isinstance(one, Departing)]


# When it may sleep.


def test_a_node_that_seeks_has_no_leader_to_renew_with_or_to_give_up() -> None:
    member = running()
    member.seek()
    sent(member)
    assert not member.tick(100.0)
    assert sent(member) == []


@pytest.mark.parametrize(("address", "wakes_at"), [("a:1", 2.0), (SELF, 1.9 + RENEW_S)])
def test_a_node_wakes_to_give_up_a_silent_leader_unless_it_is_its_own(address: str, wakes_at: float) -> None:
    member = Member(OWN, 0.0)
    rejoin(member, 0.0, address)
    told(member, 0.0, place())
    member.tick(1.9)
    assert member.wakes_at() == pytest.approx(wakes_at)


def test_a_round_of_one_does_not_wake_for_the_end_of_a_lease() -> None:
    member = running(size=1)
    member.seek()
    assert member.wakes_at() == ALWAYS


def test_a_node_that_knows_the_end_wakes_to_go_and_not_after() -> None:
    member = joined()
    told(member, 1.0, ENDED)
    for now in (3.0, 6.0, 9.0):
        told(member, now, Waiting(""))
        member.tick(now)
    assert member.wakes_at() == 11.0
    told(member, 9.5, Farewell())
    assert member.wakes_at() > 11.0


def test_hearing_the_end_again_does_not_make_the_wait_longer() -> None:
    member = joined()
    for now in (1.0, 4.0, 8.0):
        told(member, now, ENDED)
    member.tick(11.0)
    assert EndRun(ENDED) in member.out


def test_a_node_that_knows_the_end_goes_no_sooner_than_its_leader_lets_it_or_falls_silent() -> None:
    member = joined()
    told(member, 1.0, ENDED)
    assert told(member, 8.0, Ack(1, 0.0)) == []
    member.tick(17.9)
    assert EndRun not in [type(one) for one in taken(member)]
    member.tick(18.0)
    assert EndRun in [type(one) for one in taken(member)]


def test_whoever_has_ended_looks_for_nobody_any_more() -> None:
    member = joined(settings=replace(OWN, external=True))
    told(member, 1.0, ENDED)
    member.seek()
    assert member.phase == "ended"
