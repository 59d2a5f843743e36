"""The leader at the end of a run, and the leader that takes over from another."""

from __future__ import annotations

import pytest
from court import Court, asking_store, claimed, only, to_whom

from planaria.base.value import replace
from planaria.rendezvous.keys import outcome_in_round
from planaria.rendezvous.messages import (
    Ack,
    Done,
    Ended,
    Failed,
    Farewell,
    Heard,
    Leave,
    Place,
    Placed,
    Redirect,
    Refused,
    Renew,
    Start,
    Stop,
    Stopped,
    Welcome,
)
from planaria.rendezvous.model import Close, Say, Send, Standing, WriteKey

SILENCE_S = 5.5
EPSILON_S = 0.01


# The end.


def test_the_run_is_done_when_every_member_is_and_our_own_node_hears_it_last() -> None:
    court = Court()
    court.begin("abc")
    court.say("ab", Done(0))
    assert court.look() == []
    court.say("c", Done(0))
    told = court.look()
    assert to_whom(told, Ended) == ["b", "c"]
    assert only(told, Ended) == Ended("done", 0, "", (), 0)
    court.say("b", Heard())
    assert court.look() == []
    court.say("c", Heard())
    assert sorted((node, type(message)) for node, message in court.look()) == sorted(
        [("a", Ended), ("b", Farewell), ("c", Farewell)], key=lambda pair: pair[0]
    )


def test_one_who_does_not_hear_the_end_is_waited_for_for_two_ttl() -> None:
    court = Court()
    court.begin("ab")
    court.say("ab", Done(0))
    court.look()
    court.renew("b")
    court.look(5.0)
    court.renew("b")
    assert to_whom(court.look(4.9), Farewell) == []
    assert to_whom(court.look(0.2), Farewell) == ["b"]


def test_who_only_waited_in_a_run_that_is_over_is_a_newcomer_in_the_next() -> None:
    court = Court(max_nodes=3)
    court.begin("ab")
    court.join("c", standing=Standing(epoch="x", term=9, round=40, size=1, slot=None))
    assert court.leader.office.seats["c"].join.standing == Standing()
    assert to_whom(court.look(), Place) == ["a", "b", "c"]


def test_a_rank_that_is_taken_is_refused_once_its_holder_was_heard_again() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    court.look(1.0)
    court.join("c", slot_wish=1)
    assert to_whom(court.look(0.5), Refused) == [], "the holder may be dead, and this one may be to replace it"
    court.renew("b")
    court.join("c", slot_wish=1)
    told = court.look()
    assert [message.why for _, message in told if isinstance(message, Refused)] == ["--node-rank=1 is taken by host-b"]


def test_each_of_two_that_want_a_rank_that_is_taken_is_refused() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    for node in "cd":
        court.join(node, slot_wish=1)
    court.look(0.5)
    court.renew("b")
    for node in "cd":
        court.join(node, slot_wish=1)
    assert to_whom(court.look(), Refused) == ["c", "d"]


def test_a_rank_whose_holder_is_gone_goes_to_who_waited_for_it() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    court.join("c", slot_wish=1)
    court.lose("b")
    court.join("c", slot_wish=1)
    assert to_whom(court.look(), Welcome) == ["b", "c"]


def test_a_connection_is_one_node() -> None:
    court = Court()
    court.join("b", "in-b")
    court.join("c", "in-b")
    assert court.leader.office.seats == {}
    assert Close("in-b") in court.leader.take_orders()


def test_a_node_that_never_shows_what_it_got_does_not_fill_the_memory() -> None:
    court = Court()
    court.join("b")
    for number in range(1, 1000):
        court.leader.received("in-b", Renew(number, 0), court.now)
    assert len(court.leader.office.seats["b"].sent) <= 100


@pytest.mark.parametrize("phase", ["running", "stopping", "placing"])
def test_nobody_holds_a_lease_who_does_not_know_the_newest_round(phase: str) -> None:
    court = Court(max_nodes=3)
    court.begin("abc")
    if phase != "running":
        court.say("c", Failed(0, (), (), ()))
        court.look()
    if phase == "placing":
        court.say("abc", Stopped(1, 5, fenced=False))
        court.look()
    assert court.leader.office.phase == phase
    court.join("x", standing=Standing())
    told = [message for node, message in court.look() if node == "x"]
    newest = next(message.round for message in told if isinstance(message, Place))
    assert newest == (1 if phase == "placing" else 0)
    granted = next(message for message in told if isinstance(message, Ack))
    assert granted.seq == 0
    assert granted.left_s > 0
    assert [type(one) for one in told].index(Place) < [type(one) for one in told].index(Ack)


