"""Clusters that are written by hand: nodes of one letter each, which come one after the other, and cuts between them."""

from clustersim.plan import ENDPOINT, Fault, Plan, Spec
from planaria.base.value import replace


def cut(left, right, at, lasting_s):
    """Cut two sets of hosts off from each other; `#` is the store."""
    hosts = [["store" if name == "#" else f"host-{name}" for name in side] for side in (left, right)]
    pairs = [pair for one in hosts[0] for other in hosts[1] for pair in ((one, other), (other, one))]
    return Fault(at, "block", "", lasting_s, tuple(pairs))


def spec_of(name, at):
    """Return a node with a host of its own."""
    return Spec(f"{name}-1", f"host-{name}", ENDPOINT, at)


def plan_of(names, faults, *, external=False, **changes):
    """Return a plan: the first to come owns the endpoint, and leads the first round."""
    specs = tuple(spec_of(name, 0.1 * place) for place, name in enumerate(names))
    plan = Plan(
        seed=3,
        specs=specs,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        endpoints=() if external else (specs[0].address,),
        external=external,
        max_nodes=len(names),
        coupled=False,
        drift=0.0,
        is_mild=False,
    )
    return replace(plan, **changes)


def finish(cluster, moments):
    """Let the workers of nodes end well at these moments."""
    for name, at in moments.items():
        cluster.at(at, lambda name=name: cluster.find(f"{name}-1").finish(cluster.find(f"{name}-1").life))
    return cluster
