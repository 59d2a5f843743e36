"""Judge the failures of a round: go on, at which restart count, or end. Pure."""

from __future__ import annotations

import json

from planaria.base.value import as_dict, replace
from planaria.contract.failure import Failure, are_one_mistake, first_cause_first, from_json, in_words
from planaria.rendezvous.messages import Ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.rendezvous.messages import Failed, Join
    from planaria.rendezvous.model import Settings

    Reports = list[tuple[Failed, Join, float]]

LONGEST_REPORT = 200_000
"""How many characters of failures travel with the outcome; the first causes come first."""
WORKER_FAILED = 1


def merged(reports: Reports) -> tuple[Failure, ...]:
    """Return the failures of all nodes, first cause first, in the leader's time: only ages cross the network."""
    found = []
    for report, _, arrived_at in reports:
        for text, age_s in zip(report.failures, report.ages_s, strict=False):
            failure = from_json(text)
            if failure is not None:
                found.append(replace(failure, at=arrived_at - max(age_s, 0.0)))
    return first_cause_first(found)


def reason(reports: Reports) -> str:
    """Say in a few words why the round ends."""
    failures = merged(reports)
    asked = [join.host for report, join, _ in reports if report.free and not report.failures]
    if asked:
        return f"{asked[0]} asked for a new round"
    if any(report.free for report, _, _ in reports):
        return "the master port was taken by another program"
    if not failures:
        return f"a worker on {reports[0][1].host} failed"
    return f"{in_words(failures[0])} on {failures[0].host}"


def rule(reports: Reports, restart_count: int, settings: Settings, now: float) -> tuple[int | Ended | None, float]:
    """Return the next restart count, or the end, or None and when to ask again."""
    if any(report.free for report, _, _ in reports):
        return restart_count, now  # the others failed because the first rank could not even listen
    failures = merged(reports)
    texts = _fitting(json.dumps(as_dict(failure)) for failure in failures)
    if _is_a_mistake(reports, failures, settings):
        why = "every rank failed alike at start-up, so restarting cannot help (--always-restart restarts all the same)"
        return Ended("failed", WORKER_FAILED, why, texts, restart_count), now
    why = "" if restart_count >= settings.max_restarts else next((one.why for one, _, _ in reports if one.why), "")
    if restart_count < settings.max_restarts and not why:
        return restart_count + 1, now
    first_at = min(at for _, _, at in reports)
    if blames_a_peer(reports) and now < first_at + 2 * settings.ttl_s:
        return None, first_at + 2 * settings.ttl_s  # the peer's own end may still be on its way
    return Ended("failed", WORKER_FAILED, why, texts, restart_count), now


def blames_a_peer(reports: Reports) -> bool:
    """Tell whether nobody has reported more than that another had gone."""
    return all(report.names_peer and report.names_peer[0] for report, _, _ in reports)


def _fitting(texts: Iterator[str]) -> tuple[str, ...]:
    """Return as many of the first causes as one message takes."""
    found: list[str] = []
    room = LONGEST_REPORT
    for text in texts:
        room -= len(text)
        if room < 0:
            break
        found.append(text)
    return tuple(found)


def _is_a_mistake(reports: Reports, failures: tuple[Failure, ...], settings: Settings) -> bool:
    """Tell whether the nodes that failed show that every other life would fail, too."""
    first_life = all(report.round == 0 for report, _, _ in reports)
    size = sum(join.local_world_size for _, join, _ in reports)
    return first_life and not settings.always_restart and are_one_mistake(failures, size)
