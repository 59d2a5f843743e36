"""A cluster in virtual time that one elastic job runs on, under the scaling policy: pods, a scheduler, training, an operator.

All comes from one seed. The operator is replaced every few calls, by one that knows nothing but the JSON in the status, and may
be away for a while, with the samples of that while lost. Samples are noisy, late, lost, or come twice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from planaria.base.value import replace
from planaria.kube import capacity, evidence, scaling
from planaria.kube.scaling_model import Corrupt, Evidence, Policy, Sample, Situation, Verdict
from planaria.kube.sizes import sizes_of

TICK_S = 30.0
JOIN_S = 20.0  # from a pod that runs to a world with it; until then the one before goes on
STEPS_PER_TICK = 5  # that are printed
REPLACED = 0.2  # of all calls are made by another operator
SLOW_STEPS = 2  # after a world has formed

Curve = Callable[[int, float], float]
"""The throughput of a size at a time."""


class Pod:
    """One Worker."""

    def __init__(self, now_s: float, pull_s: float) -> None:
        self.pull_s = pull_s
        self.asked_s = now_s
        self.placed_s: float | None = None

    def is_running(self, now_s: float) -> bool:
        return self.placed_s is not None and now_s >= self.placed_s + self.pull_s


class Weather:
    """What may go wrong."""

    def __init__(
        self, *, noise: float = 0.0, lost: float = 0.0, late: float = 0.0, twice: float = 0.0, away: float = 0.0
    ) -> None:
        self.noise, self.lost, self.late, self.twice, self.away = noise, lost, late, twice, away


class Sim:
    """One job from its beginning; `run_until` lets time pass and checks what has to hold at every moment."""

    def __init__(
        self, seed: int, policy: Policy, start: int, curve: Curve, room: Callable[[float], int], weather: Weather
    ) -> None:
        self.rng = random.Random(seed)
        self.policy, self.start, self.curve, self.room, self.weather = policy, start, curve, room, weather
        self.now_s = 1_700_000_000.0
        self.begin_s = self.now_s
        self.pods: list[Pod] = []
        self.verdict: Verdict | None = None
        self.changes: list[tuple[float, int]] = []
        self.reasons: list[str] = []
        self.heard: list[Sample] = []
        self.delayed: list[Sample] = []
        self.watching_s = self.now_s
        self.away_until = 0.0
        self.world = 0
        self.running = 0
        self.joined_s = self.now_s
        self.step = 0
        self.fresh = 0
        self.is_started = False
        self.free: Mapping[str, float] | None = None  # what the operator remembers of it

    @property
    def age_s(self) -> float:
        return self.now_s - self.begin_s

    @property
    def size(self) -> int:
        assert self.verdict is not None
        return self.verdict.target

    def run_until(self, age_s: float) -> Sim:
        while self.age_s < age_s:
            self._schedule()
            self._train()
            self._operate()
            self.now_s += TICK_S
        return self

    def changes_after(self, age_s: float) -> int:
        return sum(at_s > age_s for at_s, _ in self.changes)

    def _schedule(self) -> None:
        room = self.room(self.age_s)
        placed = [pod for pod in self.pods if pod.placed_s is not None]
        for pod in placed[room:]:  # a node is gone
            pod.placed_s, pod.asked_s = None, self.now_s
        free = room - len(placed)
        for pod in self.pods:
            if pod.placed_s is None and free > 0:
                pod.placed_s, free = self.now_s, free - 1

    def _train(self) -> None:
        running = sum(pod.is_running(self.now_s) for pod in self.pods)
        if running != self.running:
            self.running, self.joined_s = running, self.now_s + JOIN_S
        if running < self.world:  # the others cannot go on without it
            self.world = 0
        if self.now_s >= self.joined_s and running != self.world:
            self.world, self.fresh = running, SLOW_STEPS
        if self.world < self.policy.min:
            return
        self.is_started = True
        for _ in range(STEPS_PER_TICK):
            self._print()

    def _print(self) -> None:
        self.step += 50
        rate = self.curve(self.world, self.age_s) * (1 + self.rng.uniform(-1, 1) * self.weather.noise)
        if self.fresh:
            rate, self.fresh = rate / 10, self.fresh - 1
        work = self.world if self.policy.batch == "worker" else 1
        sample = Sample(self.world, seconds=work / rate, step=self.step, epoch=3)
        if self.rng.random() < self.weather.lost:
            return
        late = self.rng.random() < self.weather.late
        (self.delayed if late else self.heard).append(sample)
        if self.rng.random() < self.weather.twice:
            self.heard.append(sample)

    def _operate(self) -> None:
        if self.now_s < self.away_until:
            self.heard.clear()
            self.watching_s = self.now_s
            return
        if self.rng.random() < self.weather.away:
            self.away_until = self.now_s + self.rng.choice((0.0, 30.0, 120.0))
            self.watching_s = self.now_s
        samples, self.heard, self.delayed = (*self.heard,), self.delayed, []
        self._decide(self._situation(samples))
        self._apply()

    def _has_room(self) -> bool:
        """Tell whether capacity appeared, as the operator finds it out: from nodes and pods, its own among them."""
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"gpu": self.room(self.age_s)}}
        node = {"metadata": {"name": "n1"}, "status": ready}
        owner = {"uid": "job", "controller": True}
        pod = {
            "metadata": {"ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {"gpu": 1}}}]},
        }
        placed = sum(one.placed_s is not None for one in self.pods)
        before, now = self.free, capacity.left([node], [pod] * placed).beside("job")
        self.free = capacity.kept(before, now, is_refused=placed < len(self.pods))
        return capacity.grew(before, now)

    def _situation(self, samples: tuple[Sample, ...]) -> Situation:
        waits = [self.now_s - pod.asked_s for pod in self.pods if pod.placed_s is None]
        return Situation(
            start=self.start,
            placed=sum(pod.placed_s is not None for pod in self.pods),
            running=sum(pod.is_running(self.now_s) for pod in self.pods),
            is_started=self.is_started,
            unschedulable_s=min(max(waits), self.now_s - self.watching_s) if waits else None,
            room=self._has_room(),
            samples=samples,
            watched_s=self.now_s - self.watching_s,
        )

    def _decide(self, situation: Situation) -> None:
        before = self.verdict
        kept = before.evidence if before else None
        if kept and self.rng.random() < REPLACED:
            kept = self._from_json(kept)
        self.verdict = scaling.scale(self.policy, kept, situation, self.now_s)
        self._check(before)
        if self.rng.random() < REPLACED:  # it dies before it acts; the next one sees the same pods
            again = replace(situation, samples=())
            written = self._from_json(self.verdict.evidence)
            assert scaling.scale(self.policy, written, again, self.now_s).target == self.verdict.target
        if before is None or before.target != self.verdict.target:
            self.changes.append((self.age_s, self.verdict.target))
        if not self.reasons or self.reasons[-1] != self.verdict.reason:
            self.reasons.append(self.verdict.reason)

    @staticmethod
    def _from_json(kept: Evidence) -> Evidence:
        read = evidence.decode(json.loads(json.dumps(evidence.encode(kept))))
        assert read == kept
        return kept if read is None or isinstance(read, Corrupt) else read

    def _check(self, before: Verdict | None) -> None:
        verdict = self.verdict
        assert verdict is not None
        block = verdict.elastic
        assert verdict.target in sizes_of(self.policy)
        assert verdict.target == block.current
        assert block.goes_on or block.message, "a search that stopped says why"
        assert block.goes_on == (block.condition in ("Start", "Continue"))
        assert verdict.wake_after_s is None or verdict.wake_after_s > 0
        assert verdict.wants.samples >= 1
        if before and before.target != verdict.target:
            assert block.since_s == self.now_s
            assert block.last == before.target
            if block.message.startswith("There exists"):
                assert verdict.target < before.target

    def _apply(self) -> None:
        del self.pods[self.size :]
        while len(self.pods) < self.size:
            self.pods.append(Pod(self.now_s, self.rng.choice((5.0, 20.0, 90.0))))


def amdahl(serial: float, one: float = 100.0) -> Curve:
    """Return the curve of a job of which a share cannot be split."""
    return lambda size, _: one / (serial + (1 - serial) / size)


def flat(one: float = 100.0) -> Curve:
    """Return the curve of a job that no further Worker helps."""
    return lambda _size, _age_s: one


def peaked(best: int, one: float = 100.0) -> Curve:
    """Return the curve of a job that grows with its Workers up to a size and falls behind it."""
    return lambda size, _: one * (size if size <= best else best * best / size)


def policy_for_sim(**fields: Any) -> Policy:
    """Return a policy with short pauses, so that an hour holds many."""
    short = {
        "trial_timeout_s": 300.0,
        "pending_grace_s": 30.0,
        "cooldown_s": 30.0,
        "retry_s": 60.0,
        "max_retry_s": 600.0,
    }
    return Policy(**{"min": 1, "max": 8, **short, **fields})
