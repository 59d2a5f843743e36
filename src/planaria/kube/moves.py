"""How the evidence of a job changes, and what people read of it: the conditions and messages that KubeDL's users know. Pure."""

from __future__ import annotations

from planaria.base.value import replace
from planaria.kube.scaling_model import Cause, Condition, ElasticScaling, Evidence, Policy

CONTINUES = "Pytorch job continues to be scaled"
RETURN = ", return to the last replicas"
PENDING = f"There exists pending pods{RETURN}"
BEST = "Pytorch job has reached the max metrics"
FULL = "Pytorch job has reached the max replicas"
NO_ROOM = "There is no room for the smallest number of replicas, the job waits for it"
NO_MORE = f"There was no room for more replicas{RETURN}"
UNMEASURED = f"Inconclusive: more replicas could not be measured{RETURN}"


def refused(
    policy: Policy, evidence: Evidence, now_s: float, to: int, words: tuple[Cause, Condition, str, str]
) -> Evidence:
    """Give the current size up for a smaller one, and remember that."""
    cause, condition, message, reason = words
    smaller = moved(policy, evidence, now_s, to, (condition, message, reason))
    return replace(
        smaller,
        good=to,
        refused=evidence.elastic.current,
        cause=cause,
        failures=1 if cause == "room" and _was_good(policy, evidence, now_s) else evidence.failures + 1,
        refused_s=now_s,
        has_room=False,
    )


def _was_good(policy: Policy, evidence: Evidence, now_s: float) -> bool:
    """Tell whether nothing was refused for long: what failed before that says nothing about room that is gone now."""
    return evidence.refused is None and now_s - evidence.refused_s >= policy.retry_s


def moved(policy: Policy, evidence: Evidence, now_s: float, to: int, words: tuple[Condition, str, str]) -> Evidence:
    """Change the size. What was in the window belongs to the old one."""
    condition, message, reason = words
    goes_on = condition == "Continue"
    block = ElasticScaling(condition, goes_on, current=to, last=evidence.elastic.current, message=message)
    changed = replace(evidence, changed_s=now_s, ready_s=None, window=(), skip=policy.warm_up, skipped=())
    return told(changed, now_s, block, reason)


def stand(evidence: Evidence, now_s: float, reason: str) -> Evidence:
    """Say how the search stands, after something else had been said."""
    block = evidence.elastic
    if evidence.cause == "gain":
        block = replace(block, condition="ReachMaxMetric", goes_on=False, message=BEST)
    elif evidence.cause:
        message = NO_MORE if evidence.cause == "room" else UNMEASURED
        block = replace(block, condition="Stop", goes_on=False, message=message)
    else:
        block = _continuing(evidence)
    return told(evidence, now_s, block, reason)


def _continuing(evidence: Evidence) -> ElasticScaling:
    if evidence.elastic.last is None:
        return replace(evidence.elastic, condition="Start", goes_on=True, message="")
    return replace(evidence.elastic, condition="Continue", goes_on=True, message=CONTINUES)


def told(evidence: Evidence, now_s: float, block: ElasticScaling, reason: str) -> Evidence:
    """Change what people read; its time is that of the last change."""
    if replace(block, since_s=evidence.elastic.since_s) == evidence.elastic:
        return evidence if reason == evidence.reason else replace(evidence, reason=reason)
    return replace(evidence, elastic=replace(block, since_s=now_s), reason=reason)
