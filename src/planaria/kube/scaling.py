"""How many Workers a job should have: `scale`, a pure function. Every rule is a row of docs/scaling.md, every row a test.

For callers:

    kept = evidence.decode(status.get("scaling"))                       # Evidence, Corrupt, or None for a new job
    policy = scaling_fields.policy_of(elastic_policy, worker_replicas)  # after scaling_fields.problems_of found nothing
    verdict = scale(policy, kept, Situation(...), now_s)                # now_s: seconds of the wall clock
    status["scaling"] = evidence.encode(verdict.evidence)
    # verdict.target Worker pods should exist; verdict.elastic is status.elasticScaling.Worker

Write evidence and block in one update of the status before pods are made or removed: then an operator that dies at any moment
leaves a state from which the next one decides the same. Call it when something changed, when samples came (as many as
`verdict.wants` says, or what there is after some time: `measuring.due_in`), and after `verdict.wake_after_s`. A block that
differs from the one before is worth an event, which `status.events` makes.
"""

from __future__ import annotations

from bisect import bisect_right

from planaria.base.value import replace
from planaria.kube.evidence import TEXT_LIMIT
from planaria.kube.measuring import figure_of, median, take, with_figure
from planaria.kube.moves import BEST, CONTINUES, FULL, NO_ROOM, PENDING, RETURN, moved, refused, stand, told
from planaria.kube.scaling_model import (
    Corrupt,
    ElasticScaling,
    Evidence,
    Figure,
    Policy,
    Situation,
    Verdict,
    Wants,
)
from planaria.kube.sizes import above, between, fit, sizes_of

ROOM_SHARE = 0.1  # of a back-off, when capacity appeared: at once would let a busy cluster drive the job up and down
HOLD_SHARE = (
    0.5  # of the gain that a size was taken for has to stay: less than all of it, so that noise does not move a job
)
INCONCLUSIVE = ("PodsNotRunning", "MetricTrouble", "NoSamples", "NotEnoughSamples")
GAIN_RETRIES = 24  # a size that did not pay is tried again after max_retry_s, doubled each time, up to so many of it
_LEAST_WAKE_S = 0.01
_ROUNDING = 1e-9  # 11 / 10 - 1 is more than 0.1


def scale(policy: Policy, evidence: Evidence | Corrupt | None, situation: Situation, now_s: float) -> Verdict:
    """Return the size a job should have now, and what to remember of it."""
    kept = _opened(policy, evidence, situation, now_s)
    kept = _seen(policy, kept, situation, now_s)
    decided = _made_room(policy, kept, situation, now_s)
    if decided is None:
        decided = kept
        if situation.is_started:
            decided = _judged(policy, decided, now_s)
            decided = _missed(policy, decided, situation, now_s)
            decided = _tried(policy, decided, situation, now_s)
    missing = max(1, decided.skip + policy.window - len(decided.window))
    wants = Wants(missing, _is_measuring(policy, decided, now_s))
    wake = _wake(policy, decided, situation, now_s)
    return Verdict(decided, wake, wants)


# The beginning of a search.


def _opened(policy: Policy, evidence: Evidence | Corrupt | None, situation: Situation, now_s: float) -> Evidence:
    """Return the evidence to go on with: what was kept, or that of a search that begins."""
    sizes = sizes_of(policy)
    if isinstance(evidence, Corrupt):
        # What runs is kept running: a search that begins again is no reason to stop Workers.
        runs = situation.is_started and situation.placed >= sizes[0]
        size = fit(sizes, situation.placed if runs else situation.start)
        why = f"What was measured cannot be read ({evidence.why}), the search starts again"
        return _begun(policy, situation, now_s, size, ("EvidenceLost", why))
    if evidence is None:
        return _begun(policy, situation, now_s, fit(sizes, situation.start), ("Started", ""))
    if evidence.start != situation.start:
        why = f"Worker.replicas is {situation.start} now, the search starts again"
        return _begun(policy, situation, now_s, fit(sizes, situation.start), ("StartChanged", why))
    if situation.is_resumed:
        evidence = _resumed(policy, evidence, now_s)
    return _within(policy, _on_this_clock(evidence, now_s), now_s)


def _resumed(policy: Policy, evidence: Evidence, now_s: float) -> Evidence:
    """Begin the measurement of this size anew: while the job was suspended nobody could measure it."""
    return replace(evidence, changed_s=now_s, ready_s=None, window=(), skip=policy.warm_up, skipped=())


