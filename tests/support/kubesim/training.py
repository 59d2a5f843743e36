"""A run as an operator sees it: it goes on while enough members are there, is as fast as their number makes it, and ends.

Its rounds are in the ConfigMap of the store. Who went with its machine may be alive for all that the others know: without half
of the round they hold, until the note in the store says that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesim.nodes import Container, Nodes
from kubesim.server import Json
from kubesim.timeline import Timeline
from planaria.contract.burial import digits_of, life, pod_of
from planaria.kube import burial
from planaria.kube.names import JOB_KIND, Names
from planaria.kube.scaling_model import Sample
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.model import Deputy, Standing
from planaria.rendezvous.records import key_of
from planaria.store.kubernetes_keys import read_keys, write_keys
from planaria.store.model import Put

_TICK_S = 1.0
_SAMPLE_TICKS = 2


class Run:
    """The training of one elastic job, called `job`."""

    def __init__(
        self, nodes: Nodes, time: Timeline, bounds: tuple[int, int], work: float, rate: Callable[[int], float]
    ) -> None:
        self.nodes, self.time, self.bounds, self.work, self.rate = nodes, time, bounds, work, rate
        self.job = ""
        self.done, self.ticks, self.is_finished = 0.0, 0, False
        self.is_holding = False
        self.members: tuple[str, ...] = ()  # uids of the pods of the newest round
        self.round = -1
        self.sizes: set[int] = set()
        self.samples: list[Sample] = []
        time.after(_TICK_S, self._tick)

    def _tick(self) -> None:
        here = [
            container for container in self.nodes.running.values() if container.is_worker and not container.is_drained
        ]
        size = min(len(here), self.bounds[1])
        if self.is_finished:  # who starts now finds a run that is over
            for container in here:
                self._end(container)
        elif not self._holds() and size >= self.bounds[0]:
            self._begin(here[:size])
            self.ticks += 1
            self.sizes.add(size)
            self.done += self.rate(size) * _TICK_S
            if self.ticks % _SAMPLE_TICKS == 0:
                self.samples.append(Sample(size, seconds=size / self.rate(size), step=self.ticks))
            if self.done >= self.work:
                self.is_finished = True
        self.time.after(_TICK_S, self._tick)

    def _holds(self) -> bool:
        """Tell whether those who fell silent are too many to go on without them, and nobody says that they are gone."""
        found = self.nodes.server.get("ConfigMap", Names(self.job).run)
        seen = burial.round_seen(found, self._run_id()) if found is not None else burial.RoundSeen()
        buried = {pod_of(node) for node in seen.buried}
        alive = [uid for uid in self.nodes.running if digits_of(uid) in buried]
        assert not alive, f"{alive} are buried and run"
        silent = [uid for uid in self.members if uid in self.nodes.lost and digits_of(uid) not in buried]
        present = sum(uid in self.nodes.running for uid in self.members)
        self.is_holding = len(silent) > present or (bool(silent) and present == 0)
        return self.is_holding

    def _begin(self, members: list[Container]) -> None:
        """Write a round down if it is another than the last."""
        uids = tuple(sorted(container.uid for container in members))
        if uids == self.members:
            return
        self.members, self.round = uids, self.round + 1
        named = [Deputy(f"{one.name}-{life(one.uid, bytes(4))}", "10.0.0.1:1") for one in members]
        text = round_record(Standing("epoch", 1, self.round, len(named), None, 0, tuple(named), self.round + 1))
        key = key_of(self._run_id(), "round")

        def write(found: Json) -> None:
            keys = read_keys(found)
            keys.perform(Put(key, text.encode(), None))
            keys.trim()
            found.update(write_keys(found, keys))

        self.nodes.server.edit("ConfigMap", Names(self.job).run, write)

    def _run_id(self) -> str:
        job = self.nodes.server.get(JOB_KIND, self.job)
        return "" if job is None else str(job["metadata"]["uid"])

    def _end(self, container: object) -> None:
        self.time.after(self.nodes.rng.uniform(0.0, 0.9), lambda: self.nodes.end(container, 0))  # type: ignore[arg-type]  a Container
