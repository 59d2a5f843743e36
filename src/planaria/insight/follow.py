"""Show what workers write, and go on until their run ends."""

from __future__ import annotations

from planaria.base.signals import wait_for_any
from planaria.insight.loglines import places
from planaria.insight.picture import picture
from planaria.insight.tail import reader_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.insight.flags import Asked
    from planaria.insight.loglines import Line
    from planaria.insight.model import RunSeen
    from planaria.insight.sources import Found
    from planaria.insight.tail import Reader

LOOK_S = 0.5


def follow(asked: Asked, found: Found, say: Callable[[Line], object]) -> tuple[int, RunSeen]:
    """Say every line that is wanted; return of how many ranks there were files, and what was seen last."""
    readers: dict[tuple[str, int, int, str], Reader] = {}
    known: set[int] = set()  # ranks that were read before: of their next life nothing is left out
    while True:
        nodes = found.look()
        run = picture(nodes)
        wanted = {place.key: place for place in places(nodes, asked.ranks, asked.streams)}
        for key, place in wanted.items():
            if key not in readers:
                readers[key] = reader_of(place, found.agents, 0 if place.rank in known else asked.lines)
        known |= {place.rank for place in wanted.values()}
        is_last = not asked.follow or run.is_past or not run.run_id
        for key in list(readers):
            is_done = is_last or key not in wanted
            for line in readers[key].finish() if is_done else readers[key].read_on():
                say(line)
            if is_done:
                del readers[key]
        if is_last:
            return len(known), run
        if not any(reader.has_more for reader in readers.values()):
            wait_for_any((), LOOK_S)
