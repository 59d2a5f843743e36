"""What a node that leaves in good order says in the store: that it has left, and who else has. No clock, no sockets.

Whoever comes when all have left, at another address, could not tell otherwise whether they live and are only out of reach. Each
adds its own name, by compare-and-set: nodes that leave in the same moment know nothing of each other.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous.keys import Left, left_record, read_left
from planaria.rendezvous.model import WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.model import Effect, Standing

MOST_LEAVING = 64  # of a larger round, so many could write at the same moment that the store has nothing else to do


class Farewell:
    """What this agent knows of the key `left`, and what it has yet to say there itself."""

    def __init__(self, own: str) -> None:
        self.left = Left()
        self._own = own
        self._revision = 0
        self._gone: frozenset[str] = frozenset()
        self._wanted: Left | None = None
        self._asked: Left | None = None
        self._tried: int | None = None
        self._awaits_round = False

    @property
    def is_under_way(self) -> bool:
        """Tell whether something has to be said yet."""
        return self._wanted is not None or self._awaits_round

    def left_of(self, standing: Standing) -> frozenset[str]:
        """Return who has left a round, as far as the store says."""
        return self.left.nodes if self.left.is_of(standing) else frozenset()

    def begin(self, last: Standing, members: set[str], gone: set[str], *, awaits_round: bool) -> list[Effect]:
        """Say who of the newest round is gone, with this node. `awaits_round`: a newer one is just being written."""
        self._gone = frozenset(gone)
        self._awaits_round = awaits_round
        self._aim(last, members)
        return self.go_on()

    def _aim(self, last: Standing, members: set[str]) -> None:
        nodes = self._gone & members
        if nodes and last.round >= 0 and last.size <= MOST_LEAVING:
            self._wanted, self._tried = Left(last.epoch, last.term, last.round, last.next_round, nodes), None

    def found(self, text: str | None, revision: int) -> None:
        """Take what the key says now."""
        self.left, self._revision = read_left(text), revision

    def found_round(self, newest: Standing) -> None:
        """Take the newest round that is in the store. If it came with our own name after all, that is the one we left."""
        self._awaits_round = False
        members = {one.node for one in newest.deputies[: newest.size]}
        if self._own in self._gone & members:
            self._aim(newest, members)

    def round_written(self, *, is_done: bool) -> None:
        """Take what came of a round that was being written: nothing, or it is about to be found."""
        self._awaits_round &= is_done

    def written(self, *, is_done: bool) -> None:
        """Take what came of our own word. Where another came first, theirs is about to be found."""
        if is_done and self._asked is self._wanted:
            self._wanted = None
        self._asked = None

    def go_on(self) -> list[Effect]:
        """Return what is to be written now."""
        wanted, known = self._wanted, self.left
        if wanted is None or self._asked is not None or self._tried == self._revision:
            return []
        is_same = (known.epoch, known.term, known.round) == (wanted.epoch, wanted.term, wanted.round)
        is_old = known.epoch == wanted.epoch and (known.term, known.round) > (wanted.term, wanted.round)
        if is_old or (is_same and known.nodes >= wanted.nodes):
            self._wanted = None
            return []
        self._asked, self._tried = wanted, self._revision
        if is_same:
            following = max(known.next_round, wanted.next_round)
            wanted = replace(wanted, nodes=known.nodes | wanted.nodes, next_round=following)
        return [WriteKey("left", left_record(wanted), self._revision)]
