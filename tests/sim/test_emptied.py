"""A store that loses all it knew of a run while that runs: what a store cannot say is not known, and nobody takes it for none.

`PLANARIA_SIM_CLUSTERS` says how many clusters are drawn, a tenth of it: 50 by default.
"""

import os

import pytest
from clustersim import Cluster, Fault, Plan, Spec, explain
from clustersim.emptied import draw_emptied
from clustersim.story import run

from planaria.rendezvous.messages import Placed
from planaria.rendezvous.model import Send, WriteKey

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500")) // 10
PLAIN = {"endpoints": (), "external": True, "drift": 0.0, "coupled": False, "max_restarts": 0, "is_mild": False}
THREE = tuple(Spec(f"{name}-1", f"host-{name}", 29400, at) for name, at in (("a", 0.0), ("b", 0.1), ("c", 0.2)))
EMPTIED = [pytest.param(False, id="keys deleted"), pytest.param(True, id="store set up anew")]


def apart(one, others, at, lasting):
    """Return a cut between some hosts; all of them see the store."""
    pairs = tuple(
        pair for other in others for pair in ((f"host-{one}", f"host-{other}"), (f"host-{other}", f"host-{one}"))
    )
    return Fault(at, "block", "", lasting, pairs)


def test_whatever_a_store_forgets_there_is_one_world():
    must = 0
    for seed in range(CLUSTERS):
        plan = draw_emptied(seed)
        cluster, violation = run(plan)
        if violation is not None:
            pytest.fail(explain(plan), pytrace=False)
        must += cluster.must_settle()
    assert must > CLUSTERS // 2, "too few of them have to settle"


