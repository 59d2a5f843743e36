"""A job that is finished is not run again by a node that was away, whatever it was told before."""

import pytest
from clustersim import Cluster, Fault, Plan, Spec

from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import Send

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
