"""What the ranks of a node have on a disk by themselves, as those of a sharded model do: the agent only hears of it. Pure."""

from __future__ import annotations

from planaria.contract.commit import Stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.control import Stored
    from planaria.contract.env import Round

MOST_WORDS = 4096  # that are kept: of each rank and state the last


class Hearsay:
    """Takes the words of the ranks of one node, life by life. Of several states each has its own commits.

    Within a life the numbers of a state's commits grow; across lives nothing is compared, since a folder may have been copied.
    """

    def __init__(self) -> None:
        self._life: Round | None = None
        self._is_over = self._is_full = False
        self._words: dict[tuple[int, int], Stored] = {}  # by local rank and state: the last of this life
        self._done: dict[
            int, Stamp
        ] = {}  # by state: the newest of this life, that of the state heard of last at the end
        self._before: dict[int, Stamp] = {}  # by state: the newest of the lives before, the same way

    def begin(self, life: Round) -> None:
        """Hear the ranks of this life from now on: what they begin from may be older than what was there."""
        kept = {state: stamp for state, stamp in self._before.items() if state not in self._done}
        self._before = dict([*kept.items(), *self._done.items()][-MOST_WORDS:])
        self._life, self._is_over, self._is_full, self._words, self._done = life, False, False, {}, {}

    def end(self) -> None:
        """Take note that this life is over and another is to come: what it had begun is lost, whatever ends the node now."""
        self._is_over = True

    def hear(self, local_rank: int, word: Stored) -> None:
        """Take a rank's word. The first to say that a commit is done speaks for all, since it has all their parts."""
        if (local_rank, word.state) not in self._words and len(self._words) >= MOST_WORDS:
            self._is_full = True
            return
        self._words[local_rank, word.state] = word
        if word.is_nothing:  # it begins from nothing, unless another rank is ahead and has made a commit since
            self._before.pop(word.state, None)
        elif word.is_done and not self._is_done(word):
            self._done.pop(word.state, None)
            self._done[word.state] = self._stamp(word)

    @property
    def newest(self) -> Mapping[str, Stamp]:
        """Return the newest commit, by tier: of several states, of the one that had one last."""
        found = [*self._before.values(), *self._done.values()]
        return {"disk": found[-1]} if found else {}

    @property
    def is_whole(self) -> bool:
        """Tell whether there is a commit on disk, and no rank has begun a newer one of its state.

        A life that ends before its ranks have restored has lost nothing: what the one before had is still there.
        """
        are_safe = not self._is_full and all(word.is_done or self._is_done(word) for word in self._words.values())
        return bool(self._before or self._done) and (self._is_over or are_safe)

    def _is_done(self, word: Stored) -> bool:
        """Tell whether this commit of a state, or a newer one, is on disk."""
        done = self._done.get(word.state)
        return done is not None and word.generation <= done.generation

    def _stamp(self, word: Stored) -> Stamp:
        assert self._life is not None
        return Stamp(word.run, 0, word.generation, word.step, self._life.world_size, self._life.first_rank)
