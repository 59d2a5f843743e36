"""One node's part: what it holds to, how long its lease lasts, and how it parts."""

from __future__ import annotations

import pytest
from lone_member import (
    ENDED,
    LEADER,
    LEASE_S,
    OWN,
    RENEW_S,
    SUSPECT_S,
    joined,
    place,
    rejoin,
    running,
    sent,
    taken,
    told,
)

from planaria.base.value import replace
from planaria.rendezvous.member import LONG_AGO_S, Member
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Ended,
    Farewell,
    Heard,
    Join,
    Leave,
    Placed,
    Redirect,
    Refused,
    Renew,
    Start,
    Stopped,
    Waiting,
)
from planaria.rendezvous.model import (
    SELF,
    Close,
    Connect,
    EndRun,
    Fence,
    Say,
    Send,
    Standing,
    StartWorkers,
)

# Joining.


def test_a_node_introduces_itself_with_what_it_knows() -> None:
    settings = replace(OWN, role="actor", slot=3, run_id="run")
    member = Member(settings, 100.0)
    member.join(LEADER, 101.0)
    assert taken(member) == [Connect("to-1", LEADER)]
    member.opened(102.0)
    (join,) = sent(member)
    assert join == Join(
        "run", "b", "host-b", "b:1", 2, "actor", 3, Standing(), "idle", 0, False, LONG_AGO_S, 2.0, 0, (), ()
    )


def test_a_node_that_comes_back_says_for_how_long_it_had_no_answer_and_that_its_lease_is_over() -> None:
    member = running()
    for now, fenced in [(3.9, False), (4.0, True)]:
        member.join("c:1", now)
        member.opened(now)
        join = next(one for one in sent(member) if isinstance(one, Join))
        assert (join.state, join.bound_term, join.fenced, join.since_ack_s) == ("running", 1, fenced, now)
        assert join.standing.slot == 1


def test_going_to_another_leader_closes_the_connection_to_the_last() -> None:
    member = joined()
    member.join("c:1", 1.0)
    assert taken(member) == [Close("to-1"), Connect("to-2", "c:1")]


@pytest.mark.parametrize(
    ("what", "member", "patience_s"),
    [("nothing to lose", joined(), 10.0), ("a spectator", joined(), 10.0), ("a member", running(), SUSPECT_S)],
)
def test_a_silent_leader_is_given_up_after_a_while(what: str, member: Member, patience_s: float) -> None:
    if what == "a spectator":
        told(member, 0.0, place(slot=None))
    assert not member.tick(patience_s - 0.01)
    assert member.tick(patience_s)


def test_the_leader_in_our_own_process_is_never_silent() -> None:
    member = joined(address=SELF)
    told(member, 0.0, place())
    assert not member.tick(1000.0)


def test_an_answer_that_does_not_come_ends_joining() -> None:
    member = Member(OWN, 0.0)
    member.join(LEADER, 0.0)
    assert member.wakes_at() == SUSPECT_S
    assert not member.tick(SUSPECT_S - 0.01)
    assert member.tick(SUSPECT_S)


def test_a_node_without_a_place_that_has_reached_somebody_waits_longer() -> None:
    member = Member(OWN, 0.0)
    member.join(LEADER, 0.0)
    member.opened(1.0)
    assert not member.tick(10.9)
    assert member.tick(11.0)


# The lease.


@pytest.mark.parametrize(
    ("what", "arrives_at", "left_s", "until"),
    [
        ("an answer at once", 1.0, LEASE_S, 5.0),
        ("an answer that was long under way grants no more", 4.5, LEASE_S, 5.0),
        ("one that comes after its own end changes nothing", 9.0, LEASE_S, 5.0),
        ("what is left of the leader's validity is the limit", 1.0, 3.5, 4.5),
        ("a leader cannot grant more than a lease", 1.0, 1000.0, 5.0),
        ("less than there was takes nothing away", 1.0, 0.5, 4.0),
        ("nothing left grants nothing", 1.0, 0.0, 4.0),
        ("less than nothing takes nothing away", 1.0, -9.0, 4.0),
    ],
)
def test_a_lease_counts_from_the_moment_its_renewal_was_sent(
    what: str, arrives_at: float, left_s: float, until: float
) -> None:
    member = running()
    member.tick(1.0)
    assert sent(member) == [Renew(2, 0)]
    told(member, arrives_at, Ack(2, left_s))
    assert member.post.lease_until == until, what


