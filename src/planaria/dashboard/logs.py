"""The end of one stream of a worker: of its file where that is in reach, else as its agent tells it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planaria.insight.gather import open_plain
from planaria.insight.loglines import moved
from planaria.launch.owner_http import Door, NotAnswered, fetch

if TYPE_CHECKING:
    from planaria.insight.gather import AgentSource
    from planaria.insight.loglines import Place

MOST_BYTES = 32 << 10  # some four hundred lines


def tail(place: Place, agent: AgentSource | None) -> str | None:
    """Return the last lines that a worker wrote; None when they cannot be had."""
    if agent is None or isinstance(agent.target, Door):
        path = place.path if agent is not None else moved(place.path, place.node, place.source)
        content = _end_of(path)
    else:
        content = _told(place, agent)
    return None if content is None else _whole_lines(content).decode("utf-8", "replace")


def _end_of(path: str) -> bytes | None:
    try:
        descriptor = open_plain(path)
    except OSError:
        return None
    try:
        begin = max(0, os.fstat(descriptor).st_size - MOST_BYTES)
        return os.pread(descriptor, MOST_BYTES, begin)
    except OSError:
        return None
    finally:
        os.close(descriptor)


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
