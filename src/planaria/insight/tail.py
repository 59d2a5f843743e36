"""Read on in what workers write: from their files where those are in reach, else by asking their agents."""

from __future__ import annotations

import os

from planaria.agent.records import MOST_BYTES, NEXT, ROUND
from planaria.insight.gather import AgentSource
from planaria.insight.loglines import Line, Place, Splitter, moved
from planaria.insight.plainfiles import open_plain, opened_within
from planaria.launch.owner_http import Door, NotAnswered, fetch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class Tail(Protocol):
        """Reads one stream of one worker."""

        def read_on(self) -> bytes:
            """Return what came since the last time; nothing when nothing did, or it cannot be had."""


CHUNK_BYTES = 1 << 20
BLOCK_BYTES = 64 << 10
NOBODY = -1
MOST_CHUNKS = 16  # of one stream, before it is the turn of the next
MOST_LAST_CHUNKS = 4096


class FileTail:
    """Reads a file on this machine, from its last lines on; 0: from its beginning.

    It has to be the `owner`'s: whoever names a file for others to read must not make root read what is root's. Below `folder`,
    where it has one, there are no links, and all of it is that owner's.
    """

    def __init__(self, path: str, lines: int, owner: int, folder: str = "") -> None:
        self._path = path
        self._folder = folder
        self._lines = lines
        self._owner = owner
        self._offset: int | None = None

    def read_on(self) -> bytes:
        """Return what was appended; nothing for a file that is gone."""
        try:
            descriptor = open_log(self._path, self._owner, self._folder)
        except (OSError, ValueError):
            return b""
        try:
            if self._offset is None:
                self._offset = _start_of_last(descriptor, self._lines)
            chunk = os.pread(descriptor, CHUNK_BYTES, self._offset)
        except OSError:
            return b""
        finally:
            os.close(descriptor)
        self._offset += len(chunk)
        return chunk


def open_log(path: str, owner: int, folder: str = "") -> int:
    """Open a log that a journal names, if it is the `owner`'s; below the node's folder no link is followed.

    Raises:
        OSError: It cannot be opened, or is not to be trusted.
        ValueError: A name has a character that no name has.
    """
    if not folder or not path.startswith(f"{folder}/"):
        return open_plain(path, owner)
    descriptor = opened_within(folder, *path.removeprefix(f"{folder}/").split("/"))
    if os.fstat(descriptor).st_uid != owner:
        os.close(descriptor)
        raise OSError(0, "it is not of the owner of its journal")
    return descriptor


def _start_of_last(descriptor: int, lines: int) -> int:
    """Return where the last so many lines begin."""
    at = os.fstat(descriptor).st_size
    if lines == 0:
        return 0
    left = lines + (os.pread(descriptor, 1, at - 1) == b"\n" if at else 0)
    while at > 0:
        begin = max(0, at - BLOCK_BYTES)
        block = os.pread(descriptor, at - begin, begin)
        found = block.count(b"\n")
        if found >= left:
            end = len(block)
            for _ in range(left):
                end = block.rindex(b"\n", 0, end)
            return begin + end + 1
        left, at = left - found, begin
    return 0


class AgentTail:
    """Asks an agent. It has the files of the newest round only."""

    def __init__(self, source: AgentSource, place: Place, lines: int) -> None:
        self._source = source
        self._place = place
        self._lines = lines
        self._next = 0 if lines == 0 else -MOST_BYTES
        self._is_first = lines > 0

    def read_on(self) -> bytes:
        """Return what came; nothing when the agent does not answer, has begun another round, or is another one by now."""
        place = self._place
        if self._source.node != place.node:
            return b""
        path = f"/v1/logs?local_rank={place.local_rank}&stream={place.stream}&from={self._next}"
        try:
            answer = fetch(self._source.target, "GET", path, token=self._source.token)
        except NotAnswered:
            return b""
        after = answer.headers.get(NEXT.lower(), "")
        if answer.status != 200 or not after.isdigit() or answer.headers.get(ROUND.lower()) != str(place.round):
            return b""
        self._next = int(after)
        if not self._is_first:
            return answer.body
        self._is_first = False
        return last_lines(answer.body, self._lines)


def last_lines(content: bytes, lines: int) -> bytes:
    """Return the last so many lines; what a progress bar drew again and again is one."""
    at = len(content) - content.endswith(b"\n")
    for _ in range(lines):
        at = content.rfind(b"\n", 0, at)
        if at < 0:
            return content
    return content[at + 1 :]


class Reader:
    """One stream of one worker, as lines."""

    def __init__(self, place: Place, tail: Tail) -> None:
        self.place = place
        self._tail = tail
        self._splitter = Splitter()
        self.has_more = False

    def read_on(self, most: int = MOST_CHUNKS) -> Iterator[Line]:
        """Yield the lines that are whole now, chunk by chunk; `has_more` tells whether there was more than that."""
        for _ in range(most):
            chunk = self._tail.read_on()
            self.has_more = bool(chunk)
            if not chunk:
                return
            for text in self._splitter.feed(chunk):
                yield Line(self.place, text)

    def finish(self) -> Iterator[Line]:
        """Yield what is left, when no more is expected. Who writes faster than one can read does not keep us for ever."""
        yield from self.read_on(MOST_LAST_CHUNKS)
        for text in self._splitter.end():
            yield Line(self.place, text)


def reader_of(place: Place, agents: dict[str, AgentSource], lines: int) -> Reader:
    """Return the reader of a stream: an agent that is not of this machine has to be asked. `agents`: by node."""
    agent = agents.get(place.node)
    if agent is None or agent.name != place.source:
        path = moved(place.path, place.node, place.source)
        return Reader(place, FileTail(path, lines, NOBODY if place.owner is None else place.owner, place.source))
    if isinstance(agent.target, Door):
        return Reader(place, FileTail(place.path, lines, agent.target.owner))
    return Reader(place, AgentTail(agent, place, lines))
