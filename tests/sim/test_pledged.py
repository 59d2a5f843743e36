"""A node that is bound by its vote for a leader that it lost comes back, and no sooner than nobody can count on that vote."""

import pytest
from clustersim import Cluster, Fault
from clustersim.fixed import cut, finish, plan_of, spec_of
from clustersim.story import explain, run

from planaria.base.value import replace
from planaria.rendezvous.member import Member

CUT_S = 6.0
"""When the net is cut; every node has been in round 0 for seconds by then, which the first to come, a, leads."""


def pledged(names, *more, voter="c", **changes):
    """Return a plan: a node votes for b while both are cut off; b goes back, and that node is lost to it without a word."""
    rest, moved = names.replace("b", "").replace(voter, ""), CUT_S + 1.3
    lost = [Fault(CUT_S + 0.001, "snap", "b-1"), Fault(CUT_S + 0.001, "snap", f"{voter}-1")]
    lost += [Fault(moved - 0.005, "snap", f"{voter}-1")] * 2
    cuts = [cut("b" + voter, rest, CUT_S, moved - CUT_S), cut("b", voter, moved - 0.01, 4.0)]
    return plan_of(names, [*cuts, *lost, *more, Fault(60.0, "snap", "d-1")], **changes)


def check(plan):
    """Run a plan; tell what goes wrong, as short as it can be made."""
    cluster, violation = run(plan)
    if violation is not None:
        pytest.fail(explain(plan), pytrace=False)
    return cluster


@pytest.mark.parametrize(("names", "voter"), [("abcd", "c"), ("abcde", "c"), ("abcdefghij", "i")])
def test_a_job_of_a_fixed_size_goes_on_with_a_node_that_is_bound_by_its_vote(names, voter):
    """Its leader cannot begin another round without it, so that is nothing to wait for. One that is no deputy only seeks."""
    cluster = check(pledged(names, voter=voter, min_nodes=len(names)))
    assert cluster.checks.order[-1].members.keys() == set(range(len(names)))


def test_so_it_does_when_the_one_that_got_the_vote_is_dead():
    plan = pledged("abcde", Fault(9.0, "kill", "b-1"), min_nodes=5)
    cluster = check(replace(plan, specs=(*plan.specs, spec_of("f", 15.0))))
    assert set(cluster.checks.order[-1].members.values()) == {f"{name}-1" for name in "acdef"}


@pytest.mark.parametrize("is_member", [True, False], ids=["done", "spectator"])
@pytest.mark.parametrize("ends_at", [8.0, 20.5])
def test_a_node_that_is_bound_by_its_vote_hears_that_the_run_has_ended(is_member, ends_at):
    """Nobody begins another round for one that is done, or only stands by. The leader goes two TTL after the end."""
    plan = pledged("abcde") if is_member else pledged("abcde", max_nodes=4)
    if not is_member:
        plan = replace(plan, specs=tuple(replace(one, at=3.0) if one.name == "c-1" else one for one in plan.specs))
    moments = {"c": 5.9} if is_member else {}
    cluster = finish(Cluster(plan), moments | dict.fromkeys("abde", ends_at)).run()
    assert {one.name: one.ended and one.ended.kind for one in cluster.agents} == {f"{one}-1": "done" for one in "abcde"}
    assert cluster.checks.order[-1].place.round == 0


def swapped(later_s):
    """Return a plan: a has half of a round and needs one more, c holds to b; then d goes to b, unseen by a, and c to a."""
    moved = 20.0
    cuts = [cut("bc", "ad", CUT_S, moved - CUT_S), cut("acx", "bdy", moved, 40.0)]
    lost = [Fault(moved + 0.001, "snap", "d-1", 30.0), *(Fault(moved + later_s, "snap", "c-1", 30.0),) * 2]
    first = [Fault(CUT_S + 0.001, "snap", f"{name}-1") for name in "bc"]
    plan = plan_of("abcd", [*cuts, *first, *lost, Fault(80.0, "snap", "a-1")], min_nodes=3)
    late = (spec_of("x", moved + 1.0), spec_of("y", moved + 1.0))
    return replace(plan, specs=(*plan.specs, *late), endpoints=tuple(one.address for one in plan.specs[:2]))


@pytest.mark.parametrize("later_s", [0.001, 0.2])
def test_a_vote_binds_as_long_as_a_leader_may_not_have_noticed_that_others_went(later_s):
    """a takes itself for valid for a lease after d left it. b has become the leader by the votes of c and d meanwhile."""
    check(swapped(later_s))


def test_without_that_time_there_are_two_worlds(monkeypatch):
    monkeypatch.setattr(Member, "lapsed_vote", lambda self, _now: self._conns if self.pledge else 0)
    assert run(swapped(0.001))[1].kind == "two worlds"
