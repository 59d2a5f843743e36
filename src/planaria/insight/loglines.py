"""Where the workers of a run write, and what they wrote, line by line. Pure."""

from __future__ import annotations

from planaria.base.text import safe, safe_line
from planaria.base.value import Value
from planaria.insight.fields import integer, texts, told
from planaria.insight.heard import newest_round, of_the_last_start
from planaria.insight.recall import Recall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.insight.model import NodeSeen

LONGEST_LINE = 16 << 10
_MARKS = {"stdout": "|", "stderr": "!"}


class Place(Value):
    """One stream of one worker. `path` is as its agent wrote it down; empty where only the agent can be asked."""

    node: str
    source: str
    host: str
    round: int
    rank: int
    local_rank: int
    stream: str
    path: str = ""
    owner: int | None = None
    """The user in whose journal it was found."""

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What makes it another stream than others, wherever it was found."""
        return self.node, self.round, self.rank, self.stream


class Line(Value):
    """One line of a worker, as it came; the text that is printed of it is harmless."""

    place: Place
    text: str

    def __str__(self) -> str:
        where = self.place
        return f"{safe_line(where.host, 80)}:{where.rank} {_MARKS.get(where.stream, '?')} {safe(self.text)}"

    def as_json(self) -> dict[str, object]:
        """Return it as `planaria logs --json` prints it."""
        where = self.place
        told_place = {"host": where.host, "rank": where.rank, "stream": where.stream, "round": where.round}
        return {**told_place, "line": self.text}


def places(
    nodes: Sequence[NodeSeen], ranks: frozenset[int] | None, streams: Sequence[str], recall: Recall | None = None
) -> list[Place]:
    """Return the streams of the newest round that are wanted, by rank: a node that left before it has none in it."""
    heard = of_the_last_start((recall or Recall()).hear(nodes))
    names, last = {one.seen.node for one in heard}, newest_round(heard)
    found = [place for one in nodes if one.node in names for place in _places_of(one)]
    if any(one.round is not None for one in heard):
        found = [place for place in found if place.round <= last]
    newest = max((place.round for place in found), default=0)  # of a round that begins, no worker may be known yet
    wanted = [
        place
        for place in found
        if place.round == newest and (ranks is None or place.rank in ranks) and place.stream in streams
    ]
    once = {place.key: place for place in reversed(wanted)}  # a node that answers may be in a folder, too
    return sorted(once.values(), key=lambda place: (place.rank, place.stream != "stdout"))


def _places_of(one: NodeSeen) -> list[Place]:
    found = []
    for event in one.events:
        started = told(event, one.node) if event.get("name") == "planaria.worker.started" else None
        if started is None:
            continue
        numbers = [integer(started.data, name) for name in ("round", "rank", "local_rank")]
        for path in texts(started.data, "log_files"):
            stream = path.rpartition("/")[2].removesuffix(".log")
            if None not in numbers:
                number, rank, local_rank = (value or 0 for value in numbers)
                found.append(
                    Place(one.node, one.source, started.host, number, rank, local_rank, stream, path, one.owner)
                )
    return found


def moved(path: str, node: str, folder: str) -> str:
    """Return where a file is whose folder was moved: what stands below the node's folder stands there still."""
    _, found, below = path.partition(f"/{node}/")
    return f"{folder}/{below}" if found and ".." not in below.split("/") else path


class Splitter:
    """Makes lines of bytes as they come; of a line that a progress bar draws again and again the last state counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that are whole now. One without an end is cut when it is too long."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            whole, self._rest = [*whole, self._rest], b""
        return [_drawn(line) for line in whole]

    def end(self) -> list[str]:
        """Return what is left without a line feed."""
        rest, self._rest = self._rest, b""
        return [_drawn(rest)] if rest else []


def _drawn(line: bytes) -> str:
    drawn = line.rstrip(b"\r").rpartition(b"\r")[2]
    return drawn[:LONGEST_LINE].decode("utf-8", "replace")
