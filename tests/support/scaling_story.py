"""One job under the scaling policy, told in steps: what is seen, what is decided."""

from __future__ import annotations

import json
from typing import Any

from planaria.base.value import replace
from planaria.kube import evidence, scaling
from planaria.kube.scaling_model import Policy, Sample, Situation, Verdict

BEGIN_S = 1_700_000_000.0


class Story:
    """What is not said is as it should be: all Workers of the target are there, a second has passed."""

    def __init__(self, start: int = 1, *, least: int = 1, most: int = 8, **policy: Any) -> None:
        self.policy = Policy(min=least, max=most, **{"cooldown_s": 0.0, **policy})
        self.start = start
        self.now_s = BEGIN_S
        self.kept: object = None
        self.step = 0
        self.sizes: list[int] = []
        self.see(after_s=0.0)

    def see(self, *, after_s: float = 1.0, **seen: Any) -> Verdict:
        """Let some time pass and decide; what is kept goes through JSON, as between two operators."""
        self.now_s += after_s
        kept = evidence.decode(self.kept)
        target = self.sizes[-1] if self.sizes else self.start
        situation = Situation(**{"start": self.start, "placed": target, "running": target, **seen})
        self.verdict = scaling.scale(self.policy, kept, situation, self.now_s)
        self.kept = json.loads(json.dumps(evidence.encode(self.verdict.evidence)))
        if self.verdict.target != target or not self.sizes:
            self.sizes.append(self.verdict.target)
        return self.verdict

    def samples(self, count: int, rate: float, size: int | None = None) -> tuple[Sample, ...]:
        """Return samples of new steps of a job with that throughput, in batches of all Workers per second."""
        size = size or self.verdict.target
        steps = range(self.step + 1, self.step + count + 1)
        self.step += count
        work = size if self.policy.batch == "worker" else 1
        return tuple(Sample(size, seconds=work / rate, step=step, epoch=0) for step in steps)

    def measure(self, rate: float, **seen: Any) -> Verdict:
        """Let the warm-up and a whole window of samples come."""
        return self.see(samples=self.samples(self.policy.warm_up + self.policy.window, rate), **seen)

    def crowd(self, placed: int, **seen: Any) -> Verdict:
        """Let the scheduler refuse pods for as long as the grace, and then once more."""
        self.see(placed=placed, running=placed, unschedulable_s=1.0, **seen)
        waited_s = self.policy.pending_grace_s + 1.0
        return self.see(placed=placed, running=placed, unschedulable_s=waited_s, after_s=waited_s)

    def change(self, **policy: Any) -> None:
        """Let the owner change the policy."""
        self.policy = replace(self.policy, **policy)

    def block(self) -> dict[str, object]:
        """Return what people read, without the time."""
        shown = self.verdict.elastic
        return {
            "elasticCondition": shown.condition,
            "continue": shown.goes_on,
            "currentReplicas": shown.current,
            "lastReplicas": shown.last,
            "message": shown.message,
        }


def block(condition: str, goes_on: bool, current: int, last: int | None, message: str) -> dict[str, object]:
    return {
        "elasticCondition": condition,
        "continue": goes_on,
        "currentReplicas": current,
        "lastReplicas": last,
        "message": message,
    }
