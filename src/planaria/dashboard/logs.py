"""The end of one stream of a worker: as its agent tells it, or of its file where there is none any more."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planaria.agent.records import ROUND
from planaria.insight.loglines import moved
from planaria.insight.tail import NOBODY, open_log
from planaria.launch.owner_http import NotAnswered, fetch

if TYPE_CHECKING:
    from planaria.insight.gather import AgentSource
    from planaria.insight.loglines import Place

MOST_BYTES = 32 << 10  # some four hundred lines


def tail(place: Place, agent: AgentSource | None) -> str | None:
    """Return the last lines that a worker wrote; None when they cannot be had."""
    content = _written(place) if agent is None else _told(place, agent)
    return None if content is None else _whole_lines(content).decode("utf-8", "replace")


def _written(place: Place) -> bytes | None:
    """Return the end of a file that a journal names, if it is the owner's of that journal."""
    owner = NOBODY if place.owner is None else place.owner
    try:
        descriptor = open_log(moved(place.path, place.node, place.source), owner, place.source)
    except (OSError, ValueError):
        return None
    try:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, MOST_BYTES, max(0, size - MOST_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _told(place: Place, agent: AgentSource) -> bytes | None:
    """Return what an agent tells of it, which has the files of its newest round only."""
    path = f"/v1/logs?local_rank={place.local_rank}&stream={place.stream}&from={-MOST_BYTES}"
    try:
        answer = fetch(agent.target, "GET", path, token=agent.token)
    except NotAnswered:
        return None
    is_of_that_life = answer.headers.get(ROUND.lower()) == str(place.round)
    return answer.body if answer.status == 200 and is_of_that_life else None


def _whole_lines(content: bytes) -> bytes:
    """Drop the first line of a long text, which has most likely lost its beginning."""
    if len(content) < MOST_BYTES:
        return content
    _, found, rest = content.partition(b"\n")
    return rest if found else content