def test_an_answer_to_nothing_we_sent_grants_nothing() -> None:
    member = running()
    told(member, 1.0, Ack(77, LEASE_S))
    assert member.post.lease_until == LEASE_S
    member.tick(1.0)
    assert sent(member) == [Renew(2, 0)]


def test_an_answer_that_was_overtaken_by_a_later_one_grants_nothing() -> None:
    member = running()
    member.tick(1.0)
    told(member, 1.5, Ack(2, LEASE_S))
    assert told(member, 1.6, Ack(1, LEASE_S)) == []
    assert member.post.lease_until == 5.0


def test_renewals_echo_the_highest_answer_and_start_over_with_every_leader() -> None:
    member = running()
    said = []
    for now in (1.0, 2.0, 3.0):
        member.tick(now)
        said += sent(member)
        told(member, now, Ack(member._seq, LEASE_S))
    assert said == [Renew(2, 0), Renew(3, 2), Renew(4, 3)]
    assert Renew(1, 0) in rejoin(member, 3.5)
    assert told(member, 3.6, Ack(4, LEASE_S)) == []


def test_a_member_renews_often_and_a_node_without_a_place_seldom() -> None:
    assert joined().wakes_at() == pytest.approx(3.0)
    member = joined()
    told(member, 1.0, place())
    assert member.wakes_at() == pytest.approx(1.0 + RENEW_S)


def test_a_member_that_was_granted_little_asks_again_soon() -> None:
    member = running()
    member.tick(1.0)
    told(member, 1.1, Ack(2, 0.9))
    assert member.wakes_at() == pytest.approx(1.1 + RENEW_S / 10)


def test_the_lease_of_a_start_counts_from_when_we_said_that_we_know() -> None:
    member = joined()
    told(member, 1.0, place())
    orders = told(member, 2.5, Start(0, 3.0))
    assert member.post.lease_until == 4.0
    assert orders.index(Fence(4.0)) < orders.index(StartWorkers(place()))


@pytest.mark.parametrize(
    ("arrives_at", "left_s"), [(1.0, 0.0), (1.0, -1.0), (5.0, LEASE_S), (5.0, 1000.0), (9.0, LEASE_S), (1.5, 0.5)]
)
def test_a_start_without_a_lease_is_not_obeyed_and_that_is_reported(arrives_at: float, left_s: float) -> None:
    member = joined()
    told(member, 1.0, place(3))
    member.post.port = 4000
    assert told(member, arrives_at, Start(3, left_s)) == [Send("to-1", Stopped(4, 4000, fenced=True))]
    assert member.post.workers == "idle"


def test_a_start_just_within_the_lease_is_obeyed() -> None:
    member = joined()
    told(member, 1.0, place())
    assert StartWorkers(place()) in told(member, 4.99, Start(0, LEASE_S))


def test_a_place_that_is_told_again_counts_its_lease_anew() -> None:
    member = joined()
    told(member, 1.0, place())
    assert told(member, 3.0, place()) == [Send("to-1", Placed(0))]
    assert StartWorkers(place()) in told(member, 6.0, Start(0, LEASE_S))
    assert member.post.lease_until == 7.0


# Redirects, goodbyes, the end.


