"""Clusters in which hosts are cut off from some others, and from the store or not, while nodes leave, die or change sides."""

import random

from clustersim.cluster import FOR_EVER_S
from clustersim.plan import ENDPOINT, Fault, Plan, Spec
from planaria.base.value import replace

DEEDS = ("kill", "kill", "kill", "leave", "leave", "go", "go", "snap", "snap", "pause", "host")
GOING = ("kill", "leave", "go")
SIDES = ("left", "left", "right", "right", "both", "none")
VARIED = 4
"""Seeds whose last digit is lower have clusters that need most of their nodes, or whose work ends."""


def draw_cuts(seed, *, external):
    """Return a plan: a net that is cut in two with some in between, then some who change sides, and deeds at those moments.

    Nobody comes while the net is cut: without a store, one who is started at an endpoint and can reach nobody founds a world.
    """
    rng = random.Random(f"cuts {external} {seed}")
    nodes = rng.choice((2, 3, 3, 4, 4, 4, 5, 5, 5, 6, 7))
    ttl_s = rng.choice((2.0, 5.0, 5.0))
    specs = tuple(
        Spec(f"{chr(97 + index)}-{rng.getrandbits(32):08x}", f"h{index}", ENDPOINT, round(0.1 * index, 1))
        for index in range(nodes)
    )
    draws = (_bridge, _bridge, _bridge, _swing, _moves) if external else (_bridge, _bridge, _swing, _swing, _moves)
    draw = rng.choice(draws) if nodes > 2 else _moves
    faults = draw(rng, specs, ttl_s, external=external)
    plan = Plan(
        seed=seed,
        specs=specs,
        faults=tuple(sorted(faults, key=lambda one: one.at)),
        endpoints=() if external else (specs[0].address,),
        external=external,
        min_nodes=1,
        max_nodes=max(1, nodes + rng.choice((-2, -1, 0, 0, 0, 0, 1))),
        max_restarts=3,
        ttl_s=ttl_s,
        quiet_s=rng.choice((0.5, 2.0)),
        delay_s=rng.choice((0.0005, 0.001, 0.01, 0.03)),
        drift=rng.choice((0.0, 0.01)),
        coupled=False,
        is_mild=False,
    )
    return _varied(plan) if seed % 10 < VARIED else plan


def _varied(plan):
    """Let a cluster need most of its nodes, or its work end.

    Drawn by itself: the other clusters, and so the seeds that found a race, are what they were.
    """
    rng = random.Random(f"varied {plan.external} {plan.seed}")
    nodes = len(plan.specs)
    if rng.random() < 0.5:
        return replace(plan, max_nodes=nodes, min_nodes=rng.choice((nodes, nodes, max(1, nodes - 1))))
    return replace(plan, work_s=rng.choice((6.0, 9.0, 14.0)))


