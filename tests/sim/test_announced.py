"""Rounds that were announced and may not have begun, and leases of those who were away meanwhile. By hand, without a store."""

import pytest
from clustersim import Cluster, Fault
from clustersim.fixed import cut, plan_of, spec_of

from planaria.base.value import replace
from planaria.rendezvous.messages import Place, Placed, Stopped
from planaria.rendezvous.model import LeaveAnnounced, Received, Send, StartWorkers

CUT_S = 6.0
"""When the net is cut; every node has been in round 0 for seconds by then, which the first to come, a, leads."""


def announces(cluster, agent, effects):
    """Return the numbers of the rounds that a tells others of now."""
    if agent is None or agent is not cluster.find("a-1"):
        return set()
    return {one.message.round for one in effects if isinstance(one, Send) and isinstance(one.message, Place)}


def world_names(cluster):
    """Return who was in each round that began, one letter each."""
    return ["".join(sorted(name[0] for name in world.members.values())) for world in cluster.checks.order]


@pytest.mark.parametrize("kind", ["kill", "leave", "snap"])
@pytest.mark.parametrize("later_s", [0.3, 1.5, 3.0])
def test_two_do_not_go_on_where_a_round_was_given_up_that_others_were_told_of(kind, later_s):
    """a announces a round to b and e, gives it up when they are lost, and sees the other half of the last one again.

    Then a goes, or not: c, d and f are more than half of the last round without it, and b and e of the announced one.
    """
    moments = []

    def swing():
        cluster.net.unblock(first.more)
        cluster.strike(cut("be", "acdf", 0.0, 60.0))
        for name in "be":
            cluster.after(0.001, cluster.strike, Fault(0.0, "snap", f"{name}-1"))
        cluster.after(later_s, cluster.strike, Fault(0.0, kind, "a-1"))

    def look_on(now, agent, _event, effects):
        if not moments and 1 in announces(cluster, agent, effects):
            moments.append(now)
            cluster.after(0.0012, swing)

    first = cut("abe", "cdf", 0.0, 0.0)
    cluster = Cluster(plan_of("abcdef", [Fault(100.0, "snap", "c-1")]), look_on)
    cluster.at(CUT_S, cluster.net.block, first.more)
    cluster.run()
    assert moments
    left = ["a-1", "b-1", "c-1", "d-1", "e-1", "f-1"] if kind == "snap" else ["c-1", "d-1", "f-1"]
    assert sorted(cluster.checks.order[-1].members.values()) == left


@pytest.mark.parametrize("is_killed", [True, False])
def test_one_who_missed_the_second_announcement_does_not_go_on_with_the_first(is_killed):
    """a loses e after it has announced a round to b and e; it announces the next to b and to the others who are back.

    b does not hear of it and goes to e. So b and e are more than half of the first, and the others of the second.
    """
    moments = []

    def back():
        cluster.net.unblock(first.more)
        cluster.strike(cut("e", "acdf", 0.0, 60.0))

    def look_on(now, agent, _event, effects):
        told = announces(cluster, agent, effects)
        if 1 in told and not moments:
            moments.append(now)
            cluster.net.block([("host-e", "host-a")])
            cluster.after(0.003, back)
            cluster.after(0.9, cluster.strike, Fault(0.0, "snap", "e-1"))
        if 2 in told and len(moments) == 1:
            moments.append(now)
            cluster.strike(cut("b", "acdf", 0.0, 60.0))
            cluster.after(0.001, cluster.strike, Fault(0.0, "snap", "b-1"))
            last = Fault(0.0, "kill", "a-1") if is_killed else cut("a", "bcdef", 0.0, 60.0)
            cluster.after(0.3, cluster.strike, last)

    first = cut("abe", "cdf", 0.0, 0.0)
    cluster = Cluster(plan_of("abcdef", [Fault(100.0, "snap", "c-1")]), look_on)
    cluster.at(CUT_S, cluster.net.block, first.more)
    cluster.run()
    assert len(moments) == 2
    assert len(cluster.checks.order[-1].members) == (3 if is_killed else 6)


