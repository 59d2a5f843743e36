"""Leases of a store as one Lease object holds them, and when an observer calls a holder dead. Pure.

Kubernetes expires nothing. A holder that renews its lease raises its beat; an observer that has not seen the beat change for
the lease's whole time, on its own clock, ends it: by an update on the condition that nothing has changed since it looked. No
clock is compared with another's. `at` is the API server's own wall clock and serves for ages that people and outcomes need.
"""

from __future__ import annotations

import json

from planaria.base.value import Value, replace
from planaria.store.kubernetes_keys import BROKEN, not_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Json = dict[str, Any]

ANNOTATION = "planaria/leases"
VERSION = 1
MOST_LEASES = 64
FIRST_BEAT = 0  # of a lease that was never renewed
SLACK_S = 1.2
"""How much longer an observer waits: a renewal so soon after the last one need not be written; fewer than one a second is."""
JITTER = 0.1  # of a lease's time: the many that observe one holder do not all write at once
LONGEST_JITTER_S = 1.0
TRY_AGAIN_S = 1.0


class Beat(Value):
    """One lease: its time, how often it was renewed, and when, by the API server's wall clock."""

    ttl_s: float
    count: int
    at: float


def read_beats(found: Mapping[str, Any]) -> dict[int, Beat]:
    """Return the leases in a Lease object; one that nobody has written to has none.

    Raises:
        ValueError: What is there is not ours.
    """
    text = ((found.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    if text is None:
        return {}
    try:
        told = json.loads(text)
        if told["version"] != VERSION:
            raise ValueError(f"it is of version {told['version']!r}, ours is {VERSION}")
        return {
            int(number): Beat(float(ttl_s), int(count), float(at))
            for number, (ttl_s, count, at) in told["leases"].items()
        }
    except BROKEN as exc:
        raise not_ours(f"the annotation {ANNOTATION} of the Lease", exc) from exc


def write_beats(found: Mapping[str, Any], beats: Mapping[int, Beat]) -> Json:
    """Return the Lease object with these leases; whatever else is in it stays."""
    leases = {str(number): [beat.ttl_s, beat.count, beat.at] for number, beat in sorted(beats.items())}
    text = json.dumps({"version": VERSION, "leases": leases}, separators=(",", ":"))
    metadata = found.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: text}
    return {**found, "metadata": {**metadata, "annotations": annotations}}


class Sent(Value):
    """The beat of a lease that we wrote ourselves, and when we sent it, by our own clock."""

    count: int
    at: float


def fresh_beat(sent: Sent | None, now: float) -> int | None:
    """Return the beat that was written so recently that it need not be raised; None: there is none."""
    return sent.count if sent is not None and now - sent.at < SLACK_S else None


def granted(beats: Mapping[int, Beat], lease: int, ttl_s: float, at: float) -> dict[int, Beat] | None:
    """Return the leases with one more, where there is no room instead of the oldest whose time is over; None if none is."""
    kept = dict(beats)
    if len(kept) >= MOST_LEASES:
        over = [(beat.at, number) for number, beat in kept.items() if beat.at + beat.ttl_s < at]
        if not over:
            return None
        del kept[min(over)[1]]
    return {**kept, lease: Beat(ttl_s, FIRST_BEAT, at)}


def renewed(beats: Mapping[int, Beat], lease: int, at: float, fresh: int | None) -> dict[int, Beat] | None:
    """Return the leases with one that runs for its whole time again; None if it is gone, or its beat still the fresh one."""
    known = beats.get(lease)
    if known is None or known.count == fresh:
        return None
    return {**beats, lease: replace(known, count=known.count + 1, at=at)}


def ended(beats: Mapping[int, Beat], lease: int, count: int | None = None) -> dict[int, Beat] | None:
    """Return the leases without one; None if it is gone, or its beat is another than `count`."""
    known = beats.get(lease)
    if known is None or count not in (None, known.count):
        return None
    return {number: beat for number, beat in beats.items() if number != lease}


def left_s(beat: Beat, sent: Sent | None, now: float, at: float) -> float:
    """Return how long a lease lasts; `now` is our clock and `at` the API server's."""
    if sent is not None and sent.count == beat.count:
        return max(beat.ttl_s - (now - sent.at), 0.0)
    # Of another's, two readings of one clock that shows whole seconds: rather too old than too young.
    return max(beat.ttl_s - max(at - beat.at + 1.0, 0.0), 0.0)


class Dead(Value):
    """A lease whose holder was not heard for its whole time. It is ended only while its beat is still this one."""

    lease: int
    count: int


class _Seen:
    """What one observer knows of a lease: its beat, and when it first saw that."""

    __slots__ = ("beat", "due_at")

    def __init__(self, beat: Beat, due_at: float) -> None:
        self.beat = beat
        self.due_at = due_at


class Vigil:
    """One observer. `fraction` gives numbers from 0 to 1; times are this observer's own."""

    def __init__(self, fraction: Callable[[], float]) -> None:
        self._fraction = fraction
        self._seen: dict[int, _Seen] = {}

    def saw(self, beats: Mapping[int, Beat], now: float) -> frozenset[int]:
        """Take what the Lease object says now; return which leases have gone since."""
        gone = frozenset(self._seen) - frozenset(beats)
        for number in gone:
            del self._seen[number]
        for number, beat in beats.items():
            known = self._seen.get(number)
            if known is None or known.beat.count != beat.count:
                self._seen[number] = _Seen(beat, now + self._patience_s(beat))
        return gone

    def dead(self, now: float) -> tuple[Dead, ...]:
        """Return the holders to be called dead now. Each is tried again after a while, unless it has gone or changed."""
        found = []
        for number, seen in self._seen.items():
            if seen.due_at <= now:
                found.append(Dead(number, seen.beat.count))
                seen.due_at = now + TRY_AGAIN_S
        return tuple(found)

    def wakes_at(self) -> float | None:
        """Return when `dead` should be asked again."""
        return min((seen.due_at for seen in self._seen.values()), default=None)

    def _patience_s(self, beat: Beat) -> float:
        return beat.ttl_s + SLACK_S + min(beat.ttl_s * JITTER, LONGEST_JITTER_S) * self._fraction()