def _bridge(rng, specs, ttl_s, *, external):
    """Leave the leader, which is the first, some of its members and those whom the others reach as well; then those go.

    Its right to lead hangs on them, and so do leases that it has granted. They go from its sight before they go for good.
    """
    middle = rng.sample(specs[1:], rng.choice((1, 1, 2)))
    rest = [spec for spec in specs[1:] if spec not in middle]
    lefts = [specs[0], *rest[: rng.randint(0, len(rest) // 2)]]
    side = {spec.host: "both" if spec in middle else "left" if spec in lefts else "right" for spec in specs}
    if external:
        side["store"] = "right"
    # With a store the others wait until the leader's key is gone; without, they believe a death only while a lease runs.
    begun, lasting = rng.uniform(5.0, 7.0), rng.uniform(*((0.75, 1.15) if external else (0.2, 0.8))) * ttl_s
    found = [Fault(round(begun, 3), "block", "", 6 * ttl_s, tuple(_pairs(rng, side)))]
    apart = {spec.host: rng.choice(("right", "right", "none")) for spec in middle}
    apart |= {spec.host: "none" for spec in lefts if rng.random() < 0.6}
    moved = begun + lasting
    found.append(Fault(round(moved, 3), "block", "", 6 * ttl_s - lasting, tuple(_pairs(rng, side | apart))))
    going = [spec for spec in middle if rng.random() < 0.9]
    found += [Fault(round(moved + 0.2 * rng.random(), 3), rng.choice(GOING), spec.name) for spec in going]
    return found + ([_deed(rng, middle, specs, begun, 2 * lasting)] if rng.random() < 0.3 else [])


def _swing(rng, specs, ttl_s, *, external):
    """Leave the leader, which is the first, less than half; then let some of the others see its side again, and go, or not.

    They may have made another the leader by then. Connections break at once, so nobody has to lose patience first.
    """
    lefts = specs[: rng.randint(1, max(1, (len(specs) - 1) // 2))]
    swings = rng.sample(specs[len(lefts) :], 1 if len(specs) < 5 else rng.choice((1, 1, 2)))
    side = {spec.host: "left" if spec in lefts else "right" for spec in specs}
    if external:
        side["store"] = rng.choice(("left", "right", "right", "both"))
    begun, lasting = rng.uniform(5.0, 7.0), rng.uniform(0.2, 0.8) * ttl_s
    moved, over = begun + lasting, 6 * ttl_s
    after = side | {spec.host: rng.choice(("left", "both")) for spec in swings}
    found = [
        Fault(round(begun, 3), "block", "", round(lasting, 3), tuple(_pairs(rng, side))),
        *(Fault(round(begun + 0.001, 3), "snap", spec.name) for spec in specs[len(lefts) :]),
        Fault(round(moved, 3), "block", "", round(over - lasting, 3), tuple(_pairs(rng, after))),
    ]
    for spec in swings:
        found += [Fault(round(moved + 0.001, 3), "snap", spec.name) for _ in range(rng.choice((0, 2)))]
        if rng.random() < 0.6:
            found.append(Fault(round(moved + 0.3 * rng.random(), 3), rng.choice(GOING), spec.name))
    return found


def _moves(rng, specs, ttl_s, *, external):
    """Let hosts change sides, some more than once."""
    hosts = [spec.host for spec in specs] + (["store"] if external else [])
    side = {host: rng.choice(SIDES[:-1]) for host in hosts}
    side[rng.choice(specs).host] = "both"
    found, now = [], rng.uniform(5.0, 7.0)
    for step in range(rng.choice((1, 2, 2, 3, 4))):
        movers = rng.sample(hosts, rng.choice((1, 1, 2)))
        if step:
            side |= {host: rng.choice(SIDES) for host in movers}
        # What decides is mostly over within a TTL or so: leases, and the patience of those who wait.
        lasting = rng.choice((0.03, 0.2, 0.5, 0.9, 1.2, 4.0)) * rng.uniform(0.7, 1.3) * ttl_s
        found.append(Fault(round(now, 3), "block", "", round(lasting, 3), tuple(_pairs(rng, side))))
        between = [spec for spec in specs if side[spec.host] == "both" or spec.host in movers] or specs
        found += [_deed(rng, between, specs, now, lasting) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        now += lasting
    return found


def _pairs(rng, side):
    """Return the links that are cut: between the sides, and all of those who are on none."""
    links = [(one, other) for one in side for other in side if one != other]
    cut = [
        pair for pair in links if {side[pair[0]], side[pair[1]]} == {"left", "right"} or "none" in map(side.get, pair)
    ]
    if rng.random() < 0.1:
        cut = [pair for pair in cut if side[pair[0]] != "right"]  # what the right side says still arrives
    return cut


def _deed(rng, between, specs, now, lasting):
    kind = rng.choice(DEEDS)
    who = rng.choice(between if rng.random() < 0.8 else specs).name if rng.random() < 0.9 else "leader"
    at = round(now + rng.choice((0.05, 1.0)) * rng.random() * min(lasting, 6.0), 3)
    match kind:
        case "host":
            return Fault(at, kind, who, rng.choice((1.0, FOR_EVER_S)))
        case "pause":
            return Fault(at, kind, who, rng.choice((0.3, 1.0, 2.5, 4.5)))
        case "snap":
            return Fault(at, kind, who, rng.choice((0.0, 0.5)))
        case _:
            return Fault(at, kind, who)
