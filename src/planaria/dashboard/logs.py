"""The end of one stream of a worker: of its file where that is in reach, else as its agent tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.dashboard.files import owner_of, read_part
from planaria.insight.loglines import moved
from planaria.launch.owner_http import Door, NotAnswered, fetch

if TYPE_CHECKING:
    from planaria.insight.gather import AgentSource
    from planaria.insight.loglines import Place

MOST_BYTES = 32 << 10  # some four hundred lines


def tail(place: Place, agent: AgentSource | None) -> str | None:
    """Return the last lines that a worker wrote; None when they cannot be had."""
    if agent is None:
        path = moved(place.path, place.node, place.source)
        content = read_part(path, owner_of(place.source), MOST_BYTES, from_end=True)
    elif isinstance(agent.target, Door):
        content = read_part(place.path, agent.target.owner, MOST_BYTES, from_end=True)
    else:
        content = _told(place, agent)
    return None if content is None else _whole_lines(content).decode("utf-8", "replace")


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
