"""Training loops without training: ranks in lockstep, loaders that load ahead, and deaths at any moment."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from planaria.worker.data import ElasticSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Ahead:
    """A loader that asks for so many batches before it hands out the first, as a DataLoader with workers does."""

    def __init__(self, batches: Iterable[list[int]], ahead: int) -> None:
        self.batches = batches
        self.ahead = ahead

    def __iter__(self) -> Iterator[list[int]]:
        coming = iter(self.batches)
        waiting: deque[list[int]] = deque()
        for batch in coming:
            waiting.append(batch)
            if len(waiting) > self.ahead:
                yield waiting.popleft()
        yield from waiting


class Life(NamedTuple):
    """A world and how it ends: after so many turns of this life, the last of them not committed."""

    world_size: int
    turns: int
    every: int = 1  # a commit after each so many steps


class Taken(NamedTuple):
    """One turn as the world took it: the epoch, and each rank's batch."""

    epoch: int
    batches: list[list[int]]


class Job:
    """A job of many lives over one dataset. What is not committed when a life ends is forgotten, as weights would be."""

    def __init__(self, samples: int, *, epochs: int, ahead: int = 4, **options: object) -> None:
        self.samples = samples
        self.epochs = epochs
        self.ahead = ahead
        self.options = options
        self.state: dict[str, object] | None = None
        self.kept: list[Taken] = []

    def samplers(self, world_size: int) -> list[ElasticSampler]:
        found = [
            ElasticSampler(self.samples, rank=rank, world_size=world_size, **self.options)  # type: ignore[arg-type]
            for rank in range(world_size)
        ]
        for sampler in found:
            if self.state is not None:
                sampler.load_state_dict(self.state)
        return found

    def live(self, life: Life) -> bool:
        """Live until that death; return whether the training came to its end before."""
        samplers = self.samplers(life.world_size)
        loaders = [sampler.count(Ahead(sampler, self.ahead)) for sampler in samplers]
        turns, new = 0, []
        numbers = [sampler.epochs(self.epochs) for sampler in samplers]
        while (epoch := self._agreed([next(number, None) for number in numbers])) is not None:
            expected = len(samplers[0])
            for batches in zip(*loaders, strict=True):
                if turns == life.turns:
                    return False
                turns += 1
                expected -= 1
                assert [len(sampler) for sampler in samplers] == [expected] * life.world_size
                for batch, sampler in zip(batches, samplers, strict=True):
                    assert sampler.portion is not None
                    assert len(batch) == sampler.portion.size
                new.append(Taken(epoch, list(batches)))
                if samplers[0].portion.closes and samplers[0].steps % life.every == 0:  # type: ignore[union-attr]
                    self._commit(samplers, new)
            assert expected == 0
        self._commit(samplers, new)
        return True

    def _commit(self, samplers: list[ElasticSampler], new: list[Taken]) -> None:
        self.state = self._agreed([sampler.state_dict() for sampler in samplers])
        self.kept += new
        new.clear()

    @staticmethod
    def _agreed(answers: list) -> object:  # type: ignore[type-arg]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]
