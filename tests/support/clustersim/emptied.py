"""Clusters whose store loses all it knew of the run while some nodes are out of each other's reach.

Nobody comes for the first time when the store is about to be emptied, or has been: one who never heard of a run, finds none
and meets nobody begins another.
"""

import random

from clustersim.cluster import FOR_EVER_S
from clustersim.plan import Fault, Plan, Spec

KNOWN_S = 1.5
"""How long before a store is emptied the last node comes."""
TROUBLES = ("block", "block", "split", "split", "kill", "leave", "go", "pause", "freeze", "host", "outage", "worker")


def draw_emptied(seed):
    """Return a plan: nodes that run or wait for a place, a store that is emptied once or twice, and faults around it."""
    rng = random.Random(f"emptied {seed}")
    nodes = rng.choice((2, 2, 3, 3, 4, 5, 5, 7))
    specs = [Spec(f"{letter}-1", f"host-{letter}", 29400, round(rng.random(), 3)) for letter in "abcdefg"[:nodes]]
    at = round(rng.uniform(4.0, 9.0), 3)
    late = [
        round(at - KNOWN_S - rng.choice((0.0, 0.3, 2.0)) * rng.random(), 3) for _ in range(rng.choice((0, 0, 1, 2)))
    ]
    specs += [Spec(f"{letter}-1", f"host-{letter}", 29400, when) for letter, when in zip("xy", late, strict=False)]
    faults = [Fault(at, "empty", "", 0.0, rng.random() < 0.4)]
    if rng.random() < 0.3:
        faults.append(Fault(round(at + rng.uniform(0.1, 9.0), 3), "empty", "", 0.0, rng.random() < 0.4))
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        when = round(at + rng.choice((0.0, 0.3, 1.0, 5.0)) * rng.uniform(-1.0, 1.0), 3)
        faults.append(_fault(rng, rng.choice(TROUBLES), when, specs))
    return Plan(
        seed=seed,
        specs=tuple(specs),
        faults=tuple(sorted(faults, key=lambda one: one.at)),
        endpoints=(),
        external=True,
        max_nodes=rng.choice((nodes, nodes, nodes + 1, 9)),
        ttl_s=rng.choice((2.0, 5.0)),
        quiet_s=rng.choice((0.5, 2.0)),
        max_restarts=3,
        work_s=rng.choice((None, None, 20.0)),
        delay_s=rng.choice((0.0005, 0.001, 0.01, 0.03)),
        drift=rng.choice((0.0, 0.01)),
        coupled=rng.random() < 0.5,
        is_mild=False,
    )


def _fault(rng, kind, at, specs):
    who = rng.choice(("leader", rng.choice(specs).name))
    lasting = rng.choice((0.5, 3.0, 8.0, 20.0))
    match kind:
        case "block":  # some see each other no more, but all see the store
            inside = {spec.host for spec in rng.sample(specs, rng.randint(1, max(1, len(specs) // 2)))}
            outside = [spec.host for spec in specs if spec.host not in inside]
            pairs = [pair for one in sorted(inside) for other in outside for pair in ((one, other), (other, one))]
            return Fault(at, kind, "", lasting, tuple(pairs))
        case "split":
            hosts = tuple(spec.host for spec in rng.sample(specs, rng.randint(1, max(1, len(specs) // 2))))
            return Fault(at, kind, "", lasting, hosts + (("store",) if rng.random() < 0.5 else ()))
        case "outage":
            return Fault(at, kind, "", rng.choice((0.5, 3.0)), rng.random() < 0.5)
        case "freeze":
            return Fault(at, kind, who, lasting, rng.random() < 0.5)
        case "host":
            return Fault(at, kind, who, rng.choice((1.0, 5.0, FOR_EVER_S)))
    return Fault(at, kind, who, lasting)
