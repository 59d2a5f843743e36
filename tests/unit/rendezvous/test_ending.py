"""The end of a run: who is told when, who is waited for, and when the end stands."""

from __future__ import annotations

import pytest
from court import Court

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.keys import outcome_record
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import Done, Ended, Farewell, Heard, Placed
from planaria.rendezvous.model import Answered, Deputy, Held, Send, Standing, WriteKey

DONE = Ended("done", 0, "", (), 0)
TTL_S = 5.0
PATIENCE_S = 60.0


class Finish(Court):
    """A leader of some nodes, one letter each, all of whom are done with round 0; the first is its own."""

    def __init__(self, members: str, spectators: str = "", **changes: object) -> None:
        super().__init__(**{"max_nodes": len(members), "max_restarts": 0, **changes})
        self.leader.office.roll.tie_until = quorum.ALWAYS
        self.now = 1.0
        for node in members + spectators:
            self.join(node)
        self.look()
        self.say(members + spectators, Placed(0))
        self.look()
        self.leader.round_written(41, self.now)
        self.look()
        self.say(members, Done(0))
        self.renew(members)

    def join(self, node: str, conn: str = "", **changes: object) -> None:
        super().join(node, conn, **{"age_s": 99.0, **changes})

    def look(self, later_s: float = 0.0) -> list[object]:
        """Let the leader decide, after a while; return what it says and writes, as (node, message) or the order."""
        self.now += later_s
        out, _ = self.leader.advance(self.now)
        found = [(self.names[one.conn], one.message) if isinstance(one, Send) else one for one in out]
        return [
            one for one in found if isinstance(one, WriteKey) or (isinstance(one, tuple) and _is_of_the_end(one[1]))
        ]

    def live(self, nodes: str, span_s: float) -> list[object]:
        """Let time pass in which some nodes renew twice a second; return what is said and written meanwhile."""
        found = []
        for _ in range(round(2 * span_s)):
            self.now += 0.5
            self.renew(nodes)
            found += self.look()
        return found


def _is_of_the_end(message: object) -> bool:
    return isinstance(message, Ended | Farewell)


def outcomes(orders: list[object]) -> list[object]:
    """Return what is written of the outcome."""
    return [one for one in orders if isinstance(one, WriteKey) and one.key == "outcome"]


# Without a store.


@pytest.mark.parametrize(("what", "node"), [("a member", "b"), ("a spectator", "s")])
def test_one_who_is_away_at_the_end_is_waited_for_but_not_for_ever(what: str, node: str) -> None:
    finish = Finish("abc", "s")
    finish.lose(node)
    finish.look()
    finish.say("".join(other for other in "bcs" if other != node), Heard())
    assert finish.look(1.0) == [], f"{what} may come back and ask"
    assert not finish.leader.ending.is_over(finish.now)
    assert ("a", DONE) in finish.look(2 * TTL_S - 1.0)


def test_one_who_is_away_at_the_end_and_dead_is_not_waited_for() -> None:
    finish = Finish("abc", "s")
    finish.lose("s")
    finish.look()
    finish.say("bc", Heard())
    finish.leader.answered_probe(Answered("s:1", refused=True), finish.now)
    assert finish.look() == [("a", DONE), ("b", Farewell()), ("c", Farewell())]


def claimed(policy: str) -> Finish:
    """Return the end of a deputy that is alone of three: it waits or goes, as `policy` says."""
    finish = Finish("a")
    deputies = tuple(Deputy(node, f"{node}:1") for node in "abc")
    last = Standing("x", 1, 4, 3, deputies=deputies, ran=4)
    finish.settings = replace(finish.settings, max_nodes=3, on_lost_majority=policy)
    held = Held(finish.now, finish.now + finish.settings.lease_s)
    finish.leader = Leader(finish.settings, finish.now, term=2, standing=last, held=held)
    finish.join("a")
    return finish


def test_a_node_that_gives_up_without_a_majority_does_not_ask_for_one_before_it_goes() -> None:
    finish = claimed("exit")
    finish.look(2 * TTL_S)
    assert finish.leader.office.ended is not None
    assert finish.leader.office.ended.kind == "lost"
    assert not finish.leader.ending.gives_way(9, finish.now)
    assert finish.look(2 * TTL_S) == [("a", finish.leader.office.ended)]