def _begun(policy: Policy, situation: Situation, now_s: float, size: int, why: tuple[str, str]) -> Evidence:
    reason, message = why
    return Evidence(
        start=situation.start,
        good=size,
        elastic=ElasticScaling("Start", goes_on=True, current=size, message=message, since_s=now_s),
        reason=reason,
        changed_s=now_s,
        batch=policy.batch,
        skip=policy.warm_up,
    )


def _on_this_clock(evidence: Evidence, now_s: float) -> Evidence:
    """Bring times that a clock set back has put into the future to now: waiting begins again, and ends."""
    if max(evidence.changed_s, evidence.ready_s or 0.0, evidence.refused_s) <= now_s:
        return evidence
    return replace(
        evidence,
        changed_s=min(evidence.changed_s, now_s),
        ready_s=None if evidence.ready_s is None else min(evidence.ready_s, now_s),
        refused_s=min(evidence.refused_s, now_s),
    )


def _within(policy: Policy, evidence: Evidence, now_s: float) -> Evidence:
    """Bring the sizes into the bounds, which the owner may have changed."""
    sizes = sizes_of(policy)
    current = fit(sizes, evidence.elastic.current)
    if current != evidence.elastic.current:
        return replace(moved(policy, evidence, now_s, current, ("Continue", CONTINUES, "PolicyChanged")), good=current)
    good = min(fit(sizes, evidence.good), current)
    return evidence if good == evidence.good else replace(evidence, good=good)


