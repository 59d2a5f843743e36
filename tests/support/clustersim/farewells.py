"""Clusters with a store whose nodes come and leave in waves, each wave on hosts of its own: pods never keep their addresses."""

import random

from clustersim.cluster import FOR_EVER_S, Cluster
from clustersim.plan import Fault, Plan, Spec

POLITE = ("snap", "pause", "block", "block")
WILD = (*POLITE, "pause", "kill", "host", "freeze", "split", "lossy", "outage", "outage", "forget", "forget", "ambush")


class Vacated(Cluster):
    """Hosts of those that left are gone soon after. If all did so in good order, those who are there at last must settle."""

    def __init__(self, plan, watcher=None, down_s=(0.02, 0.02, 0.15, 1.0)):
        super().__init__(plan, watcher)
        self.downs = self.rng_for("downs")
        self.down_s = down_s
        self.cut_short = set()

    def has_gone(self, agent):
        if agent.machine.is_parting:
            self.cut_short.add(agent.name)
        self.after(self.downs.choice(self.down_s), self.net.down.add, agent.host)

    def must_settle(self):
        dead = [one for one in self.agents if not one.is_alive]
        has_said = all(one.is_polite and one.name not in self.cut_short for one in dead)
        return len(self.living()) >= self.plan.min_nodes and has_said


def draw_farewells(seed, *, is_wild):
    """Return a plan: two to four waves of nodes, most of which leave together, and faults around that moment."""
    rng = random.Random(f"farewells {is_wild} {seed}")
    specs, faults, now = [], [], 0.0
    most, leaving = rng.choice((1, 2, 2, 3, 3, 4, 5, 9)), rng.choice((0.6, 0.8, 0.95, 1.0))
    waves = rng.choice((2, 2, 3, 4))
    for wave in range(waves):
        spread_s = rng.choice((0.2, 1.0, 4.0))
        fresh = [
            Spec(f"{'abcd'[wave]}{place}-1", f"host-{wave}-{place}", 29400, round(now + spread_s * rng.random(), 3))
            for place in range(rng.randint(max(1, most - 2), most))
        ]
        specs += fresh
        now += rng.choice((3.0, 6.0, 9.0)) + rng.random()
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            at = round(now + rng.uniform(-2.5, 1.5), 3)
            faults.append(_fault(rng, rng.choice(WILD if is_wild else POLITE), at, specs, fresh))
        if wave < waves - 1:
            spread_s = rng.choice((0.0, 0.003, 0.05, 0.5, 2.0))
            going = [spec for spec in specs if rng.random() < (leaving if spec in fresh else 0.7)]
            kinds = ("go", "leave", "leave")
            faults += [Fault(round(now + spread_s * rng.random(), 4), rng.choice(kinds), spec.name) for spec in going]
        now = max(0.0, now + rng.choice((-1.0, 0.0, 0.5, 3.0, 8.0)))
    return Plan(
        seed=seed,
        specs=tuple(specs),
        faults=tuple(sorted(faults, key=lambda one: one.at)),
        endpoints=(),
        external=True,
        max_nodes=rng.choice((most, most + 1, 2 * most, 40)),
        ttl_s=rng.choice((2.0, 5.0)),
        quiet_s=rng.choice((0.5, 2.0)),
        max_restarts=3,
        delay_s=rng.choice((0.0005, 0.001, 0.01, 0.03)),
        drift=rng.choice((0.0, 0.01)),
        coupled=False,
        is_mild=False,
    )


def _fault(rng, kind, at, specs, fresh):
    who = rng.choice(("leader", rng.choice(fresh).name, rng.choice(specs).name))
    match kind:
        case "block":
            one = rng.choice(specs)
            others = [spec for spec in specs if spec is not one and rng.random() < 0.7]
            pairs = tuple(pair for other in others for pair in ((one.host, other.host), (other.host, one.host)))
            return Fault(at, kind, "", rng.choice((0.5, 2.0, 5.0, 12.0)), pairs)
        case "split":
            hosts = (rng.choice(specs).host, *(("store",) if rng.random() < 0.4 else ()))
            return Fault(at, kind, "", rng.choice((1.0, 4.0, 12.0)), hosts)
        case "outage":
            return Fault(at, kind, "", rng.choice((0.5, 1.5, 3.0, 10.0)), rng.random() < 0.5)
        case "forget":
            return Fault(at, kind, "", rng.choice((1.0, 4.0, 10.0)))
        case "freeze":
            return Fault(at, kind, who, rng.choice((1.0, 4.0, 8.0)), rng.random() < 0.5)
        case "host":
            return Fault(at, kind, who, rng.choice((1.0, 5.0, FOR_EVER_S)))
        case "ambush":
            word = rng.choice(("Place", "Placed", "Start", "WriteKey", "Stop", "Redirect", "Leave", "Departing"))
            deed = rng.choice(("kill", "snap", "leave", "isolate", "vanish"))
            return Fault(at, kind, "", 0.0, (word, rng.choice((1, 1, 2, 3)), deed))
    return Fault(at, kind, who, rng.choice((0.3, 1.0, 2.5, 4.5)))
