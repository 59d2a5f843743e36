"""The roll: whom a round needs, who counts for it, and until when that is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import court
import pytest

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.model import Deputy, Settings, Standing
from planaria.rendezvous.roll import Roll
from planaria.rendezvous.seats import Seat

if TYPE_CHECKING:
    from planaria.rendezvous.messages import Join

OWN = Settings("a", "host-a", "a:1", 1, run_id="run", max_nodes=9, ttl_s=5.0)
LEASE_S = 4.0
SILENCE_S = 5.5


def standing_of(members: str, spectators: str = "", *, known: str | None = None, **changes: object) -> Standing:
    """Return round 4 of some members; `known` are the deputies, if not all are."""
    named = known if known is not None else members + spectators
    deputies = tuple(Deputy(node, f"{node}:1") for node in named)
    return replace(Standing("x", 1, 4, len(members), deputies=deputies, ran=4), **changes)


def join_of(node: str, standing: Standing, **changes: object) -> Join:
    """Return how one introduces itself whose workers run."""
    known = {"standing": standing, "state": "running", "bound_term": 1, "since_ack_s": 0.0, "age_s": 9.0}
    return court.join_of(node, **{**known, **changes})


def roll_of(standing: Standing, here: str = "", **settings: object) -> Roll:
    """Return the roll of a round that ran as far as those who are here know."""
    seats: dict[str, Seat] = {}
    roll = Roll(replace(OWN, **settings), standing, seats, 100.0)
    for arrival, node in enumerate(here):
        slot = roll.members.get(node)
        join = join_of(node, replace(standing, slot=slot))
        seats[node] = Seat(f"in-{node}", join, arrival, 100.0)
        roll.enter(join)
    return roll


# What is learnt.


def test_whoever_founds_a_run_has_the_tie_break_a_deputy_has_not_and_with_a_store_the_store_gives_it() -> None:
    assert Roll(OWN, Standing(), {}, 0.0).tie_until == quorum.ALWAYS
    assert Roll(OWN, standing_of("ab", round=0), {}, 0.0).tie_until == quorum.NEVER
    assert Roll(replace(OWN, external=True), Standing(), {}, 0.0).tie_until == quorum.NEVER


def test_a_nodes_own_word_makes_it_a_member_of_the_round_it_knows_and_of_no_other() -> None:
    roll = roll_of(standing_of("abc", known="a"))
    assert roll.has_unknown()
    roll.enter(join_of("c", replace(roll.last, slot=2)))
    roll.enter(join_of("d", replace(roll.last, round=3, slot=1)))
    roll.enter(join_of("e", replace(roll.last, term=2, slot=1)))
    roll.enter(join_of("s", roll.last))
    assert roll.members == {"a": 0, "c": 2}
    assert roll.has_unknown()
    roll.enter(join_of("b", replace(roll.last, slot=1)))
    assert not roll.has_unknown()


def test_a_member_that_comes_and_is_done_is_finished_with_its_round() -> None:
    roll = roll_of(standing_of("abc"))
    roll.enter(join_of("b", replace(roll.last, slot=1), state="done"))
    roll.enter(join_of("c", replace(roll.last, slot=2), state="running"))
    assert roll.finished == {"b"}


def test_a_member_tells_how_many_workers_its_slot_has_and_who_is_none_tells_nothing() -> None:
    roll = roll_of(standing_of("ab"))
    roll.enter(join_of("b", replace(roll.last, slot=1), local_world_size=8))
    roll.enter(join_of("s", roll.last, local_world_size=2))
    roll.enter(join_of("o", replace(roll.last, round=3, slot=0), local_world_size=4))
    roll.enter(join_of("a", roll.last, local_world_size=2))
    assert roll.sizes == {1: 8}


def test_deputies_after_the_members_are_spectators() -> None:
    roll = roll_of(standing_of("ab", "st"))
    assert roll.members == {"a": 0, "b": 1}
    assert roll.spares == ["s", "t"]
    assert roll.addresses == {node: f"{node}:1" for node in "abst"}


# Who may decide.


def unstarted() -> Standing:
    """Return round 4 of three members, of which nobody knows that it ran; three of the round before were there."""
    return standing_of("abc", ran=3, base=3)


def with_base(nodes: str, standing: Standing) -> Standing:
    marked = tuple(replace(one, in_base=one.node in nodes) for one in standing.deputies)
    return replace(standing, deputies=marked)


@pytest.mark.parametrize(
    ("what", "base", "enough"),
    [
        ("two of three of the round before are here", "ab", True),
        ("one is", "b", False),
        ("nobody is", "", False),
        ("two are known, and one of them is here", "bc", False),
    ],
)
def test_a_round_that_may_not_have_started_is_decided_by_those_of_the_round_before_too(
    what: str, base: str, enough: bool
) -> None:
    roll = roll_of(with_base(base, unstarted()), "ab")
    assert roll.has_enough(100.0) == enough, what
    for node in "ab":
        roll.note_heard(node, 100.0)
    assert (roll.valid_until(100.0) > 100.0) == enough, what


@pytest.mark.parametrize(
    ("what", "standing", "enough"),
    [
        ("of the same round", {"in_base": True}, True),
        ("of the same round, and was not there", {}, False),
        ("of another", {"in_base": True, "round": 3}, False),
    ],
)
def test_a_node_says_itself_that_it_was_in_the_round_before(
    what: str, standing: dict[str, object], enough: bool
) -> None:
    roll = roll_of(with_base("b", unstarted()), "ab")
    roll.enter(join_of("a", replace(roll.last, **standing)))
    assert roll.has_enough(100.0) == enough, what


@pytest.mark.parametrize(("ran", "enough"), [(3, False), (4, True), (5, True)])
def test_one_who_ran_a_round_proves_that_it_started(ran: int, enough: bool) -> None:
    roll = roll_of(unstarted(), "ab")
    assert not roll.has_enough(100.0)
    roll.enter(join_of("b", replace(roll.last, slot=1, ran=ran)))
    assert roll.has_enough(100.0) == enough


def test_with_a_store_a_round_that_it_holds_has_started() -> None:
    assert roll_of(unstarted(), "ab", external=True).has_enough(100.0)


@pytest.mark.parametrize("how", ["gone", "dead"])
def test_a_member_that_is_lost_for_certain_is_not_counted_in_its_round_nor_in_the_round_before(how: str) -> None:
    roll = roll_of(with_base("abcd", standing_of("abcd", ran=3, base=4)), "ab")
    assert not roll.has_enough(100.0)
    if how == "gone":
        roll.gone["d"] = quorum.NEVER
    else:
        roll.dead["d"] = 100.0
    assert roll.size() == 3
    assert roll.has_enough(100.0)


def test_who_is_lost_and_is_no_member_makes_a_round_no_smaller() -> None:
    roll = roll_of(standing_of("abc", "s"), "a")
    roll.gone["s"] = quorum.NEVER
    assert roll.size() == 3


def test_until_a_first_round_has_started_all_with_whom_one_was_announced_decide() -> None:
    roll = roll_of(Standing(), "ab")
    assert roll.has_enough(100.0)
    roll.announce(("a", "b", "c", "d", "e"))
    assert not roll.has_enough(100.0)
    assert list(roll.announced_and_away()) == ["c", "d", "e"]
    roll.gone["c"] = quorum.NEVER
    assert list(roll.announced_and_away()) == ["d", "e"]
    roll.dead["d"] = 100.0
    assert list(roll.announced_and_away()) == ["e"]
    assert roll.has_enough(100.0), "half of four or of three, and it founded the run"


def test_a_later_round_that_is_announced_leaves_the_decision_with_the_one_that_runs() -> None:
    roll = roll_of(standing_of("ab"), "ab")
    roll.announce(("a", "b", "c", "d", "e"))
    assert roll.has_enough(100.0)
    assert list(roll.announced_and_away()) == []


def test_the_round_before_one_that_is_announced_is_the_last_that_has_begun_with_all_who_may_live() -> None:
    roll = roll_of(Standing(), "ab")
    assert roll.before() == ({}, 0)
    roll = roll_of(standing_of("abcde", ran=4), "ab")
    roll.enter(join_of("a", replace(roll.last, slot=0, ran=4)))
    assert (set(roll.before()[0]), roll.before()[1]) == ({*"abcde"}, 5), "also those who are not here"
    roll.dead["e"] = 100.0
    assert roll.before()[1] == 4


def test_the_round_before_one_that_is_announced_is_not_another_that_was_only_announced() -> None:
    roll = roll_of(with_base("ab", replace(unstarted(), base=5, begun=3)), "ab")
    assert (set(roll.before()[0]), roll.before()[1]) == ({"a", "b"}, 5)
    roll.gone["a"] = 100.0
    assert roll.before()[1] == 4
    first = roll_of(replace(unstarted(), base=0, begun=-1), "ab")
    assert (set(first.before()[0]), first.before()[1]) == ({*"abc"}, 3), "there is none before that one"


@pytest.mark.parametrize(("ran", "epoch", "enough"), [(3, "", True), (2, "", False), (3, "other", False)])
def test_a_member_of_the_round_before_counts_who_was_never_told_of_the_next(ran: int, epoch: str, enough: bool) -> None:
    roll = roll_of(with_base("a", replace(unstarted(), base=3, begun=3, ran=2)), "abx")
    assert not roll.has_enough(100.0)
    known = Standing(epoch=epoch or roll.last.epoch, term=roll.last.term, round=3, size=3, ran=ran)
    roll.enter(join_of("x", known))
    assert roll.has_enough(100.0) == enough


# Until when.


def test_validity_lasts_from_when_more_than_half_were_heard_and_our_own_node_is_heard_now() -> None:
    roll = roll_of(standing_of("abc"), "abc")
    assert roll.valid_until(100.0) == quorum.NEVER
    roll.note_heard("b", 99.0)
    roll.note_heard("c", 98.0)
    assert roll.valid_until(100.0) == 99.0 + LEASE_S
    roll.note_heard("b", 97.0)
    assert roll.valid_until(100.0) == 99.0 + LEASE_S, "what was heard before is not unheard"


def test_half_of_a_round_is_enough_as_long_as_the_tie_break_lasts() -> None:
    roll = roll_of(standing_of("ab"), "ab")
    assert roll.valid_until(100.0) == quorum.NEVER
    roll.tie_until = 102.0
    assert roll.valid_until(100.0) == 102.0
    roll.tie_until = quorum.ALWAYS
    assert roll.valid_until(100.0) == 100.0 + LEASE_S
    roll.tie_until = 99.0
    assert roll.valid_until(100.0) <= 100.0


def lost_round(**settings: object) -> Roll:
    """Return the roll of a round of which nobody is left but three spectators."""
    roll = roll_of(standing_of("xy", "abc"), "abc", **settings)
    roll.gone["x"] = quorum.NEVER
    roll.dead["y"] = 90.0
    return roll


def test_when_every_member_is_lost_more_than_half_of_the_spectators_decide() -> None:
    roll = lost_round()
    assert roll.size() == 0
    assert roll.valid_until(100.0) == quorum.NEVER
    roll.note_heard("b", 99.0)
    assert roll.valid_until(100.0) == 99.0 + LEASE_S


def test_when_every_member_is_lost_the_store_decides_where_there_is_one() -> None:
    roll = lost_round(external=True)
    roll.note_heard("b", 99.0)
    assert roll.valid_until(100.0) == quorum.NEVER
    roll.tie_until = 101.0
    assert roll.valid_until(100.0) == 101.0


def test_as_long_as_one_member_may_live_spectators_decide_nothing() -> None:
    roll = lost_round()
    del roll.dead["y"]
    for node in "bc":
        roll.note_heard(node, 99.0)
    assert roll.valid_until(100.0) == quorum.NEVER


def test_before_a_first_round_nobody_is_needed_and_from_round_0_on_the_members_are() -> None:
    assert not roll_of(Standing(), "a").has_round
    assert roll_of(Standing(), "a").valid_until(100.0) == quorum.ALWAYS
    assert roll_of(standing_of("ab", round=0), "a").has_round
    assert roll_of(standing_of("ab", round=0), "a").valid_until(100.0) == quorum.NEVER


@pytest.mark.parametrize(
    ("what", "heard", "majority"),
    [
        ("one other, lately", {"b": 97.0}, True),
        ("both, but long ago", {"b": 95.0, "c": 95.0}, False),
        ("nobody but ourselves", {}, False),
        ("ourselves long ago, as answers to our own node go, and one other lately", {"a": 90.0, "b": 97.0}, True),
    ],
)
def test_a_majority_is_known_to_hold_to_us_now_whatever_the_tie_break(
    what: str, heard: dict[str, float], majority: bool
) -> None:
    roll = roll_of(standing_of("abc"), "abc")
    roll.tie_until = quorum.ALWAYS
    for node, since in heard.items():
        roll.note_heard(node, since)
    assert roll.has_majority(100.0) == majority, what


def test_half_is_no_majority_even_with_the_tie_break() -> None:
    roll = roll_of(standing_of("ab"), "ab")
    roll.tie_until = quorum.ALWAYS
    assert not roll.has_majority(100.0)


def test_a_round_that_all_have_left_and_more_than_it_had_is_not_counted_below_nothing() -> None:
    """The store names whoever left; of some we know nothing else, and one may be of another round."""
    roll = roll_of(standing_of("bc"))
    assert roll.leave(frozenset("bcd"), 100.0)
    assert roll.size() < 0
    assert roll.has_majority(100.0), "there is nobody left who could object"


# Who is not here.


def test_members_of_whom_nobody_knows_the_name_are_fenced_with_the_former_leader() -> None:
    roll = roll_of(standing_of("abc", known="ab"), "ab")
    assert roll.fences() == [100.0 + SILENCE_S]
    assert roll_of(standing_of("ab"), "ab").fences() == []


def test_a_member_that_is_away_is_fenced_after_our_last_answer_to_it_or_the_former_leaders() -> None:
    roll = roll_of(standing_of("abc"), "a")
    roll.answered["b"] = 103.0
    roll.answered["c"] = 99.0
    assert roll.fences() == [103.0 + SILENCE_S, 100.0 + SILENCE_S]
    roll.finished.add("b")
    roll.settled.add("c")
    assert roll.fences() == []
    assert list(roll.missing()) == ["b", "c"]


@pytest.mark.parametrize(
    ("here", "policy", "may"),
    [
        ("ab", "wait", True),
        ("a", "wait", False),
        ("a", "exit", False),
        ("a", "continue", True),
        ("ab", "continue", True),
    ],
)
def test_the_silent_are_excluded_with_a_majority_or_by_the_users_word(here: str, policy: str, may: bool) -> None:
    assert roll_of(standing_of("abc"), here, on_lost_majority=policy).may_exclude(100.0) == may


@pytest.mark.parametrize(
    ("what", "members", "here", "dead", "floor"),
    [
        ("nobody is dead", "abcd", "abc", {}, 100.0),
        ("they are more than half with the dead, too", "abcde", "abc", {"d": 103.0}, 100.0),
        ("only without the dead: another leader may have had half with it", "abcd", "ab", {"c": 103.0}, 103.0),
        ("the first death is enough for that", "abcdef", "abc", {"d": 103.0, "e": 107.0}, 103.0),
        ("it takes both", "abcdefg", "abc", {"d": 107.0, "e": 103.0}, 107.0),
        ("not even without them", "abcde", "a", {"d": 103.0, "e": 107.0}, 107.0),
        ("who is none of the round counted for nobody", "abcd", "ab", {"x": 103.0}, 100.0),
    ],
)
def test_silence_is_counted_from_when_the_last_went_through_whom_another_leader_could_have_been_valid(
    what: str, members: str, here: str, dead: dict[str, float], floor: float
) -> None:
    roll = roll_of(standing_of(members), here)
    roll.dead = dead
    assert roll.floor() == floor, what
    away = next(node for node in members if node not in here and node not in dead)
    assert roll.fenced_at(away) == floor + SILENCE_S
    assert max(roll.fences()) == floor + SILENCE_S
    roll.answered[away] = 110.0
    assert roll.fenced_at(away) == 110.0 + SILENCE_S


def test_members_whose_names_nobody_knows_may_have_been_led_through_the_dead_as_well() -> None:
    roll = roll_of(standing_of("abcd", known="abc"), "ab")
    roll.dead["c"] = 103.0
    assert roll.fences() == [103.0 + SILENCE_S]


def test_one_that_said_goodbye_to_us_counted_for_nobody_else_and_one_that_said_it_elsewhere_may_have() -> None:
    roll = roll_of(standing_of("abcd"), "ab")
    roll.gone["c"] = quorum.NEVER
    assert roll.floor() == 100.0
    roll = roll_of(standing_of("abcd"), "ab", external=True)
    assert roll.leave(frozenset("c"), 103.0)
    assert roll.floor() == 103.0


def test_those_of_the_round_before_who_are_dead_may_have_counted_for_its_leader() -> None:
    roll = roll_of(with_base("cd", standing_of("abcd", ran=3, base=3)), "abc")
    assert roll.floor() == 100.0
    roll.dead["d"] = 103.0
    assert roll.floor() == 103.0, "one of the three who were there is here: half of the two that are left"


@pytest.mark.parametrize(("external", "enough"), [(False, False), (True, True)])
def test_the_tie_break_of_an_incumbent_does_not_count_without_the_dead_and_that_of_a_store_does(
    external: bool, enough: bool
) -> None:
    roll = roll_of(standing_of("abc"), "a", external=external)
    roll.tie_until = quorum.ALWAYS
    roll.dead["c"] = 99.0
    assert roll.has_enough(100.0) == enough
    assert (roll.valid_until(100.0) > 100.0) == enough
    roll.gone["c"] = quorum.NEVER
    assert roll.has_enough(100.0), "whoever says goodbye has made nobody else the leader"
    assert roll.valid_until(100.0) == 100.0 + LEASE_S


def test_spectators_that_are_away_are_those_that_are_neither_here_nor_lost_for_certain() -> None:
    roll = roll_of(standing_of("a", "pqrs"), "ap")
    roll.gone["q"] = quorum.NEVER
    roll.dead["r"] = 100.0
    assert roll.spares_away() == ["s"]


def test_people_call_a_node_by_its_host_or_else_by_what_its_name_begins_with() -> None:
    roll = roll_of(standing_of("ab"))
    roll.come_back(join_of("gpu-7-x1", roll.last, host="gpu-7.example"))
    assert [roll.name(node) for node in ("gpu-7-x1", "gpu-8-x2", "c")] == ["gpu-7.example", "gpu-8", "c"]
