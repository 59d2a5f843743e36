"""Hosts that are cut off from some others, and from the store or not, while nodes leave, die or change sides.

`PLANARIA_SIM_CLUSTERS` says how many clusters there are with a store and without, a tenth of it each: 50 by default.
"""

import os

import pytest
from clustersim import Cluster, Fault, Spec
from clustersim.cuts import draw_cuts
from clustersim.fixed import cut, plan_of
from clustersim.story import explain, run, tell

from planaria.base.value import replace
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import LeaveAnnounced, Send
from planaria.rendezvous.roll import Roll

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500")) // 10
KNOWN = [(True, 873)]
"""Clusters that show what docs/protocol.md says of a run that ends while the store is away."""
CUT_S = 6.0
"""When the net is cut; every node has been in round 0 for seconds by then, which the first to come, a, leads."""


@pytest.mark.parametrize("external", [False, True], ids=["embedded", "stored"])
@pytest.mark.parametrize("share", range(5))
def test_no_partial_cut_makes_two_worlds(external, share):
    for seed in range(share, CLUSTERS, 5):
        if (external, seed) not in KNOWN:
            check(draw_cuts(seed, external=external))


@pytest.mark.parametrize(("external", "seed"), KNOWN)
def test_what_docs_say_can_happen_is_what_happens(external, seed):
    """A run that ended while the store was away from its leader begins again: a node sees that, and not the others."""
    _, violation = run(draw_cuts(seed, external=external))
    assert "after the run ended" in str(violation)


@pytest.mark.parametrize("seed", [79, 324, 419])  # the dead made half of the others enough
def test_a_cut_that_made_two_worlds_makes_one(seed):
    check(draw_cuts(seed, external=False))


@pytest.mark.parametrize("kind", ["kill", "go"])
@pytest.mark.parametrize("later_s", [2.34, 2.4])
def test_a_leader_that_is_valid_through_a_node_that_goes_is_waited_for(kind, later_s):
    """a leads, and c and d do not hear it; b does, for a while, and then goes from its sight and for good."""
    check(bridged("abcd", "a", "b", "cd", kind, later_s))


@pytest.mark.parametrize("kind", ["kill", "go"])
@pytest.mark.parametrize("later_s", [3.28, 3.46])
def test_with_a_store_a_leader_without_it_is_waited_for_likewise(kind, later_s):
    """a leads with b and c, more than half, and has no store. The others do, and hear there or from c's host that c is gone."""
    check(bridged("abcde", "ab", "c", "de", kind, later_s, external=True))


@pytest.mark.parametrize("moment", range(4))
def test_a_node_that_has_voted_does_not_go_back_to_a_leader_of_an_older_term(moment):
    """b is made the leader by c and d; then c sees a again and not the others: half and half, and both were incumbents."""
    check(swung(7.1 + 0.3 * moment))


@pytest.mark.parametrize("moved", [12.2, 12.5, 13.0, 13.5])
def test_a_node_that_has_voted_does_not_go_over_to_another_leader_of_that_term(moved):
    """b and c lead in one term, and do not see each other; d holds to one of them, and then sees the other only."""
    check(twice_led(moved))


@pytest.mark.parametrize("names", ["abc", "abcde"])
@pytest.mark.parametrize("kind", ["kill", "leave"])
def test_two_halves_of_a_round_do_not_both_take_the_death_of_the_last_for_their_right(names, kind):
    """The last node made the other side's leader, and dies when both sides reach it: each has half of those who may live."""
    check(halved(names, kind))


def test_a_leader_that_waited_too_long_for_an_answer_does_not_start_its_round():
    """b is out of sight of a, and c, which is about to leave, is lost to it when the round of a alone is announced.

    Nobody but c has to answer. When a stops waiting for it, c has made b the leader.
    """
    announced = []

    def look_on(now, agent, _event, effects):
        places = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Place)]
        if agent is cluster.find("a-1") and not announced and any(one.message.round > 0 for one in places):
            announced.append(now)
            cluster.strike(cut("a", "c", now, 30.0))

    cluster = Cluster(plan_of("abc", [cut("a", "b", CUT_S, 40.0), Fault(35.0, "go", "c-1")]), look_on)
    cluster.at(CUT_S, lambda: cluster.find("c-1").post(LeaveAnnounced("its owner will say so")))
    cluster.run()
    assert announced
    assert cluster.find("b-1").machine.standing.ran > 0


@pytest.mark.parametrize("back_s", [1.05, 1.4])
def test_a_round_that_a_leader_has_only_announced_takes_back_no_vote(back_s):
    """All lose a when it announces the next round, and make b the leader; then d sees a again and not the others.

    a cannot begin that round, and has no more right to the last one than before it announced it.
    """
    announced = []

    def look_on(now, agent, _event, effects):
        places = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Place)]
        if agent is cluster.find("a-1") and not announced and any(one.message.round > 0 for one in places):
            announced.append(now)
            for fault in (cut("a", "bc", now, 60.0), cut("a", "d", now, back_s)):
                cluster.strike(fault)
            for name in "bcd":
                cluster.after(0.001, cluster.strike, Fault(0.0, "snap", f"{name}-1"))
            cluster.after(back_s, cluster.strike, cut("d", "bc", 0.0, 60.0))
            for moment in (0.001, 0.002):
                cluster.after(back_s + moment, cluster.strike, Fault(0.0, "snap", "d-1"))

    cluster = Cluster(plan_of("abcd", [Fault(CUT_S, "worker", "a-1"), Fault(50.0, "snap", "a-1")]), look_on)
    cluster.run()
    assert announced