def test_no_round_is_made_while_a_spectator_that_is_away_may_take_the_last_for_the_newest() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("s")
    court.renew("abs")
    court.look()
    court.lose("s")
    court.say("b", Failed(0, (), (), ()))
    court.look()
    court.say("ab", Stopped(1, 5, fenced=False))
    assert to_whom(court.look(), Place) == [], "its lease says that nothing is newer"
    assert to_whom(court.live("ab", 12.0), Place) == ["a", "b"]


def test_a_spectator_that_is_dead_is_not_waited_for() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("s")
    court.look()
    court.lose("s")
    court.say("b", Failed(0, (), (), ()))
    court.look()
    court.say("ab", Stopped(1, 5, fenced=False))
    court.look()
    court.refuse("s")
    assert to_whom(court.look(), Place) == ["a", "b"]


@pytest.mark.parametrize("how", ["left", "killed", "silent"])
def test_a_member_that_is_done_takes_nothing_along_when_it_goes(how: str) -> None:
    court = Court()
    court.begin("abc")
    court.say("c", Done(0))
    court.look()
    if how == "left":
        court.say("c", Leave(""))
    else:
        court.lose("c")
    if how == "killed":
        court.refuse("c")
    told = court.look() + court.live("ab", 12.0)
    assert to_whom(told, Stop) == [], "it was done: there is nothing to start over"
    court.say("ab", Done(0))
    court.look()
    assert court.leader.office.ended == Ended("done", 0, "", (), 0)


def test_a_member_that_leaves_before_it_is_done_has_not_done_its_part() -> None:
    court = Court()
    court.begin("abc")
    court.say("ab", Done(0))
    court.say("c", Leave(""))
    told = court.look()
    assert court.leader.office.ended is None
    assert to_whom(told, Stop) == ["a", "b"]


def test_who_comes_while_the_run_finishes_does_not_make_it_start_over() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", Done(0))
    court.join("c")
    told = court.look() + court.live("abc", 2.0)
    assert to_whom(told, Stop) == []


def test_who_comes_back_after_the_end_is_told_and_who_is_new_is_sent_away() -> None:
    court = Court()
    court.begin("ab")
    court.say("ab", Done(0))
    court.look()
    court.now += 2.0
    court.join("b", "in-again", age_s=50.0)
    court.join("z", age_s=1.0)
    told = court.look()
    assert [type(message) for node, message in told if node == "b"] == [Welcome, Ended, Ack]
    assert [message for node, message in told if node == "z"] == [Redirect("", 0)]


def stored_end() -> Court:
    """Return the court of two nodes that are done, by the store's leave; their round has revision 41."""
    court = asking_store("ab")
    court.leader.round_written(41, court.now)
    court.look()
    court.say("ab", Done(0))
    assert court.look() == []
    return court


def test_with_a_store_the_last_round_is_marked_then_the_outcome_is_written_then_it_is_told() -> None:
    court = stored_end()
    (mark,) = [one for one in court.others if isinstance(one, WriteKey)]
    assert (mark.key, mark.expect) == ("round", 41), "a round that somebody else made meanwhile wins"
    outcome = outcome_in_round(mark.value)
    court.leader.round_written(42, court.now)
    assert court.look() == []
    assert [one for one in court.others if isinstance(one, WriteKey)] == [WriteKey("outcome", outcome, None)]
    court.leader.ending.outcome_written()
    assert to_whom(court.look(), Ended) == ["b"]


def test_a_store_that_is_away_at_the_end_is_not_waited_for_when_all_are_here() -> None:
    court = stored_end()
    assert to_whom(court.live("ab", 6.0), Ended) == ["b"]


def test_without_the_store_a_half_that_could_go_on_alone_is_waited_for() -> None:
    court = stored_end()
    court.lose("b")
    assert to_whom(court.live("a", 30.0), Ended) == []
    assert court.leader.office.ended is not None
    assert to_whom(court.live("a", 31.0), Ended) == ["a"], "not for ever"


