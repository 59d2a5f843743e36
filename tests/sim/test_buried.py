"""Clusters that say which nodes are gone for good: who is left goes on without a majority, and there is never a second world.

`PLANARIA_SIM_CLUSTERS` says from how many seeds the clusters are drawn, 500 by default; a third of them have a store.
"""

import os

import pytest
from clustersim import Fault, Plan, Spec, draw
from clustersim.graves import Burying, Hasty, run, waves

from planaria.rendezvous.attendance import Attendance
from planaria.rendezvous.placing import DEPUTIES

CLUSTERS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500"))
SHARES = 10  # so that several processes have something to do
WITHIN = 1000
FIRST = 200_000  # seeds of their own
FOR_EVER = 1000.0
PLAIN = {"endpoints": (), "external": True, "max_nodes": 3, "drift": 0.0, "coupled": False, "max_restarts": 0}


def plans(seeds):
    """Yield the clusters of these seeds that have a store, and rounds whose members are all known by name."""
    for seed in seeds:
        plan = draw(FIRST + seed)
        if plan.external and len(plan.specs) <= DEPUTIES:
            yield plan


@pytest.mark.timeout(120 + CLUSTERS)
@pytest.mark.parametrize("share", range(SHARES))
def test_no_cluster_breaks_a_promise_and_none_waits_for_the_buried(share):
    for plan in (*plans(range(share, CLUSTERS, SHARES)), *map(waves, range(share, CLUSTERS, SHARES))):
        violation = run(plan)[1]
        assert violation is None, f"seed {plan.seed}: {violation}"


def one_after_another(seed=1, lost=("a-1",), at=8.0, lasting=FOR_EVER):
    """Return a cluster in which the hosts of these nodes fall silent, and others start later at other addresses."""
    before = tuple(Spec(name, f"host-{name[0]}", 29400, 0.1 * index) for index, name in enumerate(lost))
    after = (Spec("x-1", "host-x", 29400, 20.0), Spec("y-1", "host-y", 29400, 20.5))
    faults = tuple(Fault(at, "host", name, lasting) for name in lost)
    return Plan(seed=seed, specs=(*before, *after), faults=faults, **PLAIN)


def newest(cluster):
    return {agent.name: agent.machine.standing.ran for agent in cluster.agents if agent.is_alive}


@pytest.mark.parametrize("lost", [("a-1",), ("a-1", "b-1"), ("a-1", "b-1", "c-1")])
@pytest.mark.parametrize("seed", range(3))
def test_replacements_go_on_when_all_members_are_buried(lost, seed):
    cluster, violation = run(one_after_another(seed, lost))
    assert violation is None
    assert cluster.buried == set(lost)
    assert newest(cluster) == {"x-1": 1, "y-1": 1}, "the round after the last one that the lost were in"


def test_replacements_hold_as_long_as_nobody_says_that_the_lost_are_gone(monkeypatch):
    monkeypatch.setattr(Burying, "is_gone", lambda _self, _agent: False)
    monkeypatch.setattr(Burying, "must_settle", lambda _self: False)
    cluster, violation = run(one_after_another())
    assert violation is None
    assert newest(cluster) == {"x-1": -1, "y-1": -1}


def test_those_who_are_left_go_on_when_the_majority_is_buried():
    specs = tuple(Spec(f"{name}-1", f"host-{name}", 29400, 0.1 * at) for at, name in enumerate("abc"))
    for lost in (("a-1", "b-1"), ("b-1", "c-1"), ("a-1", "c-1")):
        faults = tuple(Fault(8.0, "host", name, FOR_EVER) for name in lost)
        cluster, violation = run(Plan(seed=4, specs=specs, faults=faults, **PLAIN))
        assert violation is None
        assert list(newest(cluster).values()) == [1], lost


def test_a_machine_that_was_started_anew_goes_on_in_the_same_pod_at_another_address(monkeypatch):
    monkeypatch.setattr(Burying, "is_gone", lambda _self, _agent: False)  # the pod is there, and runs again
    lost, back, other = ("a-00000001.00000000", "a-00000001.00000001", "a-00000002.00000001")
    for after, rounds in ((back, 1), (other, -1)):
        monkeypatch.setattr(Burying, "must_settle", lambda _self, rounds=rounds: rounds > 0)
        specs = (Spec(lost, "a1", 29400, 0.0), Spec(after, "a2", 29400, 20.0))
        faults = (Fault(8.0, "host", lost, FOR_EVER),)
        cluster, violation = run(Plan(seed=2, specs=specs, faults=faults, **PLAIN))
        assert violation is None
        assert newest(cluster) == {after: rounds}


def bury_what_bears_the_name(self, now):
    """Break the rule that a note is about one life."""
    names = {node.rpartition("-")[0] for node in self._office.buried}
    for node in self._roll.addresses:
        if node.rpartition("-")[0] in names and node not in self._seats and self._office.may_shrink(now):
            self._roll.dead.setdefault(node, now)


def test_a_note_about_one_that_lives_is_noticed():
    seen = (run(plan, Hasty)[1] for plan in map(waves, range(WITHIN)))
    assert any(violation is not None and violation.kind == "two worlds" for violation in seen)


def test_a_note_that_is_taken_for_another_life_is_noticed(monkeypatch):
    monkeypatch.setattr(Attendance, "bury", bury_what_bears_the_name)
    seen = (run(plan)[1] for plan in map(waves, range(WITHIN)))
    assert any(violation is not None and violation.kind == "two worlds" for violation in seen)