def _seen(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> Evidence:
    """Note what is new: all Workers run, there is room, samples came."""
    if evidence.ready_s is None and situation.is_started and situation.running >= evidence.elastic.current:
        evidence = replace(evidence, ready_s=now_s)
    if situation.room and evidence.cause == "room" and not evidence.has_room:
        evidence = replace(evidence, has_room=True)
    return take(policy, evidence, situation.samples)


# Pods that no node has room for.


def _made_room(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> Evidence | None:
    """Return to a size that fits when scheduler or server have refused a pod for long enough; None: nothing to do.

    Always to a smaller size than this one, whatever the size before was.
    """
    current, sizes = evidence.elastic.current, sizes_of(policy)
    lack_s = _lack_s(policy, evidence, situation, now_s)
    if lack_s is None:
        if evidence.reason != "NoRoom":
            return None
        return stand(evidence, now_s, "Placed")
    if lack_s < policy.pending_grace_s:
        return None
    if current == sizes[0]:
        block = replace(evidence.elastic, condition="Stop", goes_on=False, message=NO_ROOM)
        return told(evidence, now_s, block, "NoRoom")
    smaller = fit(sizes, min(evidence.good, situation.placed))
    returned = refused(policy, evidence, now_s, smaller, ("room", "Stop", *_why_smaller(situation)))
    # More than this size may have fitted: the one that did not is the next above what has a node.
    return replace(returned, refused=sizes[bisect_right(sizes, max(smaller, situation.placed))])


def _lack_s(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> float | None:
    """Return for how long pods of this size have been refused; None while none is."""
    waits = [situation.unschedulable_s]
    if situation.placed >= sizes_of(policy)[0]:  # else the server would not have fewer either
        waits.append(situation.refused_s)
    found = [wait for wait in waits if wait is not None]
    if not found or situation.placed >= evidence.elastic.current:
        return None
    # Pods of a size that was given up may still be there for a moment; their wait is not this size's.
    return min(max(found), now_s - evidence.changed_s)


def _why_smaller(situation: Situation) -> tuple[str, str]:
    if situation.unschedulable_s is not None:
        return PENDING, "PendingPods"
    return f"{situation.refusal[: TEXT_LIMIT - len(RETURN)]}{RETURN}", "PodsRefused"


# What was measured.


def _judged(policy: Policy, evidence: Evidence, now_s: float) -> Evidence:
    """Make a figure of a full window, and take or leave the size by it."""
    if len(evidence.window) < policy.window:
        return evidence
    current = evidence.elastic.current
    new = Figure(current, median(evidence.window), now_s)
    old = figure_of(evidence, current)
    on_trial = evidence.good < current
    is_return = not on_trial and old is not None and old.at_s <= evidence.changed_s
    measured = replace(with_figure(evidence, new, is_return=is_return), window=())
    if on_trial:
        return _trial_judged(policy, measured, new, now_s)
    return _rest_judged(policy, measured, new, now_s)


def _trial_judged(policy: Policy, evidence: Evidence, new: Figure, now_s: float) -> Evidence:
    base = figure_of(evidence, evidence.good) or _largest_below(evidence, new.size)
    if base is None:  # measured by another source, or in other batches: nothing to compare with
        return moved(policy, evidence, now_s, evidence.good, ("Continue", CONTINUES, "MetricChanged"))
    if why_not := _why_not(policy, evidence, base, new):
        return refused(policy, evidence, now_s, evidence.good, ("gain", "ReachMaxMetric", BEST, why_not))
    is_passed = evidence.refused is not None and new.size >= evidence.refused
    taken = replace(evidence, good=new.size, refused_s=now_s)
    if is_passed:
        taken = replace(taken, refused=None, cause="", has_room=False)
    return stand(taken, now_s, "Accepted")


def _rest_judged(policy: Policy, evidence: Evidence, new: Figure, now_s: float) -> Evidence:
    """Keep a size as long as half of the gain that it was taken for is there."""
    if evidence.reason in INCONCLUSIVE:
        evidence = stand(evidence, now_s, "Measured")
    base = _largest_below(evidence, new.size)
    if base is None or base.size not in sizes_of(policy):
        return evidence
    if new.rate / base.rate - 1 >= HOLD_SHARE * _least_gain(policy, base.size, new.size):
        return evidence
    return refused(policy, evidence, now_s, base.size, ("gain", "ReachMaxMetric", BEST, "GainGone"))


def _why_not(policy: Policy, evidence: Evidence, base: Figure, new: Figure) -> str:
    """Return why a size is not worth it, in a word; "" for one that is."""
    if new.rate / base.rate - 1 < _least_gain(policy, base.size, new.size):
        return "NoGain"
    first = evidence.figures[0]  # the smallest
    if new.rate / new.size < policy.min_efficiency * first.rate / first.size:
        return "LowEfficiency"
    return ""


def _least_gain(policy: Policy, size: int, larger: int) -> float:
    # From 10 to 11 Workers no more than 10 % can be had: then half of what can be is enough.
    attainable = larger / size - 1
    return policy.min_gain if policy.min_gain < attainable - _ROUNDING else attainable / 2


def _largest_below(evidence: Evidence, size: int) -> Figure | None:
    smaller = [figure for figure in evidence.figures if figure.size < size]
    return smaller[-1] if smaller else None


# What was not measured.


def _missed(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> Evidence:
    """Say so when samples do not come; give up a size that cannot be measured."""
    is_awaited = _is_measuring(policy, evidence, now_s) or _is_incomplete(evidence)
    if not is_awaited or _waited(evidence, situation, now_s) < policy.trial_timeout_s:
        return evidence
    reason, text = _inconclusive(policy, evidence, situation)
    if evidence.good < evidence.elastic.current:
        message = f"{text[: TEXT_LIMIT - len(RETURN)]}{RETURN}"
        return refused(policy, evidence, now_s, evidence.good, ("silence", "Stop", message, reason))
    block = replace(evidence.elastic, condition="Stop", goes_on=False, message=text[:TEXT_LIMIT])
    return told(evidence, now_s, block, reason)


def _is_measuring(policy: Policy, evidence: Evidence, now_s: float) -> bool:
    current = evidence.elastic.current
    if evidence.good < current:
        return True
    up = above(sizes_of(policy), current)
    if up is None or figure_of(evidence, current) is not None:
        return False
    return evidence.refused is None or up < evidence.refused or _due_in(policy, evidence, now_s) <= 0


def _is_incomplete(evidence: Evidence) -> bool:
    """Tell whether the size that the search began with has never run whole."""
    return evidence.ready_s is None and evidence.elastic.last is None


def _waited(evidence: Evidence, situation: Situation, now_s: float) -> float:
    begun = evidence.changed_s if evidence.ready_s is None else evidence.ready_s
    # An operator that was away heard no samples: only what this one has watched counts.
    return min(now_s - begun, situation.watched_s)


def _inconclusive(policy: Policy, evidence: Evidence, situation: Situation) -> tuple[str, str]:
    current, seconds = evidence.elastic.current, f"{policy.trial_timeout_s:g} s"
    if evidence.ready_s is None:
        absent = f", {situation.absent} does not" if situation.absent else ""
        return "PodsNotRunning", f"Inconclusive: {situation.running} of {current} Workers ran within {seconds}{absent}"
    if situation.trouble:
        return "MetricTrouble", f"Inconclusive: {situation.trouble}"
    if not evidence.window and not evidence.skipped:
        return "NoSamples", f"Inconclusive: no samples of {current} Workers within {seconds}"
    have = f"{len(evidence.window)} of {policy.window} samples of {current} Workers"
    return "NotEnoughSamples", f"Inconclusive: {have} within {seconds}"


# The next size.


def _tried(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> Evidence:
    """Try a larger size when this one is measured, nothing speaks against it, and it is time."""
    current = evidence.elastic.current
    if evidence.good < current or _is_incomplete(evidence):
        return evidence
    up = _next(policy, evidence, now_s)
    if up is None:
        block = replace(evidence.elastic, condition="ReachMaxReplicas", goes_on=False, message=FULL)
        return told(evidence, now_s, block, "MaxReplicas")
    if up == current or now_s - evidence.changed_s < policy.cooldown_s or situation.running < current:
        return evidence
    return moved(policy, evidence, now_s, up, ("Continue", CONTINUES, "Growing"))


def _next(policy: Policy, evidence: Evidence, now_s: float) -> int | None:
    """Return the size to try now: None at the top, the current one while there is none."""
    sizes, current = sizes_of(policy), evidence.elastic.current
    up = above(sizes, current)
    if up is None:
        return None
    if evidence.refused is not None and up >= evidence.refused:
        if _due_in(policy, evidence, now_s) > 0:
            return current
        up = _again(policy, evidence, up)
    was_good = evidence.cause == "room" and figure_of(evidence, up) is not None
    return up if was_good or figure_of(evidence, current) is not None else current


def _again(policy: Policy, evidence: Evidence, up: int) -> int:
    """Return the size to try after one was refused: what had room then, half of the way to what did not pay, or the same."""
    sizes, current, refused_size = sizes_of(policy), evidence.elastic.current, evidence.refused or up
    if evidence.cause == "room":
        fitted = fit(sizes, refused_size - 1)
        return up if evidence.has_room else fitted if fitted > current else refused_size
    if evidence.cause == "gain" and not _looks_worth_it(policy, evidence):
        return between(sizes, current, refused_size)
    return refused_size


def _due_in(policy: Policy, evidence: Evidence, now_s: float) -> float:
    """Return the seconds until a refused size may be tried again."""
    doubled = 2.0 ** min(evidence.failures - 1, 30)
    pause_s = min(policy.retry_s * doubled, policy.max_retry_s)
    if evidence.cause == "room" and evidence.has_room:
        pause_s *= ROOM_SHARE
    elif evidence.cause == "gain" and not _looks_worth_it(policy, evidence):
        pause_s = policy.max_retry_s * min(doubled, GAIN_RETRIES)
    return evidence.refused_s + pause_s - now_s


def _looks_worth_it(policy: Policy, evidence: Evidence) -> bool:
    """Say whether a size that did not pay would, by what was measured since."""
    base = figure_of(evidence, evidence.elastic.current)
    larger = figure_of(evidence, evidence.refused or 0)
    return base is not None and larger is not None and not _why_not(policy, evidence, base, larger)


# When to be called again.


def _wake(policy: Policy, evidence: Evidence, situation: Situation, now_s: float) -> float | None:
    """Return after how many seconds something may be due though nothing happens."""
    current, waits = evidence.elastic.current, []
    if (lack_s := _lack_s(policy, evidence, situation, now_s)) is not None:
        waits.append(policy.pending_grace_s - lack_s)
    if _is_measuring(policy, evidence, now_s) or _is_incomplete(evidence):
        waits.append(policy.trial_timeout_s - _waited(evidence, situation, now_s))
    if evidence.good == current:
        waits.append(evidence.changed_s + policy.cooldown_s - now_s)
        if evidence.refused is not None:
            waits.append(_due_in(policy, evidence, now_s))
    later = [wait for wait in waits if wait > 0]
    return max(min(later), _LEAST_WAKE_S) if later else None