FOUND = {
    946: "a leader that had lost its key long ago took that of an emptied store for the half it lacked",
    2973: "a leader of half a round wrote it again into the emptied store, and the other half went on with that",
    3547: "a leader led again, in a store that was set up anew, with a lower term than before",
    4262: "a failure of the round before was charged to one that was announced after it",
    4594: "a leader that had told the end without the store, which was emptied meanwhile, took it back",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_drawn_cluster_has_found_stays_fixed(seed):
    Cluster(draw_emptied(seed)).run()


def check_one_run(plan):
    """Run a plan; the run that began first is the only one, and all who live are in it."""
    cluster = Cluster(plan).run()
    assert len({world.key[0] for world in cluster.checks.order}) == 1
    assert cluster.checks.restless() == ""
    return cluster


@pytest.mark.parametrize("anew", EMPTIED)
@pytest.mark.parametrize("seed", range(3))
def test_one_that_waits_for_a_place_does_not_begin_a_run_of_its_own(anew, seed):
    """It sees nobody but the store, and the others do not see that: they need no store to go on."""
    faults = (Fault(5.0, "split", "", 20.0, ("host-x", "store")), Fault(5.5, "empty", "", 0.0, anew))
    specs = (*THREE, Spec("x-1", "host-x", 29400, 3.0))
    check_one_run(Plan(seed=seed, specs=specs, faults=faults, **PLAIN, max_nodes=3))


@pytest.mark.parametrize("anew", EMPTIED)
@pytest.mark.parametrize("seed", range(3))
def test_one_that_was_told_of_the_next_round_and_no_more_does_not_begin_a_run_of_its_own(anew, seed):
    """The round that it is in never starts; of the one before it knows that it did."""

    def look_on(_now, agent, _event, effects):
        told = any(isinstance(one, Send) and one.message == Placed(1) for one in effects)
        if told and agent.name == "x-1" and not struck:
            struck.append(agent)
            cluster.after(0.0, cluster.strike, Fault(0.0, "split", "", 20.0, ("host-x", "store")))
            cluster.after(0.1, cluster.strike, Fault(0.0, "empty", "", 0.0, anew))

    struck = []
    specs = (*THREE, Spec("x-1", "host-x", 29400, 4.0))
    plan = Plan(seed=seed, specs=specs, faults=(Fault(30.0, "snap", "x-1"),), **PLAIN, max_nodes=4)
    cluster = Cluster(plan, look_on)
    cluster.run()
    assert struck
    assert len({world.key[0] for world in cluster.checks.order}) == 1
    assert cluster.checks.restless() == ""


@pytest.mark.parametrize("at", [17.0, 18.0])
def test_a_leader_that_still_has_the_key_of_a_store_that_was_emptied_is_waited_for(at):
    """b and c go on without a, write the round again and have the key then; a was granted it for as long as a lease.

    c, which is done, goes in sight of both, so each is half of those who are left, with a key.
    """
    faults = (
        apart("a", "b", 10.0, 60.0),
        apart("a", "c", 10.0, at - 7.5),
        *(Fault(10.001, "snap", f"{name}-1") for name in "bc"),
        Fault(at - 0.01, "block", "", 60.0, (("host-a", "store"), ("store", "host-a"))),
        Fault(at, "empty", "", 0.0, True),
        Fault(at + 2.6, "leave", "c-1"),
    )
    plan = Plan(seed=1, specs=THREE, faults=faults, **PLAIN, max_nodes=3, ttl_s=20.0)
    cluster = Cluster(plan)
    cluster.at(9.0, lambda: cluster.find("c-1").finish(cluster.find("c-1").life))
    cluster.run()


@pytest.mark.parametrize("anew", EMPTIED)
@pytest.mark.parametrize("after_s", [0.0005, 0.002, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_comes_after_the_store_was_emptied_joins_the_run_that_is_there(anew, after_s, seed):
    """Even when it was the first to write the leader key: those who come to it then know of a round."""
    specs = (*THREE, Spec("x-1", "host-x", 29400, 5.0 + after_s))
    plan = Plan(seed=seed, specs=specs, faults=(Fault(5.0, "empty", "", 0.0, anew),), **PLAIN, max_nodes=4)
    check_one_run(plan)


@pytest.mark.parametrize("anew", EMPTIED)
@pytest.mark.parametrize("seed", range(3))
def test_a_first_round_that_is_given_up_while_it_is_written_is_written_over(anew, seed):
    """x saw nobody of the run that the store has forgotten until then, and the store answers late."""

    def look_on(_now, agent, _event, effects):
        writes = any(isinstance(one, WriteKey) and one.key == "round" for one in effects)
        if writes and agent.name == "x-1" and not struck:
            struck.append(agent)
            cluster.strike(Fault(0.0, "outage", "", 3.0, True))
            cluster.after(0.05, cluster.net.unblock, unseen)

    struck, unseen = [], apart("x", "bc", 0.0, 0.0).more
    faults = (Fault(6.0, "host", "a-1", 1000.0), Fault(6.005, "empty", "", 0.0, anew), Fault(40.0, "snap", "x-1"))
    specs = (*THREE, Spec("x-1", "host-x", 29400, 6.01))
    cluster = Cluster(Plan(seed=seed, specs=specs, faults=faults, **PLAIN, max_nodes=4), look_on)
    cluster.at(5.9, cluster.net.block, unseen)
    cluster.run()
    assert struck
    assert {world.key[0] for world in cluster.checks.order} == {"a-1"}
    assert not any(agent.ended for agent in cluster.agents)


@pytest.mark.parametrize("anew", EMPTIED)
@pytest.mark.parametrize("kind", ["kill", "go", "host"])
@pytest.mark.parametrize("seed", range(3))
def test_a_leader_may_be_lost_after_the_store_was_emptied(anew, kind, seed):
    """What a store set up anew calls its first revisions are lower terms than those that were."""
    faults = (
        Fault(5.0, "empty", "", 0.0, anew),
        Fault(8.0, kind, "leader", 1000.0),
        Fault(16.0, kind, "leader", 1000.0),
    )
    four = (*THREE, Spec("d-1", "host-d", 29400, 0.3), Spec("e-1", "host-e", 29400, 0.4))
    check_one_run(Plan(seed=seed, specs=four, faults=faults, **PLAIN, max_nodes=5))


def test_the_round_that_runs_is_written_again():
    cluster = Cluster(
        Plan(seed=1, specs=THREE, faults=(Fault(5.0, "empty"), Fault(9.0, "snap", "b-1")), **PLAIN, max_nodes=3)
    )
    cluster.run()
    assert cluster.store.has_round()
    assert len(cluster.checks.order) == 1, "nothing was restarted for it"
