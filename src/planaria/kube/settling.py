"""From when on a line of a log counts for the workers that run. Pure.

A line does not say how many workers made its step. After a change of the workers, those who were there may train on without
the new ones for a while. So the lines count from when each of the new ones has printed a step, too: then all of them are in one
world. Where only one rank prints, a minute has to do.
"""

from __future__ import annotations

from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Life = tuple[str, int]
    """The uid of a pod, and how often its containers were started again: a worker that is restarted in place is a new one."""

SETTLE_S = 60.0
MOST_NEW = 4  # of the new ones have to speak, those of the highest index: each costs a read of its log


class Settling(Value):
    """Who runs, and whether their lines count."""

    lives: tuple[Life, ...] = ()  # the lowest index first
    since: float = 0.0  # on the operator's own clock: when they were first seen together
    base: frozenset[Life] = frozenset()  # the last ones whose lines counted
    spoken: frozenset[Life] = frozenset()  # of those who are awaited
    is_settled: bool = False


def seen(before: Settling, lives: tuple[Life, ...], now: float) -> Settling:
    """Take note of the workers that run now: if they are others, nobody's lines count until they have settled."""
    return before if lives == before.lives else Settling(lives, now, before.base)


def awaited(settling: Settling) -> tuple[Life, ...]:
    """Return those who have not printed a step yet and should: the new ones; where somebody only left, anybody."""
    return tuple(life for life in _newest(settling) or settling.lives[:MOST_NEW] if life not in settling.spoken)


def heard(settling: Settling, spoken: Iterable[Life], now: float) -> Settling:
    """Take note of who has printed a step since the last look."""
    known = settling.spoken | set(spoken)
    newest = _newest(settling)
    have_met = known >= set(newest) if newest else bool(known)
    if have_met or now - settling.since >= SETTLE_S:
        return Settling(settling.lives, settling.since, frozenset(settling.lives), is_settled=True)
    return replace(settling, spoken=known)


def _newest(settling: Settling) -> tuple[Life, ...]:
    return tuple(life for life in settling.lives if life not in settling.base)[-MOST_NEW:]
