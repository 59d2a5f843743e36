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
    from planaria.insight.loglines import Line, Place
    from planaria.insight.sources import Found
    from planaria.insight.tail import Reader

LOOK_S = 0.5


def follow(asked: Asked, found: Found, say: Callable[[Line], object]) -> int:
    """Say every line that is wanted; return how many streams there were."""
    readers: dict[Place, Reader] = {}
    while True:
        nodes = found.look()
        wanted = places(nodes, asked.ranks, asked.streams)
        for place in wanted:
            if place not in readers:
                is_first_look = not any(other.rank == place.rank for other in readers)
                readers[place] = reader_of(place, found.agents, asked.lines if is_first_look else 0)
        run = picture(nodes)
        is_last = not asked.follow or run.is_over or run.state == "gone"
        for place, reader in readers.items():
            for line in reader.finish() if is_last or place not in wanted else reader.read_on():
                say(line)
        if is_last:
            return len(readers)
        wait_for_any((), LOOK_S)
