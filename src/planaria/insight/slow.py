"""Which ranks of a run are slow: as their agents say, and between nodes. Pure.

An agent compares the ranks of its own node, so it names nobody where there is one, nor a host that is slow as a whole. Here all
nodes that answer are compared, by what each of them says of its ranks' own pace; moments of two hosts are not.
"""

from __future__ import annotations

from planaria.agent.stragglers import Pace, slow_of
from planaria.insight.fields import integer, number, objects, part, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.heard import Heard
    from planaria.insight.model import Rank


def stragglers(heard: Sequence[Heard], ranks: Sequence[Rank], newest: int) -> tuple[Mapping[str, object], ...]:
    """Return the slow ranks of the newest round with their hosts, the slowest first."""
    here = [one for one in heard if (one.round or 0) == newest]
    found: dict[int, tuple[str, float]] = {}
    for told in (item for one in here for item in _told(one, newest)):
        rank, slower_by = integer(told, "rank"), number(told, "slower_by")
        if rank is not None and slower_by is not None:
            found[rank] = text(told, "host"), slower_by
    hosts = {one.rank: one.host for one in ranks}
    found |= {rank: (hosts[rank], by) for rank, by in _between_nodes(here).items() if rank in hosts}
    ordered = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple({"rank": rank, "host": host, "slower_by": slower_by} for rank, (host, slower_by) in ordered)


def _told(one: Heard, newest: int) -> Iterable[Mapping[str, object]]:
    """Return what an agent says of its own node; of one that does not answer, what it said last in this round."""
    if one.seen.status is not None:
        return objects(one.seen.status, "stragglers")
    said = [
        event.data
        for event in one.events
        if event.name == "planaria.straggler" and (integer(event.data, "round") or 0) == newest
    ]
    return objects(said[-1], "ranks") if said else ()


def _between_nodes(heard: Iterable[Heard]) -> dict[int, float]:
    """Compare the ranks of all nodes that answer; of a single one its agent has said it."""
    by_node = [found for one in heard if (found := _paces(part(one.seen.status, "progress")))]
    return slow_of({rank: pace for one in by_node for rank, pace in one.items()}) if len(by_node) > 1 else {}


def _paces(progress: Mapping[str, object]) -> dict[int, Pace]:
    found = {}
    for rank in (rank for rank in progress if rank.isdecimal() and len(rank) < 10):
        told = part(progress, rank)
        pace = Pace(*(number(told, name) for name in ("step_s", "step_mean_s", "busy_s")))
        if pace != Pace():
            found[int(rank)] = pace
    return found