@pytest.mark.parametrize(("names", "left"), [("abcdefgh", "abeg"), ("abcdef", "abe")])
@pytest.mark.parametrize("is_killed", [True, False])
def test_one_who_was_there_and_was_not_told_goes_on_with_the_others_alone(names, left, is_killed):
    """a announces a round to its side; b does not get it and changes sides. With it the others are more than half."""
    moments = []

    def swing():
        cluster.net.unblock(first.more)
        cluster.strike(cut([name for name in left if name != "b"], ["b", *right], 0.0, 60.0))
        cluster.strike(Fault(0.0, "snap", "b-1"))

    def look_on(now, agent, _event, effects):
        if not moments and 1 in announces(cluster, agent, effects):
            moments.append(now)
            cluster.net.block(cut("a", "b", 0.0, 0.0).more)
            cluster.after(0.004, swing)
            if is_killed:
                cluster.after(0.3, cluster.strike, Fault(0.0, "kill", "a-1"))

    right = [name for name in names if name not in left]
    first = cut(left, right, 0.0, 0.0)
    cluster = Cluster(plan_of(names, [Fault(100.0, "snap", "c-1")]), look_on)
    cluster.at(CUT_S, cluster.net.block, first.more)
    cluster.run()
    assert moments
    assert world_names(cluster)[1] == "".join(sorted(["b", *right]))


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_no_round_begins_while_one_that_has_stopped_is_away_with_a_lease(seed):
    """b has stopped its workers for the round with c, and is lost. When a is killed, b proves that, and c is there too."""
    moments = []

    def part():
        cluster.net.unblock(cut("b", "ac", 0.0, 0.0).more)
        cluster.net.block(cut("b", "c", 0.0, 0.0).more)

    def look_on(now, agent, event, effects):
        if agent is None or agent.name != "a-1" or now < CUT_S:
            return
        has_stopped = isinstance(event, Received) and isinstance(event.message, Stopped) and event.conn != "self"
        if not moments and has_stopped:
            moments.append(now)
            cluster.net.block(cut("b", "ac", 0.0, 0.0).more)
            cluster.after(0.02, cluster.strike, Fault(0.0, "snap", "b-1"))
        if len(moments) == 1 and any(isinstance(one, StartWorkers) for one in effects):
            moments.append(now)
            cluster.after(0.05, cluster.strike, Fault(0.0, "kill", "a-1"))
            cluster.after(0.06, part)
            cluster.after(25.0, cluster.net.unblock, cut("b", "c", 0.0, 0.0).more)

    plan = plan_of("ab", [Fault(40.0, "snap", "c-1")], max_nodes=3)
    cluster = Cluster(replace(plan, seed=seed, specs=(*plan.specs, spec_of("c", CUT_S))), look_on)
    cluster.run()
    assert len(moments) == 2
    assert len(cluster.checks.order[-1].members) == 2


def test_a_vote_lapses_also_for_one_that_was_told_of_a_round_that_never_began():
    """a tells c alone of a round, and dies. c makes b the leader, loses it, and is needed for the round that d announces."""
    moments = []

    def lose_a():
        cluster.net.block(alone.more)
        cluster.strike(Fault(0.0, "kill", "a-1"))
        cluster.net.unblock(apart.more)

    def lose_b():
        cluster.net.block(apart.more)
        for _ in range(2):
            cluster.strike(Fault(0.0, "snap", "c-1", 30.0))
        cluster.net.unblock(first.more)

    def heal():
        cluster.net.unblock(apart.more)
        cluster.net.unblock(alone.more)

    def look_on(now, agent, _event, effects):
        if not moments and 1 in announces(cluster, agent, effects):
            moments.append(now)
            for end in list(agent.ends.values()):
                if end.peer is not None and end.peer.host not in ("host-c", "host-a"):
                    cluster.net.snap(end, 0.0)
            cluster.after(0.003, lose_a)
            cluster.after(4.0, lose_b)
            cluster.after(9.0, heal)

    first, apart, alone = cut("b", "adefgh", 0.0, 0.0), cut("b", "c", 0.0, 0.0), cut("c", "adefgh", 0.0, 0.0)
    plan = plan_of("abcdefg", [Fault(60.0, "snap", "d-1")], min_nodes=7, max_nodes=7)
    plan = replace(plan, specs=(*plan.specs, spec_of("h", 7.0)))
    cluster = Cluster(replace(plan, endpoints=tuple(spec.address for spec in plan.specs)), look_on)
    cluster.at(CUT_S, cluster.net.block, first.more)
    cluster.at(CUT_S, cluster.net.block, apart.more)
    cluster.at(CUT_S + 0.001, cluster.strike, Fault(0.0, "snap", "b-1"))
    cluster.run()
    assert moments
    assert sorted(cluster.checks.order[-1].members.values()) == [f"{name}-1" for name in "bcdefgh"]