@pytest.mark.parametrize("last", ["i", "c"])
def test_a_node_that_has_voted_goes_to_a_leader_of_an_older_term_that_went_on(last):
    """It made b, as lonely as itself, the leader for a while; then it is back. It need not be a deputy, who can lead itself."""
    names = "abcdefghij"
    rest = names.replace("b", "").replace(last, "")
    cuts = [cut("b", rest, CUT_S, 1.6), cut(last, rest, CUT_S, 3.0), cut("b", last, 7.6, 1.4)]
    snaps = [*(Fault(6.001, "snap", f"{name}-1") for name in ("b", last)), *(Fault(8.99, "snap", f"{last}-1"),) * 2]
    check(plan_of(names, [*cuts, *snaps]))


GUARDS = {
    "who went may have counted for another leader": (
        Roll,
        "floor",
        lambda self: self.fence_floor,
        lambda: bridged("abcd", "a", "b", "cd", "kill", 2.4),
    ),
    "so may who left, as the store says": (
        Roll,
        "floor",
        lambda self: self.fence_floor,
        lambda: bridged("abcde", "ab", "c", "de", "go", 3.28, external=True),
    ),
    "the dead do not make half enough": (Roll, "_doubtful", lambda _self, _nodes: 0, lambda: halved("abc", "kill")),
    "a vote is not taken back": (Member, "may_follow", lambda *_: True, lambda: swung(7.1)),
    "nor for another leader of that term": (
        Member,
        "may_follow",
        lambda self, term, _node="": term >= self.pledge or self.settings.external,
        lambda: twice_led(12.5),
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_without_a_guard_there_are_two_worlds(name, monkeypatch):
    owner, guard, nothing, plan = GUARDS[name]
    monkeypatch.setattr(owner, guard, nothing)
    assert run(plan())[1].kind in ("two worlds", "agreement"), "two of one term and number are one that disagrees"


def check(plan):
    """Run a plan; tell what goes wrong, as short as it can be made."""
    if run(plan)[1] is not None:
        pytest.fail(explain(plan), pytrace=False)


def bridged(names, left, bridge, right, kind, later_s, *, external=False):
    """Return a plan: two sides, and one node that reaches both until it is cut off from the left one, and goes.

    All of the left side are on their own from then on: nobody is told to stop.
    """
    moved = CUT_S + later_s
    apart = [cut(one, left.replace(one, ""), moved, 30.0) for one in left if len(left) > 1]
    cuts = [cut(left, right + ("#" if external else ""), CUT_S, 40.0), cut(left, bridge, moved, 30.0), *apart]
    return plan_of(names, [*cuts, Fault(moved + 0.05, kind, f"{bridge}-1")], external=external)


def swung(moved):
    """Return a plan: all but the leader lose it and make b the leader, then c is on the first one's side again."""
    snaps = [*(Fault(6.001, "snap", f"{name}-1") for name in "bcd"), *(Fault(moved + 0.001, "snap", "c-1"),) * 2]
    return plan_of("abcd", [cut("a", "bcd", CUT_S, moved - CUT_S), cut("ac", "bd", moved, 30.0), *snaps])


def twice_led(moved):
    """Return a plan: a is lost to all, b and c lead without seeing each other, and d goes from the one side to the other."""
    cuts = [
        cut("b", "c", CUT_S, 54.0),
        cut("d", "c", CUT_S, 5.5),
        cut("a", "b", CUT_S, 4.5),
        cut("a", "cd", CUT_S, 5.5),
        cut("b", "a", 11.5, 48.5),
        cut("b", "d", 11.5, moved - 11.5),
        cut("d", "ac", moved, 60.0 - moved),
    ]
    snaps = [
        *(Fault(6.001, "snap", f"{name}-1") for name in "bcd"),
        *(Fault(11.501, "snap", f"{name}-1") for name in "ad"),
    ]
    return plan_of("abcd", [*cuts, *snaps, *(Fault(moved + 0.001, "snap", "d-1"),) * 2])


def halved(names, kind):
    """Return a plan: two sides that never meet; the last node makes a leader on the second, and goes in sight of both."""
    half = len(names) // 2
    left, right, last = names[:half], names[half:-1], names[-1]
    snaps = [Fault(6.001, "snap", f"{name}-1") for name in names[half:]]
    cuts = [cut(left, right, CUT_S, 40.0), cut(left, last, CUT_S, 1.2)]
    return plan_of(names, [*cuts, *snaps, Fault(7.25, kind, f"{last}-1")])


def test_a_replacement_at_the_address_of_a_lost_leader_founds_no_second_run():
    """b holds, and may not vote for another of the term of a. One that has no round gives way all the same when b comes."""
    lost = plan_of("ab", [Fault(8.0, "host", "a-1", 12.0)])
    story, violation = tell(replace(lost, specs=(*lost.specs, Spec("c-1", "host-a", 29400, 21.0))))
    assert violation is None
    assert not any("STARTS" in line for line in story if line.split()[2] == "c")
    assert any("holding: 1 of 2" in line for line in story if line.split()[2] == "c")
