"""Every agent struck right after every single thing it does, in a run with a start, an arrival and a worker's crash.

Asked to leave (SIGTERM, SIGINT), killed, or its host gone without a word: leaders, members and newcomers alike, with a store
and without. Every promise holds and the others go on in one world: `Cluster.run` checks both.
"""

from collections import Counter

import pytest
from clustersim import Fault, Plan, Spec, explain
from clustersim.story import run

from planaria.base.value import replace
from planaria.rendezvous.model import Send

AGENTS = (("a", 0.0), ("b", 0.1), ("c", 0.2), ("d", 5.0))
PLAIN = Plan(
    seed=1,
    specs=tuple(Spec(f"{name}-1", f"host-{name}", 29400, at) for name, at in AGENTS),
    faults=(Fault(9.0, "worker", "b-1"),),
    endpoints=("host-a:29400",),
    min_nodes=1,
    max_nodes=4,
    max_restarts=3,
    coupled=False,
    drift=0.0,
)
STORED = replace(PLAIN, endpoints=(), external=True)
DULL = ("Renew", "Ack", "Ask", "Leads", "Waiting", "WakeAt", "AskAround", "Fence", "Say")
"""What happens all the time, or changes nothing."""


def deeds(plan):
    """Count what the agents of a plan do when nothing befalls them."""
    found = Counter()

    def watch(_now, _agent, _event, effects):
        for effect in effects:
            found[type(effect.message if isinstance(effect, Send) else effect).__name__] += 1

    cluster, violation = run(plan, watch)
    assert violation is None
    assert len(cluster.checks.order) == 3, "a start, an arrival, a crash"
    return {kind: count for kind, count in found.items() if kind not in DULL}


@pytest.mark.parametrize("plan", [PLAIN, STORED], ids=["embedded", "stored"])
@pytest.mark.parametrize("action", ["leave", "kill", "vanish"])
def test_whoever_is_struck_at_whatever_it_does_the_others_go_on(plan, action):
    struck = Counter()
    moments = deeds(plan)
    for kind, count in moments.items():
        for nth in range(1, count + 1):
            ambushed = replace(plan, faults=(Fault(0.0, "ambush", "", 0.0, (kind, nth, action)), *plan.faults))
            cluster, violation = run(ambushed)
            if violation is not None:
                pytest.fail(f"{kind} {nth}, {action}: {explain(ambushed)}", pytrace=False)
            struck[kind] += cluster.ambush is None
    assert [kind for kind in moments if not struck[kind]] == []
    assert struck.total() >= 0.9 * sum(moments.values()), "almost every moment was one to strike at"