def test_of_two_first_rounds_that_never_began_one_is_taken_up():
    """d and e do not answer the first announcement of a, which gives it up; b and c do not get the second one. a is killed.

    f to i are more than half of those who are left of the second, and b to e of the first.
    """
    moments = []

    def lose_two():
        for end in list(cluster.find("a-1").ends.values()):
            if end.peer is not None and end.peer.host in ("host-d", "host-e"):
                cluster.net.snap(end, 0.0)
        cluster.net.block(cut("a", "de", 0.0, 0.0).more)

    def lose_a():
        cluster.net.block(sides.more)
        cluster.strike(Fault(0.0, "kill", "a-1"))
        cluster.net.unblock([*cut("a", "de", 0.0, 0.0).more, *deaf, *mute])

    def look_on(now, agent, _event, effects):
        told = announces(cluster, agent, effects)
        if 0 in told and not moments:
            moments.append(now)
            cluster.net.block(mute)
            cluster.after(0.8, lose_two)
        if 1 in told and len(moments) == 1:
            moments.append(now)
            cluster.net.block(deaf)
            cluster.after(0.004, lose_a)

    sides, mute = cut("bcde", "fghi", 0.0, 0.0), [("host-d", "host-a"), ("host-e", "host-a")]
    deaf = [("host-a", "host-b"), ("host-a", "host-c")]
    plan = plan_of("abcde", [Fault(60.0, "snap", "b-1")], min_nodes=4, max_nodes=9)
    others = (spec_of(name, 2.7 + 0.01 * place) for place, name in enumerate("fghi"))
    cluster = Cluster(replace(plan, specs=(*plan.specs, *others)), look_on)
    cluster.at(40.0, cluster.net.unblock, sides.more)
    cluster.run()
    assert len(moments) == 2
    assert world_names(cluster) == ["bcde", "bcdefghi"]


def test_nobody_of_the_round_before_who_is_away_goes_on_by_a_lease_of_another_leader():  # noqa: C901  one story
    """a announces a round to b and to newcomers, and is killed; d leads e and x, who were not told, and is then cut off alone.

    e takes up what was announced, with b and x. When those three are killed, d has proofs of all but itself.
    """
    moments = {}

    def lose_a():
        cluster.strike(Fault(0.0, "kill", "a-1"))
        cluster.net.unblock([*first, *cut("a", "x", 0.0, 0.0).more])
        cluster.net.block(second)
        moments["killed"] = cluster.now

    def swing():
        cluster.net.block(third)
        cluster.net.unblock(second)
        for end in list(cluster.find("d-1").ends.values()):
            if end.peer is not None:
                cluster.net.snap(end.peer, 30.0)  # the others know at once, and d does not
        moments["swung"] = cluster.now

    def lose_three():
        for name in "bex":
            cluster.strike(Fault(0.0, "kill", f"{name}-1"))
        cluster.net.block(apart)
        cluster.net.unblock(third)
        cluster.after(20.0, cluster.net.unblock, apart)
        for end in list(cluster.find("d-1").ends.values()):
            cluster.net.snap(end, 0.0)

    def look_on(now, agent, _event, effects):
        if agent is None:
            return
        if "told" not in moments and now > 8.0 and 1 in announces(cluster, agent, effects):
            moments["told"] = now
            cluster.net.block(cut("a", "x", 0.0, 0.0).more)
            cluster.after(0.004, lose_a)
        leader = agent.machine.leader if agent.name == "d-1" else None
        if "killed" in moments and "led" not in moments and leader and leader.office.phase != "claiming":
            moments["led"] = now
            cluster.after(0.3, swing)
        if "swung" in moments and "begun" not in moments and any(isinstance(one, StartWorkers) for one in effects):
            moments["begun"] = now
            cluster.after(0.05, lose_three)

    first, second = cut("de", "abxklm", 0.0, 0.0).more, cut("bklm", "dex", 0.0, 0.0).more
    third, apart = cut("d", "abexklm", 0.0, 0.0).more, cut("d", "klm", 0.0, 0.0).more
    plan = plan_of("abdex", [Fault(60.0, "snap", "k-1")], max_nodes=8)
    others = (spec_of(name, 7.0 + 0.01 * place) for place, name in enumerate("klm"))
    plan = replace(plan, specs=(*plan.specs, *others), endpoints=tuple(spec.address for spec in plan.specs))
    cluster = Cluster(plan, look_on)
    cluster.at(CUT_S, cluster.net.block, first)
    cluster.at(9.0, lambda: cluster.find("x-1").post(LeaveAnnounced("its owner will say so")))
    cluster.run()
    assert moments.keys() == {"told", "killed", "led", "swung", "begun"}


