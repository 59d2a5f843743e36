"""What the ranks of a node have on a disk by themselves, as those of a sharded model do: the agent only hears of it. Pure."""

from __future__ import annotations

from planaria.contract.commit import Stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.control import Stored
    from planaria.contract.env import Round


class Hearsay:
    """Takes the words of the ranks of one node, life by life. Of several states each has its own commits."""

    def __init__(self) -> None:
        self._life: Round | None = None
        self._is_over = False
        self._words: dict[tuple[int, int], Stored] = {}  # by local rank and state: the last of this life
        self._done: dict[int, Stamp] = {}  # by state: the newest of this life
        self._newest: Stamp | None = None

    def begin(self, life: Round) -> None:
        """Hear the ranks of this life from now on: what they begin from may be older than what was there."""
        self._life, self._is_over, self._words, self._done = life, False, {}, {}

    def end(self) -> None:
        """Take note that this life is over and another is to come: what it had begun is lost, whatever ends the node now."""
        self._is_over = True

    def hear(self, local_rank: int, word: Stored) -> None:
        """Take a rank's word. The first to say that a commit is done speaks for all, since it has all their parts."""
        assert self._life is not None
        self._words[local_rank, word.state] = word
        if word.is_nothing:
            if word.state not in self._done:  # else another rank is ahead, and has made one since
                self._newest = next(reversed(self._done.values()), None)
            return
        stamp = self._stamp(word)
        if word.is_done and stamp.order >= self._done.get(word.state, stamp).order:
            self._done[word.state] = self._newest = stamp

    @property
    def newest(self) -> Mapping[str, Stamp]:
        """Return the newest commit, by tier: of several states, of the one that was heard of last."""
        return {} if self._newest is None else {"disk": self._newest}

    @property
    def is_whole(self) -> bool:
        """Tell whether there is a commit on disk, and no rank has begun a newer one of its state.

        A life that ends before its ranks have restored has lost nothing: what the one before had is still there.
        """
        return self._newest is not None and (self._is_over or all(map(self._is_safe, self._words.values())))

    def _is_safe(self, word: Stored) -> bool:
        done = self._done.get(word.state)
        return word.is_done or (done is not None and self._stamp(word).order <= done.order)

    def _stamp(self, word: Stored) -> Stamp:
        assert self._life is not None
        return Stamp(word.run, 0, word.generation, word.step, self._life.world_size, self._life.first_rank)
