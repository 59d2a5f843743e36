"""Jobs whose nodes have all left, and that begin again on hosts with other addresses: pods never keep theirs."""

import random

import pytest
from clustersim import Fault, Plan, Spec
from clustersim.cluster import Cluster

BEFORE = (Spec("a-1", "host-a", 29400, 0.0), Spec("b-1", "host-b", 29400, 0.1))
AFTER = (Spec("c-1", "host-c", 29400, 20.0), Spec("d-1", "host-d", 29400, 20.5))
PLAIN = {"endpoints": (), "external": True, "max_nodes": 3, "drift": 0.0, "coupled": False, "max_restarts": 0}


def rounds_after(faults, gone_at, seed=1, down=("host-a", "host-b")):
    """Return the newest round of each node that comes later; its predecessors' addresses lead nowhere by then."""
    cluster = Cluster(Plan(seed=seed, specs=(*BEFORE, *AFTER), faults=tuple(faults), **PLAIN))
    for host in down:
        cluster.at(gone_at, cluster.net.down.add, host)
    cluster.run()
    late = {spec.name for spec in AFTER}
    return [agent.machine.standing.ran for agent in cluster.agents if agent.name in late]


@pytest.mark.parametrize("apart_s", [0.0, 0.05, 0.3, 2.0])
@pytest.mark.parametrize("first", ["a-1", "b-1"])
@pytest.mark.parametrize("seed", range(3))
def test_when_all_have_left_in_good_order_others_begin_where_they_ended(first, apart_s, seed):
    second = "b-1" if first == "a-1" else "a-1"
    faults = [Fault(6.0, "go", first), Fault(6.0 + apart_s, "go", second)]
    first_round, second_round = rounds_after(faults, 15.0, seed)
    assert first_round == second_round > 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("nodes", "within_s"), [(2, 0.0), (3, 0.0), (3, 1.0), (6, 0.5), (12, 0.5)])
def test_it_does_not_matter_who_of_them_knows_that_others_leave_too(nodes, within_s, seed):
    """With 2 nodes their goodbyes crossed on the way; with more, whoever knew of one left before it told the next leader."""
    rng = random.Random(seed)
    before = [Spec(f"a{n}-1", f"host-a{n}", 29400, 0.05 * n) for n in range(nodes)]
    after = [Spec(f"c{n}-1", f"host-c{n}", 29400, 20.0 + 0.1 * n) for n in range(nodes)]
    faults = tuple(Fault(6.0 + within_s * rng.random(), "go", spec.name) for spec in before)
    cluster = Cluster(Plan(seed=seed, specs=(*before, *after), faults=faults, **{**PLAIN, "max_nodes": nodes}))
    for spec in before:
        cluster.at(15.0, cluster.net.down.add, spec.host)
    cluster.run()
    (ran,) = {agent.machine.standing.ran for agent in cluster.agents if agent.name.startswith("c")}
    assert ran > 0


@pytest.mark.parametrize("seed", range(12))
def test_rounds_that_are_just_being_made_are_left_too(seed):
    """Some know of a round that was announced and did not start, others only of the one before."""
    rng = random.Random(seed)
    before = [Spec(f"a{n}-1", f"host-a{n}", 29400, 0.05 * n if n < 3 else 5.5 + rng.random()) for n in range(5)]
    faults = tuple(Fault(6.6 + 0.8 * rng.random(), "go", spec.name) for spec in before)
    cluster = Cluster(Plan(seed=seed, specs=(*before, *AFTER), faults=faults, **{**PLAIN, "max_nodes": 8}))
    for spec in before:
        cluster.at(15.0, cluster.net.down.add, spec.host)
    cluster.run()
    late = {spec.name for spec in AFTER}
    (ran,) = {agent.machine.standing.ran for agent in cluster.agents if agent.name in late}
    assert ran > 0


@pytest.mark.parametrize("seed", range(12))
def test_what_is_said_of_one_that_was_killed_makes_no_second_world(seed):
    """Its workers may live on for a moment: who leaves says nothing of it before that is over. The checks of the run look."""
    rng = random.Random(seed)
    specs = [Spec(f"a{n}-1", f"host-a{n}", 29400, 0.05 * n) for n in range(4)]
    killed, stays, *going = rng.sample(specs, 4)
    faults = [Fault(6.5, "kill", killed.name), *(Fault(6.0 + 0.8 * rng.random(), "go", spec.name) for spec in going)]
    cluster = Cluster(Plan(seed=seed, specs=tuple(specs), faults=tuple(faults), **{**PLAIN, "max_nodes": 4}))
    cluster.run()
    (left,) = [agent for agent in cluster.agents if agent.name == stays.name]
    assert left.machine.standing.size == 1


@pytest.mark.parametrize(("seed", "first", "apart_s"), [(0, "a-1", 0.19), (1, "b-1", 0.08)])
def test_goodbyes_that_cross_are_both_heard(seed, first, apart_s):
    second = "b-1" if first == "a-1" else "a-1"
    first_round, second_round = rounds_after([Fault(6.0, "go", first), Fault(6.0 + apart_s, "go", second)], 15.0, seed)
    assert first_round == second_round > 0


def test_one_that_was_killed_and_proven_dead_is_not_waited_for():
    faults = [Fault(6.0, "kill", "b-1"), Fault(9.0, "go", "a-1")]
    first_round, second_round = rounds_after(faults, 15.0)
    assert first_round == second_round > 0


def test_one_that_fell_silent_may_be_alive_and_is_waited_for():
    faults = [Fault(6.0, "host", "b-1", 1000.0), Fault(6.2, "go", "a-1")]
    assert rounds_after(faults, 15.0) == [-1, -1]