@pytest.mark.parametrize(
    ("what", "address", "phase", "appointed"),
    [("another leads", "c:1", "joining", False), ("an heir", "b:1", "seeking", True), ("nobody", "", "seeking", False)],
)
def test_a_redirect_to_another_is_followed_and_one_to_ourselves_makes_an_heir(
    what: str, address: str, phase: str, appointed: bool
) -> None:
    member = running()
    orders = told(member, 1.0, Redirect(address, 1))
    assert (member.phase, member.is_appointed) == (phase, appointed), what
    assert Close("to-1") in orders
    assert (Connect("to-2", "c:1") in orders) == (what == "another leads")
    assert member.post.workers == "running"


def test_whoever_said_goodbye_with_a_redirect_is_named_to_the_next_leader() -> None:
    member = running()
    told(member, 1.0, Redirect("c:1", 1, gone="a"))
    member.opened(1.0)
    (join,) = sent(member)
    assert isinstance(join, Join)
    assert join.gone == ("a",)


def test_a_leader_that_was_taken_for_dead_and_welcomes_us_is_not() -> None:
    member = running()
    member.dead = {"a", "c"}
    rejoin(member, 1.0)
    assert member.dead == {"c"}


def test_an_announced_goodbye_is_announced_to_the_next_leader_too() -> None:
    member = running()
    member.announce_leave("SIGTERM")
    assert sent(member) == [Departing("SIGTERM")]
    assert Departing("SIGTERM") in rejoin(member, 1.0)


def test_a_goodbye_is_said_before_the_connection_ends_and_is_the_end() -> None:
    member = running()
    member.leave("SIGTERM")
    assert taken(member) == [Send("to-1", Leave("SIGTERM")), Close("to-1"), Fence(None)]
    member.end(ENDED)
    assert (member.phase, taken(member)) == ("ended", [])


def test_a_node_that_knows_the_end_stays_until_everybody_does() -> None:
    member = joined()
    assert told(member, 1.0, ENDED) == [Send("to-1", Heard())]
    assert told(member, 2.0, ENDED) == [Send("to-1", Heard())]
    assert told(member, 3.0, Farewell()) == [EndRun(ENDED)]
    assert told(member, 3.0, Farewell()) == []


def test_a_node_that_hears_no_farewell_goes_after_two_ttl() -> None:
    member = joined()
    told(member, 1.0, ENDED)
    for now in (4.0, 8.0, 10.9):
        told(member, now, Waiting(""))
        member.tick(now)
    assert not [one for one in taken(member) if isinstance(one, EndRun)]
    assert member.wakes_at() <= 11.0
    member.tick(11.0)
    assert EndRun(ENDED) in taken(member)


@pytest.mark.parametrize("how", ["external", "self"])
def test_a_node_goes_at_once_if_others_will_hear_it_from_the_store_or_it_led_itself(how: str) -> None:
    settings = replace(OWN, external=how == "external")
    member = joined(settings=settings, address=SELF if how == "self" else LEADER)
    assert told(member, 1.0, ENDED) == [Send("to-1", Heard()), EndRun(ENDED)]


def test_a_farewell_to_one_who_was_not_told_the_end_is_no_end() -> None:
    member = joined()
    assert told(member, 1.0, Farewell()) == []
    assert member.phase == "joined"


def test_a_refusal_is_the_end_and_its_reason_is_told() -> None:
    assert told(joined(), 1.0, Refused("node rank 1 is taken")) == [
        EndRun(Ended("refused", 2, "node rank 1 is taken", (), 0))
    ]


def test_what_the_leader_waits_for_is_said() -> None:
    assert told(joined(), 1.0, Waiting("2 of 3")) == [Say("2 of 3", passing=True)]


@pytest.mark.parametrize(("known", "renews"), [(Standing(), False), (Standing("a", 1, 3, 2, 1), True)])
def test_who_knows_of_no_round_joins_without_a_renewal_of_its_own(known: Standing, renews: bool) -> None:
    member = Member(OWN, 0.0)
    member.post.standing = known
    assert (Renew(1, 0) in rejoin(member, 0.0)) == renews
    assert 0.0 < member.wakes_at() <= OWN.ttl_s * 0.6
