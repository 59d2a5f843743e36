"""Leaders of many nodes that go while they make a round: nobody but themselves knew all who were in the one before."""

import pytest
from clustersim import Cluster, Fault, Plan, Spec

from planaria.rendezvous.model import Send

MANY = 20


class Going(Cluster):
    """Whoever leads is struck, a few times, right after it has done something for the nth time since a moment."""

    def __init__(self, plan, what, nth, deed, times=1):
        super().__init__(plan)
        self.what, self.deed, self.left = what, deed, [nth] * times
        self.struck = set()
        self.at(5.9, setattr, self, "ambush", self)

    def notice(self, agent, effect):
        """Look at an effect that was performed."""
        kind = type(effect.message if isinstance(effect, Send) else effect).__name__
        if kind != self.what or not agent.machine.is_leading or agent in self.struck:
            return
        self.left[0] -= 1
        if self.left[0]:
            return
        self.left.pop(0)
        self.struck.add(agent)
        if not self.left:
            self.ambush = None
        if self.deed == "kill":
            agent.die()
        elif self.deed == "vanish":
            self.lose_host(agent.host)
        else:
            self.after(0.0, agent.go_at_once)


def run(external, what, nth, deed, *, times=1, fault="worker", nodes=MANY):
    """Run a job whose first round ends at 6 s; return how many of its nodes are in one world at last."""
    specs = tuple(Spec(f"a{place}-1", f"host-a{place}", 29400, 0.01 * place) for place in range(nodes))
    plan = Plan(
        seed=1,
        specs=specs,
        faults=(Fault(6.0, fault, f"a{nodes - 1}-1"),),
        endpoints=() if external else ("host-a0:29400",),
        external=external,
        max_nodes=nodes,
        drift=0.0,
        coupled=False,
    )
    cluster = Going(plan, what, nth, deed, times)
    cluster.run()
    assert not cluster.left
    return sum(agent.is_alive for agent in cluster.agents)


@pytest.mark.parametrize("deed", ["go", "kill", "vanish"])
@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize(("what", "nth"), [("Place", 1), ("Place", 10), ("Place", MANY), ("Start", 1), ("Start", 10)])
def test_those_who_are_left_go_on(external, what, nth, deed):
    assert run(external, what, nth, deed) == MANY - 1


@pytest.mark.parametrize("nodes", [15, 16, 17])
@pytest.mark.parametrize("external", [True, False])
def test_it_does_not_matter_how_many_they_are(external, nodes):
    assert run(external, "Place", nodes, "go", nodes=nodes) == nodes - 1


@pytest.mark.parametrize("deed", ["go", "kill"])
@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize(("what", "nth"), [("Start", 1), ("Place", 10), ("Place", MANY - 1)])
def test_two_leaders_may_go_one_after_the_other(external, what, nth, deed):
    assert run(external, what, nth, deed, times=2) == MANY - 2


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("nth", [5, 10, MANY - 1])
def test_a_leader_may_go_while_it_makes_the_round_without_one_that_was_killed(external, nth):
    assert run(external, "Place", nth, "kill", fault="kill") == MANY - 2


def test_a_leader_may_go_where_a_record_names_three():
    assert run(True, "Place", 70, "go", nodes=70) == 69