def test_who_is_told_as_a_spectator_has_its_say_as_a_member_of_the_round_before():
    """a announces a round to b and newcomers and is killed; c comes back to b, is told of it, and b is killed; d comes back."""
    moments = []

    def look_on(now, agent, _event, effects):
        if agent is None:
            return
        if not moments and now > 7.0 and 1 in announces(cluster, agent, effects):
            moments.append(now)
            cluster.after(0.0012, cluster.strike, Fault(0.0, "kill", "a-1"))
            cluster.after(1.0, cluster.net.unblock, apart["c"])
            cluster.after(1.0, moments.append, now + 1.0)
        is_told = any(isinstance(one, Send) and isinstance(one.message, Placed) for one in effects)
        if agent.name == "c-1" and len(moments) == 2 and is_told:
            moments.append(now)
            cluster.after(0.05, cluster.strike, Fault(0.0, "kill", "b-1"))
            cluster.after(3.05, cluster.net.unblock, apart["d"])

    apart = {name: cut(name, "abxy", 0.0, 0.0).more for name in "cd"}
    plan = plan_of("abcd", [Fault(60.0, "snap", "x-1")], min_nodes=2, max_nodes=8)
    specs = (*plan.specs, spec_of("x", 7.0), spec_of("y", 7.1))
    plan = replace(plan, specs=specs, endpoints=tuple(spec.address for spec in plan.specs))
    cluster = Cluster(plan, look_on)
    for pairs in apart.values():
        cluster.at(CUT_S, cluster.net.block, pairs)
    cluster.run()
    assert len(moments) == 3
    assert world_names(cluster)[-1] == "cdxy"


def test_a_job_goes_on_that_lost_two_leaders_before_its_first_round_began():
    """a is cut off when it has announced the first round, b's host is lost when it has announced the next. Then a is back."""
    moments = []

    def lose_a():
        cluster.net.block(apart)
        for end in list(cluster.find("a-1").ends.values()):
            cluster.net.snap(end, 0.0)

    def lose_b():
        cluster.lose_host("host-b")
        cluster.net.unblock(apart)

    def look_on(now, agent, _event, effects):
        places = (one.message for one in effects if isinstance(one, Send) and isinstance(one.message, Place))
        if agent is None or not any(place.slot is not None for place in places):
            return
        for name, lose in (("a-1", lose_a), ("b-1", lose_b)):
            if agent.name == name and name not in moments:
                moments.append(name)
                cluster.after(0.0017, lose)

    apart = cut("a", "bcd", 0.0, 0.0).more
    plan = plan_of("abcd", [Fault(40.0, "snap", "c-1")], min_nodes=2, max_nodes=5)
    cluster = Cluster(replace(plan, endpoints=tuple(spec.address for spec in plan.specs)), look_on)
    cluster.run()
    assert moments == ["a-1", "b-1"]
    assert world_names(cluster)[-1] == "acd"