@pytest.mark.parametrize(
    ("what", "told", "heard", "number", "yields"),
    [
        ("nobody was told", "", "", 0, True),
        ("one was told and may have heard", "b", "", 0, False),
        ("one was told, but enough have gone on", "b", "", 1, True),
        ("half knows, and the leader is one of them", "b", "b", 1, False),
    ],
)
def test_an_end_that_too_few_know_gives_way(what: str, told: str, heard: str, number: int, yields: bool) -> None:
    court = Court()
    court.begin("abc")
    court.say("abc", Done(0))
    for node in set("bc") - set(told):
        court.lose(node)
    court.look()
    for node in heard:
        court.say(node, Heard())
    assert court.leader.office.ended is not None
    assert court.leader.ending.gives_way(number, court.now) == yields, what
    court.look(11.0)
    assert court.leader.ending.is_over(court.now) == bool(heard), "it does not go before the end is certain"
    assert court.leader.ending.is_over(court.now + 60.0)


# Taking over.


def test_a_deputy_decides_nothing_before_it_has_more_than_half_of_the_round() -> None:
    court = claimed("a")
    court.renew("a")
    assert {message.left_s for _, message in court.look() if isinstance(message, Ack)} == {0.0}
    assert not court.leader.office.established
    court = claimed("a", "b")
    court.renew("ab")
    court.look()
    court.renew("ab")
    court.look()
    assert court.leader.office.established


def test_a_round_of_which_everybody_is_there_goes_on_as_it_is() -> None:
    court = claimed("a", "b", "c")
    told = court.live("abc", 3.0)
    assert court.leader.office.phase == "running"
    assert not [message for _, message in told if isinstance(message, Stop | Place | Start)]
    assert court.leader.office.restart_count == 2


def test_a_round_of_which_one_is_missing_goes_on_without_it_when_it_is_fenced() -> None:
    court = claimed("a", "b")
    told = court.live("ab", 4.0)
    assert to_whom(told, Stop) == []
    told = court.live("ab", 1.5)
    assert to_whom(told, Stop) == ["a", "b"]
    told = court.restart("ab")
    assert {place.round for _, place in told if isinstance(place, Place)} == {5}
    assert to_whom(told, Start) == ["a", "b"]


@pytest.mark.parametrize(
    ("policy", "says", "ends"), [("wait", True, None), ("exit", False, ("lost", 75)), ("continue", False, None)]
)
def test_a_deputy_without_a_majority_does_as_it_was_told(policy: str, says: bool, ends: tuple[str, int] | None) -> None:
    court = claimed("a", on_lost_majority=policy)
    said = []
    for _ in range(20):
        court.now += 0.5
        court.renew("a")
        court.look()
        said += [one.text for one in court.others if isinstance(one, Say)]
    assert [text.startswith("holding: 1 of 3 members of round 4") for text in said] == [True] * says
    ended = court.leader.office.ended
    assert (None if ended is None else (ended.kind, ended.status)) == ends
    assert court.leader.office.established == (policy != "wait")


@pytest.mark.parametrize("fenced", [True, False])
def test_the_proofs_that_a_node_brings_count_whatever_became_of_its_lease_since(fenced: bool) -> None:
    court = claimed("a")
    known = replace(court.leader.office.roll.last, slot=1)
    court.join("b", standing=known, state="idle", bound_term=1, fenced=fenced, dead=("c",), gone=("x",))
    assert set(court.leader.office.roll.dead) == {"c"}
    assert court.leader.office.roll.gone == {}, "x is none of the round"


def test_a_leader_that_goes_names_an_heir_and_says_that_it_is_gone() -> None:
    court = Court()
    court.begin("abc")
    out = court.leader.hand_over()
    assert {one.message for one in out if isinstance(one, Send)} == {Redirect("b:1", 1, gone="a")}
    assert [one.conn for one in out if isinstance(one, Close)] == ["in-b", "in-c"]


def test_an_heir_is_somebody_who_is_here_a_spectator_if_need_be() -> None:
    court = Court(max_nodes=1)
    court.join("a")
    court.join("c")
    court.look(3.0)
    court.say("ac", Placed(0))
    court.look()
    out = court.leader.hand_over()
    assert [one.message for one in out if isinstance(one, Send)] == [Redirect("c:1", 1, gone="a")]
