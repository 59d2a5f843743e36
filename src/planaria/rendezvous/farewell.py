"""What a node that leaves in good order says in the store: that it has left, and who else has. No clock, no sockets.

Whoever comes when all have left, at another address, could not tell otherwise whether they live and are only out of reach. Each
adds its own name, by compare-and-set: nodes that leave in the same moment know nothing of each other. A name stands for good,
since no node ever has that of another; the next to leave drops it when the store has a newer round than those it was said of.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous.keys import Left, left_record, read_left
from planaria.rendezvous.model import Say, WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from planaria.rendezvous.model import Effect, Standing

MOST_LEAVING = 32  # of a larger round, so many could write at the same moment that none of them is done in time
LONGEST_LEFT = 60_000  # characters, which are bytes here: below a store's 64 KiB


class Farewell:
    """What this agent knows of the key `left`, and what it has yet to say there itself."""

    def __init__(self) -> None:
        self.left = Left()
        self._revision = 0
        self._wanted: Left | None = None
        self._tried: int | None = None
        self._is_writing = False

    @property
    def is_under_way(self) -> bool:
        """Tell whether something has to be said yet."""
        return self._wanted is not None

    @property
    def everybody(self) -> frozenset[str]:
        """Return all who have left, of whatever round: also of one that was announced and never written."""
        return frozenset(node for _, _, node in self.left.names)

    def left_of(self, standing: Standing) -> frozenset[str]:
        """Return who has left a round, as far as the store says."""
        if self.left.epoch != standing.epoch:
            return frozenset()
        return frozenset(
            node for term, number, node in self.left.names if (term, number) == (standing.term, standing.round)
        )

    def begin(self, gone: set[str], rounds: Iterable[tuple[Standing, set[str]]], newest: Standing) -> list[Effect]:
        """Say who is gone of some rounds, each with its members, with this node. `newest` is the round in the store."""
        known = [(one, members & gone) for one, members in rounds if one.round >= 0 and one.size > 0]
        # Of a large round only whoever knows that all are gone: no two have to write in the same moment.
        known = [(one, nodes) for one, nodes in known if one.size <= MOST_LEAVING or len(nodes) >= one.size]
        names = frozenset((one.term, one.round, node) for one, nodes in known for node in nodes)
        if names:
            following = max(one.next_round for one, _ in known)
            self._wanted = Left(known[0][0].epoch, following, names)
        return self.go_on(newest)

    def found(self, text: str | None, revision: int) -> None:
        """Take what the key says now."""
        self.left, self._revision = read_left(text), revision

    def written(self, *, is_done: bool) -> None:
        """Take what came of our own word. Where another came first, theirs is about to be found."""
        self._is_writing = False
        if is_done:
            self._wanted = None

    def go_on(self, newest: Standing) -> list[Effect]:
        """Return what is to be written now."""
        wanted, known = self._wanted, self.left
        if wanted is None or self._is_writing or self._tried == self._revision:
            return []
        if newest.epoch not in ("", wanted.epoch):  # there is another run by now, with a word of its own
            self._wanted = None
            return []
        if known.epoch == wanted.epoch:
            kept = {row for row in known.names if row[:2] >= (newest.term, newest.round)}
            following = max(known.next_round, wanted.next_round)
            wanted = replace(wanted, names=wanted.names | kept, next_round=following)
        if known.epoch == wanted.epoch and known.names >= wanted.names:
            self._wanted = None
            return []
        text = left_record(wanted)
        if len(text) > LONGEST_LEFT:  # it would be refused again and again, for as long as we try
            self._wanted = None
            return [
                Say(f"{len(wanted.names)} nodes have left, too many to say so in the store: who comes later may wait")
            ]
        self._is_writing, self._tried = True, self._revision
        return [WriteKey("left", text, self._revision)]
