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
        """Tell whether nothing of a node, or of its pod, can ever do anything again."""
        pod = burial.pod_of(agent.name)
        lives = [one for one in self.agents if one is agent or (pod and burial.pod_of(one.name) == pod)]
        to_come = [spec for spec in self.plan.specs if spec.at > self.now and pod and burial.pod_of(spec.name) == pod]
        return not to_come and not any(one.is_alive or (one.life and one.life.is_alive) for one in lives)

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

    Who comes has another address, as a pod has, and some are in the same pod as one that is lost for good: its machine was
    started anew. Half of each wave or more is lost.
    """
    rng = random.Random(f"waves {seed}")
    specs, faults, now, pods = [], [], 0.0, []
    for wave in range(rng.choice((2, 3))):
        again = [pod for pod in pods if rng.random() < 0.4]
        pods = [*again, *(f"{letter}-{rng.getrandbits(32):08x}" for letter in "abc"[: rng.randint(not again, 3)])]
        fresh = [_spec(rng, wave, pod, now) for pod in pods]
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
        pods = [spec.name.partition(".")[0] for spec in lost if spec not in cut]
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


def _spec(rng, wave, pod, now):
    # A machine takes its time to be back, and then its pods have other addresses.
    return Spec(f"{pod}.{rng.getrandbits(32):08x}", f"{pod}-{wave}", 29400, round(now + 1.0 + rng.random(), 3))


def run(plan, kind=Burying):
    """Run a plan in such a cluster; return the cluster, and the violation or None."""
    cluster = kind(plan)
    try:
        cluster.run()
    except Violation as violation:
        return cluster, violation
    return cluster, None
