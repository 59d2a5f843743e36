"""A cluster that knows which of its pods are gone, and writes it into the store, as the operator does in Kubernetes."""

import random

from clustersim.checks import Violation
from clustersim.cluster import FOR_EVER_S, Cluster
from clustersim.plan import Fault, Plan, Spec
from planaria.contract import burial
from planaria.rendezvous.records import key_of
from planaria.store.model import Put

LOOK_S = 0.5
NOTICED_S = 12.0
"""How long it may take until a pod that is gone is noticed; a real cluster takes minutes."""


class Burying(Cluster):
    """Names every node in the note, some time after its agent and its workers are gone; never one that lives."""

    def __init__(self, plan, watcher=None):
        super().__init__(plan, watcher)
        self.luck = self.rng_for("graves")
        self.seen = set()
        self.buried = set()
        self.after(LOOK_S, self._look)

    def is_gone(self, agent):
        """Tell whether nothing of a node can ever do anything again."""
        return not agent.is_alive and (agent.life is None or not agent.life.is_alive)

    def _look(self):
        for agent in self.agents:
            if agent.name not in self.seen and self.is_gone(agent):
                self.seen.add(agent.name)
                self.after(self.luck.random() * NOTICED_S, self._bury, agent.name)
        self.after(LOOK_S, self._look)

    def _bury(self, name):
        if self.store.away:
            self.after(LOOK_S, self._bury, name)
            return
        self.buried.add(name)
        self.store.perform(Put(key_of("run", burial.KEY), burial.write(self.buried).encode(), None))

    def must_settle(self):
        """Whoever is not here is buried, or will be: nobody has to be waited for."""
        return len(self.living()) >= self.plan.min_nodes


class Hasty(Burying):
    """A bug: calls a node gone as soon as nobody hears of it."""

    def is_gone(self, agent):
        """Tell whether the store cannot reach a node."""
        return super().is_gone(agent) or not self.store.reaches(agent.host)


def waves(seed):
    """Draw nodes that are lost together, for good or only from sight, and others that come in their stead under their names.

    Who comes has another address, as a pod has. Half of the losses or more are of a majority.
    """
    rng = random.Random(f"waves {seed}")
    specs, faults, now = [], [], 0.0
    for wave in range(rng.choice((2, 3))):
        fresh = [_spec(rng, wave, letter, now) for letter in "abcd"[: rng.randint(1, 3)]]
        specs += fresh
        now += rng.uniform(7.0, 12.0)
        lost = rng.sample(fresh, rng.randint((len(fresh) + 1) // 2, len(fresh)))
        cut = [spec for spec in lost if rng.random() < 0.5]
        lasting = round(rng.uniform(20.0, 60.0), 3)
        if cut:
            faults.append(Fault(round(now, 3), "split", "", lasting, tuple(spec.host for spec in cut)))
        faults += [
            Fault(round(now + rng.random(), 3), "host", spec.name, FOR_EVER_S) for spec in lost if spec not in cut
        ]
        now += rng.uniform(0.5, 10.0)
    return Plan(
        seed=seed,
        specs=tuple(specs),
        faults=tuple(faults),
        endpoints=(),
        external=True,
        min_nodes=1,
        max_nodes=rng.choice((1, 2, 3, 9)),
        ttl_s=rng.choice((2.0, 5.0)),
        max_restarts=3,
    )


def _spec(rng, wave, letter, now):
    return Spec(f"{letter}-{wave}{rng.getrandbits(28):07x}", f"{letter}{wave}", 29400, round(now + rng.random(), 3))


def run(plan, kind=Burying):
    """Run a plan in such a cluster; return the cluster, and the violation or None."""
    cluster = kind(plan)
    try:
        cluster.run()
    except Violation as violation:
        return cluster, violation
    return cluster, None
