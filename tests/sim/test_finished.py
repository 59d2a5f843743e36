"""A job that is finished is not run again by a node that was away, whatever it was told before."""

import pytest
from clustersim import Cluster, Fault, Plan, Spec
from clustersim.fixed import cut, finish, plan_of, spec_of

from planaria.base.value import replace
from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import Send
from planaria.rendezvous.records import key_of
from planaria.store.model import Found, Get

PLAIN = {"endpoints": (), "external": True, "drift": 0.0, "coupled": False, "is_mild": False, "max_restarts": 0}
LAST = (Fault(45.0, "snap", "z-1"),)  # so that it is watched until then
FIRST = (Spec("a-1", "host-a", 29400, 0.0), Spec("z-1", "host-z", 29400, 0.1))


def run_without(plan, away_s):
    """Let the leader die when it has announced the first round, and the other miss all that follows; return that one."""

    def look_on(_now, agent, _event, effects):
        places = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Place)]
        if places and agent.name == "a-1" and not struck:
            struck.append(agent)
            cluster.after(0.0, agent.die)
            cluster.after(5 * plan.delay_s, cluster.isolate, "host-z", away_s)

    struck = []
    cluster = Cluster(plan, look_on)
    cluster.run()
    assert struck
    return cluster, next(one for one in cluster.agents if one.name == "z-1")


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_was_told_of_a_first_round_that_never_began_hears_how_the_run_ended(others, seed):
    later = tuple(Spec(f"{name}-1", f"host-{name}", 29400, 8.0 + 0.1 * at) for at, name in enumerate("bc"[:others]))
    plan = Plan(seed=seed, specs=(*FIRST, *later), faults=LAST, **PLAIN, max_nodes=2, work_s=3.0)
    cluster, away = run_without(plan, 30.0)
    assert len(cluster.checks.outcomes) == 1
    assert [world.key[0] for world in cluster.checks.order] == list(cluster.checks.outcomes)
    assert away.ended is not None
    assert away.ended.kind == "done"
    assert away.lives == 0


@pytest.mark.parametrize("later_s", [0.03, 0.05, 0.08, 0.1, 0.12])
@pytest.mark.parametrize("anew", [False, True], ids=["keys deleted", "store set up anew"])
@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_store_that_was_emptied_just_before_the_end_hears_of_it(names, anew, later_s):
    """The round that runs is being written again when it ends. One that comes later is not to take it for one that goes on."""
    plan = plan_of(names, [Fault(5.0, "empty", "", 0.0, anew)], external=True, delay_s=0.03)
    cluster = Cluster(replace(plan, specs=(*plan.specs, spec_of("x", 20.0))))
    finish(cluster, dict.fromkeys(names, 4.0) | {"a": 5.0 + later_s}).run()
    assert [world.key[0] for world in cluster.checks.order] == ["a-1", "x-1"]
    assert list(cluster.checks.outcomes) == ["a-1"]
    assert isinstance(cluster.store.machine.request(Get(key_of("run", "outcome")), 0.0), Found)


def test_an_end_that_was_told_while_the_store_was_away_is_not_undone_by_one_that_took_the_key_meanwhile():
    """a tells b that both are done, and b goes. c, which waits for a place, sees the store only, and leads by it."""
    plan = plan_of("abc", [cut("a", "c#", 8.0, 28.7)], external=True, max_nodes=2)
    cluster = finish(Cluster(plan), {"a": 8.6, "b": 9.8}).run()
    assert {one.name: one.ended and one.ended.kind for one in cluster.agents} == {f"{one}-1": "done" for one in "abc"}
    assert len(cluster.checks.order) == 1


@pytest.mark.parametrize("lasting_s", [20.0, 40.0])
def test_one_that_heard_of_an_end_stays_as_long_as_its_leader_may_have_to_take_it_back(lasting_s):
    """All are done, and all but a and b miss it: they go on. b is not to go with an end that nobody else knows."""
    cluster = Cluster(plan_of("abcdef", [cut("ab", "cdef", 6.8, lasting_s)]))
    finish(cluster, {name: 6.5 + 0.1 * place for place, name in enumerate("cdefba")}).run()
    assert cluster.checks.outcomes == {}
    assert len(cluster.checks.order[-1].members) == 6


@pytest.mark.parametrize("kind", ["kill", "leave"])
def test_one_that_heard_of_an_end_and_is_gone_does_not_make_it_certain(kind):
    """b knows, and goes in sight of c and d, who miss it: they are more than half of those who are left."""
    lost = [Fault(6.801, "snap", f"{name}-1") for name in "cd"]
    cluster = Cluster(plan_of("abcd", [cut("a", "cd", 6.8, 40.0), *lost, Fault(7.3, kind, "b-1")]))
    finish(cluster, {name: 6.6 + 0.1 * place for place, name in enumerate("cdba")}).run()
    assert cluster.checks.outcomes == {}
    assert set(cluster.checks.order[-1].members.values()) == {f"{name}-1" for name in "acd"}
