"""What one look at a run leaves to the next: an event never changes, so none is read twice, and a story that nothing was
added to is not told again. A page looks once a second, at the events of all rounds of all nodes.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.insight import story
from planaria.insight.digest import digest, together
from planaria.insight.fields import told
from planaria.insight.heard import each_once, hear, in_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.digest import Digest
    from planaria.insight.fields import Told
    from planaria.insight.heard import Heard
    from planaria.insight.model import NodeSeen
    from planaria.insight.story import Tale

    Event = Mapping[str, object]


class _Journal(Value):
    """What a node told, as it came and as it was read: `each` by the identity of the event that says it."""

    events: tuple[Event, ...]
    each: Mapping[int, Told | None]
    read: tuple[Told, ...]
    digest: Digest
    begun: int
    """How many events were before its newest round, and what those come to."""
    past: Digest


class Recall:
    """Remembers what was read of one run. Without one, or with a fresh one, a picture is the same and takes longer."""

    def __init__(self) -> None:
        self._journals: dict[str, _Journal] = {}
        self._tale: tuple[object, Tale] | None = None

    def hear(self, nodes: Iterable[NodeSeen]) -> list[Heard]:
        """Return each node once, with its journal read. What is not among these nodes any more is forgotten."""
        once = each_once(nodes)
        self._journals = {one.node: self._journal(one) for one in once}
        return [hear(one, self._journals[one.node].read, self._journals[one.node].digest) for one in once]

    def _journal(self, one: NodeSeen) -> _Journal:
        known = self._journals.get(one.node)
        if known is not None and known.events == one.events:  # mostly the same objects, which takes no time
            return known
        before = {} if known is None else known.each  # whose events are held, so that no other has their identity
        found = list(map(before.get, map(id, one.events)))
        found = [told(event, one.node) if old is None else old for event, old in zip(one.events, found, strict=True)]
        each, read = dict(zip(map(id, one.events), found, strict=True)), in_order(found)
        begun = next((at for at in range(len(read) - 1, -1, -1) if read[at].name == "planaria.round.started"), 0)
        is_known = known is not None and read[:begun] == known.read[: known.begun]
        past = known.past if known is not None and is_known else digest(read[:begun])
        return _Journal(one.events, each, read, together(past, digest(read[begun:])), begun, past)

    def tale(self, heard: Sequence[Heard], left: frozenset[str]) -> Tale:
        """Return what happened to the run."""
        whatever_counts = [one.digest.happened for one in heard], left
        if self._tale is None or self._tale[0] != whatever_counts:
            self._tale = whatever_counts, story.tale([event for one in heard for event in one.digest.happened], left)
        return self._tale[1]
