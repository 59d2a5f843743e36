"""The end of one stream of a worker: as its agent tells it, or of its file where there is none any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.dashboard.files import Folder, open_named, read_end
from planaria.insight.loglines import moved
from planaria.launch.owner_http import NotAnswered, fetch

if TYPE_CHECKING:
    from planaria.insight.gather import AgentSource
    from planaria.insight.loglines import Place

MOST_BYTES = 32 << 10  # some four hundred lines


def tail(place: Place, where: AgentSource | Folder) -> str | None:
    """Return the last lines that a worker wrote; None when they cannot be had."""
    content = _written(place, where) if isinstance(where, Folder) else _told(place, where)
    return None if content is None else _whole_lines(content).decode("utf-8", "replace")


def _written(place: Place, folder: Folder) -> bytes | None:
    descriptor = open_named(folder, moved(place.path, place.node, place.source))
    return None if descriptor is None else read_end(descriptor, MOST_BYTES)


def _told(place: Place, agent: AgentSource) -> bytes | None:
    path = f"/v1/logs?local_rank={place.local_rank}&stream={place.stream}&from={-MOST_BYTES}"
    try:
        answer = fetch(agent.target, "GET", path, token=agent.token)
    except NotAnswered:
        return None
    return answer.body if answer.status == 200 else None


def _whole_lines(content: bytes) -> bytes:
    """Drop the first line of a long text, which has most likely lost its beginning."""
    if len(content) < MOST_BYTES:
        return content
    _, found, rest = content.partition(b"\n")
    return rest if found else content
