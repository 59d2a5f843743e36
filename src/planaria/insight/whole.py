"""The run as a whole, from what its nodes told: restarts used, commits, the hang, and how much of its time it trained. Pure."""

from __future__ import annotations

from planaria.insight.digest import newest_commits
from planaria.insight.fields import age_of, integer, integers, number, part
from planaria.insight.heard import ENDED
from planaria.insight.model import Effective

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.digest import Commits
    from planaria.insight.heard import Heard

TIERS = ("node", "buddy", "disk")


def budget(heard: Sequence[Heard]) -> tuple[int | None, int | None]:
    """Return how many restarts were used, and how many are allowed."""
    used: int | None = None
    allowed: int | None = None
    for one in heard:
        restarts = part(one.seen.status, "restarts")
        report = one.seen.report or {}
        started = next((event for event in one.digest.happened if event.name == "planaria.run.started"), None)
        counts = [integer(restarts, "used"), integer(report, "restarts"), one.digest.restarts]
        limits = [integer(restarts, "allowed"), integer(report, "max_restarts")]
        limits += [None if started is None else integer(started.data, "max_restarts")]
        used = max((count for count in (used, *counts) if count is not None), default=None)
        allowed = max((limit for limit in (allowed, *limits) if limit is not None), default=None)
    return used, allowed


def commits(heard: Sequence[Heard]) -> dict[str, Mapping[str, object] | None]:
    """Return the newest commit of each tier: by run, round and generation, as `contract/commit.py` orders them."""
    told = newest_commits(commits for one in heard for commits in (one.digest.commits, _said_commits(one)))
    return {tier: _stamp(told[tier][1]) if tier in told else None for tier in TIERS}


def _said_commits(one: Heard) -> Commits:
    """Return the commits that an agent itself tells of."""
    kept = part(one.seen.status, "newest_commit")
    stamps = {tier: part(kept, tier) for tier in kept}
    return {tier: (age_of(stamp), stamp) for tier, stamp in stamps.items() if integer(stamp, "step") is not None}


def _stamp(commit: Mapping[str, object]) -> dict[str, object]:
    return {key: integer(commit, key) for key in ("step", "round", "generation")}


def hang(heard: Sequence[Heard], newest: int) -> Mapping[str, object] | None:
    """Return the hang of the newest round that is not over. Who answers is believed; else the journals tell.

    Of several nodes' hangs it is one that names a rank which stands differently, not one whose ranks wait for another node.
    """
    here = [one for one in heard if (one.round or 0) == newest]
    answering = [one for one in here if one.answers]
    told = [part(one.seen.status, "hang") for one in answering] if answering else list(_told_hangs(here, newest))
    found = [one for one in told if one]
    return min(found, key=lambda one: (one.get("elsewhere") is True, -(integer(one, "timestamp") or 0)), default=None)


def _told_hangs(heard: Iterable[Heard], newest: int) -> Iterable[Mapping[str, object]]:
    for one in heard:
        standing: list[Mapping[str, object]] = []
        for event in one.events:
            if event.name == "planaria.hang" and (integer(event.data, "round") or 0) == newest:
                standing.append({**event.data, "timestamp": event.timestamp})
            elif event.name == "planaria.hang.over":
                rank = integer(event.data, "rank")
                standing = [
                    hang for hang in standing if rank not in integers(hang, "ranks") + integers(hang, "waiting")
                ]
        yield from standing[-1:]


def effective(heard: Sequence[Heard]) -> Effective:
    """Return how much of its time the node trained that has lived longest; others came later, or went earlier."""
    found = [_effective_of(one) for one in heard]
    return max(found, key=lambda one: one.seconds, default=Effective(None, 0.0, 0.0, is_reported=False))


def _effective_of(one: Heard) -> Effective:
    status = one.seen.status or {}
    uptime_s, began = number(status, "uptime_s"), number(status, "started_at")
    if uptime_s is not None:
        since = None if began is None else round(began * 1000)
        return Effective(since, uptime_s, number(status, "trained_s") or 0.0, status.get("steps_reported") is True)
    if not one.events:
        return Effective(None, 0.0, 0.0, is_reported=False)
    kept = (event.data for event in reversed(one.events))
    newest = next((data for data in kept if number(data, "trained_s") is not None), {})
    is_reported = any(event.name == "planaria.progress" for event in reversed(one.events))
    since, seconds = _lifetime(one)
    return Effective(since, seconds, number(newest, "trained_s") or 0.0, is_reported)


def _lifetime(one: Heard) -> tuple[int, float]:
    """Return when a node began and how long its journal tells of it, also where its beginning is not kept any more."""
    first, last = one.events[0], one.events[-1]
    for event in reversed(one.events):
        lived_s = number(event.data, "duration_s" if event.name == ENDED else "uptime_s")
        if lived_s is not None:
            return round(event.timestamp - lived_s * 1000), max(0.0, lived_s + last.at - event.at)
    return first.timestamp, max(0.0, last.at - first.at)