def test_whoever_stands_in_for_a_leader_that_told_the_end_tells_it_again_and_writes_nothing_without_a_store() -> None:
    finish = claimed("wait")
    finish.leader.ending.repeat_end(DONE, finish.now)
    finish.join("b")
    assert finish.look() == [("b", DONE)]
    assert not finish.leader.ending.gives_way(9, finish.now), "somebody knew it for certain"
    finish.say("b", Heard())
    assert finish.live("b", 2 * TTL_S - 0.5) == [], "c is away"
    assert finish.live("b", 0.5) == [("a", DONE), ("b", Farewell())]


# With a store.


def test_with_a_store_an_end_that_was_told_without_it_is_not_told_again_when_it_is_written() -> None:
    finish = Finish("ab", external=True)
    finish.look()
    assert finish.live("ab", TTL_S - 0.5) == []
    assert finish.live("ab", 0.5) == [("b", DONE)], "all are here, so nobody can go on"
    finish.leader.round_written(42, finish.now)
    finish.look()
    finish.leader.ending.outcome_written()
    assert finish.look() == []


def test_an_outcome_is_written_again_every_ttl_until_the_store_has_it() -> None:
    finish = Finish("ab", external=True)
    finish.look()
    finish.leader.round_written(42, finish.now)
    expected = [WriteKey("outcome", outcome_record(DONE, "a"), None)]
    assert outcomes(finish.look()) == expected
    assert outcomes(finish.look(TTL_S - 0.1)) == []
    assert outcomes(finish.look(0.2)) == expected
    finish.leader.ending.outcome_written()
    assert outcomes(finish.look(TTL_S + 0.1)) == []


def test_an_outcome_is_written_only_once_its_round_is_marked_as_the_last() -> None:
    finish = Finish("ab", external=True)
    (mark,) = finish.look()
    assert isinstance(mark, WriteKey)
    assert mark.key == "round"
    assert outcomes(finish.look(TTL_S + 0.1)) == [], "another round may have begun meanwhile"


@pytest.mark.parametrize("node", ["b", "s"])
def test_with_a_store_who_is_away_is_not_waited_for_once_the_store_can_tell_it(node: str) -> None:
    finish = Finish("abc", "s", external=True)
    finish.lose(node)
    finish.look()
    finish.leader.round_written(42, finish.now)
    finish.look()
    finish.leader.ending.outcome_written()
    finish.look()
    finish.say("".join(other for other in "bcs" if other != node), Heard())
    assert ("a", DONE) in finish.look()
    assert finish.leader.ending.is_over(finish.now)


def test_with_a_store_who_is_here_and_has_not_heard_the_end_is_waited_for() -> None:
    finish = Finish("ab", external=True)
    finish.look()
    finish.leader.round_written(42, finish.now)
    finish.look()
    finish.leader.ending.outcome_written()
    assert finish.look() == [("b", DONE)]
    assert not finish.leader.ending.is_over(finish.now)
    finish.say("b", Heard())
    assert finish.look() == [("a", DONE), ("b", Farewell())]


def test_with_a_store_that_is_away_those_who_heard_go_when_patience_ends_and_not_before() -> None:
    finish = Finish("ab", external=True)
    finish.look()
    assert finish.live("ab", TTL_S) == [("b", DONE)]
    finish.say("b", Heard())
    ended_at = finish.leader.office.ended_at
    assert not finish.leader.ending.is_over(ended_at + PATIENCE_S - 0.1)
    assert finish.leader.ending.is_over(ended_at + PATIENCE_S + 0.1)


def test_nobody_goes_before_the_end_was_told_however_late_it_is() -> None:
    finish = Finish("ab", external=True)
    finish.look()
    finish.lose("b")
    finish.now += PATIENCE_S + 1.0  # this agent was paused
    assert not finish.leader.ending.is_over(finish.now)
    finish.join("b")
    assert finish.look() == [("b", DONE)]
    finish.say("b", Heard())
    assert finish.look() == [("a", DONE), ("b", Farewell())]


def test_a_leader_whose_end_the_store_decides_gives_way_to_no_other() -> None:
    finish = Finish("ab", external=True)
    assert finish.leader.ending.gives_way(0, finish.now)
    finish.look()
    assert not finish.leader.ending.gives_way(9, finish.now)
