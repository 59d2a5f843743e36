from __future__ import annotations

from planaria.kube import evidence
from planaria.kube.measuring import HOLD_S, MOST_HELD, REST_S, due_in
from planaria.kube.scaling import scale
from planaria.kube.scaling_model import Policy, Sample, Situation, Wants


def test_samples_are_due_when_something_can_be_decided_from_them_or_after_a_while() -> None:
    assert due_in(Wants(5), 0, 1000.0) is None
    assert due_in(Wants(5), 4, 20.0) == HOLD_S - 20.0
    assert due_in(Wants(5), 5, 20.0) == 0.0
    assert due_in(Wants(5), 1, HOLD_S) == 0.0
    assert due_in(Wants(200), MOST_HELD, 0.0) == 0.0, "more than are kept are not waited for"


def test_at_rest_samples_only_keep_a_figure_fresh() -> None:
    resting = Wants(5, is_measuring=False)
    assert due_in(resting, 30, 10.0) == REST_S - 10.0
    assert due_in(resting, 1, REST_S) == 0.0


def _writes(policy: Policy, speed: float) -> int:
    """Push a sample every 10 s for an hour, handed over when they are due; return how often the status changed."""
    now_s, held, since_s, writes, step = 1000.0, [], 0.0, 0, 0
    verdict = scale(policy, None, Situation(start=1, placed=1, running=1), now_s)
    before = evidence.encode(verdict.evidence)
    for _ in range(360):
        now_s, step = now_s + 10.0, step + 1
        since_s = since_s if held else now_s
        held.append(Sample(verdict.target, rate=speed, step=step))
        given = tuple(held) if due_in(verdict.wants, len(held), now_s - since_s) == 0.0 else ()
        held = [] if given else held
        size = verdict.target
        verdict = scale(policy, verdict.evidence, Situation(start=1, placed=size, running=size, samples=given), now_s)
        writes += (after := evidence.encode(verdict.evidence)) != before
        before = after
    return writes


def test_a_job_at_rest_is_written_a_dozen_times_an_hour_and_not_for_every_sample() -> None:
    assert _writes(Policy(min=1, max=1), 100.0) <= 3600 / REST_S + 3
    assert _writes(Policy(min=1, max=3), 100.0) <= 3600 / REST_S + 12, "it found no gain, and rests"
