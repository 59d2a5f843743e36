"""Samples become a median per size. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from planaria.base.value import Value, replace
from planaria.kube.evidence import FIGURE_LIMIT, RATES, STEP_LIMIT
from planaria.kube.scaling_model import Batch, Evidence, Figure, Policy, Sample, Source, Timed, Wants

HOLD_S = 60.0  # the longest that samples wait for others while a size is measured
REST_S = 300.0  # at rest: each write of a status is a write of etcd, for every job there is
MOST_HELD = 32
HUSH_S = 900.0  # agents that push nothing for so long, while lines tell of steps, do not push any more
SURE_LINES = 5  # one step may take longer than that: its push comes with its line


class Pushes(Value):
    """What is known of the pushes of a job's agents. `now` is seconds of one clock of the operator."""

    at: float | None = None  # of the last; None: there was none yet
    lines: int = 0  # steps that logs told of since they stopped

    def go_on(self, now: float) -> bool:
        """Tell whether agents push, so that nobody needs the logs."""
        return self.at is not None and now - self.at < HUSH_S

    def heard(self, found: Sequence[Sample], now: float) -> tuple[Pushes, tuple[Sample, ...]]:
        """Return those of the steps from logs that count: where agents have pushed, once it is sure that they do not now."""
        if self.at is None:
            return self, tuple(found)
        if self.go_on(now):
            return self, ()
        after = replace(self, lines=self.lines + len(found))
        is_sure = after.lines >= SURE_LINES
        return after, tuple(replace(sample, is_only=True) for sample in found) if is_sure else ()


def due_in(wants: Wants, held: int, held_s: float) -> float | None:
    """Return after how many seconds samples are worth a write of the status; None while there are none.

    `held` of them wait, the first of them for `held_s`. Those that wait are lost with an operator that is killed, which costs
    as many steps of training and nothing else.
    """
    if not held:
        return None
    if not wants.is_measuring:
        return max(0.0, REST_S - held_s)
    return 0.0 if held >= min(wants.samples, MOST_HELD) else max(0.0, HOLD_S - held_s)


def take(policy: Policy, evidence: Evidence, samples: Sequence[Sample]) -> Evidence:
    """Return the evidence with new samples in its window, those of other sizes and of the warm-up left out."""
    if evidence.batch != policy.batch:
        evidence = _emptied(policy, replace(evidence, batch=policy.batch))
    for sample in samples:
        evidence = _taken(policy, evidence, sample)
    return evidence


def _taken(policy: Policy, evidence: Evidence, sample: Sample) -> Evidence:
    rate = throughput(policy.batch, sample)
    source: Source = "pushed" if sample.rate is not None else "lines"
    if rate is None or (source == "lines" and evidence.source == "pushed" and not sample.is_only):
        return evidence  # agents know better than lines
    if source != evidence.source:
        evidence = _emptied(policy, replace(evidence, source=source))
    if sample.size != evidence.elastic.current:  # late, or a Worker is away; what comes next is warm-up again
        return replace(evidence, skip=policy.warm_up)
    mark = (_whole(sample.epoch), _whole(sample.step))
    if mark[1] is not None and mark in evidence.skipped:
        return evidence
    if evidence.skip:
        return replace(evidence, skip=evidence.skip - 1, skipped=(*evidence.skipped, mark)[-policy.warm_up :])
    return replace(evidence, window=_merged(evidence.window, (*mark, rate))[-policy.window :])


def _whole(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= STEP_LIMIT else None


def _emptied(policy: Policy, evidence: Evidence) -> Evidence:
    return replace(evidence, figures=(), window=(), skip=policy.warm_up, skipped=())


def _merged(window: tuple[Timed, ...], new: Timed) -> tuple[Timed, ...]:
    """Return the window with one more step in it, or with the slowest of two samples of one step."""
    for place, old in enumerate(window):
        if new[1] is not None and old[:2] == new[:2]:
            return (*window[:place], (*new[:2], min(old[2], new[2])), *window[place + 1 :])
    return (*window, new)


def throughput(batch: Batch, sample: Sample) -> float | None:
    """Return how much the whole job did per second; None for a sample that says nothing.

    A step of a job whose Workers each have a batch of their own is worth as many batches as there are Workers.
    """
    if sample.rate is not None:
        rate = sample.rate
    elif sample.seconds is None or not sample.seconds > 0:
        return None
    else:
        rate = (sample.size if batch == "worker" else 1) / sample.seconds
    return rate if RATES[0] <= rate <= RATES[1] else None


def median(window: Sequence[Timed]) -> float:
    """Return the median throughput of a window that is not empty."""
    rates = sorted(rate for _, _, rate in window)
    middle = len(rates) // 2
    return rates[middle] if len(rates) % 2 else (rates[middle - 1] + rates[middle]) / 2


def figure_of(evidence: Evidence, size: int) -> Figure | None:
    """Return what was measured at a size."""
    return next((figure for figure in evidence.figures if figure.size == size), None)


def with_figure(evidence: Evidence, new: Figure, *, is_return: bool) -> Evidence:
    """Return the evidence with a new figure; the oldest goes where there are too many.

    On a return to a size the cluster may have changed since its old figure. Figures older than that one never saw the
    change, so they are moved by the same factor: a job that became slow everywhere keeps its efficiency.
    """
    old = figure_of(evidence, new.size)
    others = [figure for figure in evidence.figures if figure.size != new.size]
    if old is not None and is_return:
        factor = new.rate / old.rate
        others = [_moved(figure, factor) if figure.at_s <= old.at_s else figure for figure in others]
    kept = sorted(others, key=lambda figure: figure.at_s)[-(FIGURE_LIMIT - 1) :]
    return replace(evidence, figures=tuple(sorted((*kept, new), key=lambda figure: figure.size)))


def _moved(figure: Figure, factor: float) -> Figure:
    rate = figure.rate * factor
    return replace(figure, rate=rate) if RATES[0] <= rate <= RATES[1] else figure
