"""What the API server would not have: told to the job, and not asked again every time somebody looks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planaria.errors import KubeError
    from planaria.kube.model import Create
    from planaria.kube.watching import Key

REFUSED_S = 30.0  # until something that was refused is tried again
# What the server puts around the cause: the object once more, and for what is no JSON of that kind some letters of it.
_OBJECT = re.compile(r'[\w./]+ "[^"]*" is (?:invalid|forbidden): ')
_CONTEXT = re.compile(r", error found in #\d+ byte of \.\.\..*", re.DOTALL)


def sentence_of(action: Create, problem: KubeError) -> str:
    """Say of what was refused, once, why."""
    said = problem.said or problem.message
    if (found := _OBJECT.match(said)) is not None:
        said = said[found.end() :]
    return f"{action.kind} {action.name} was refused: {_CONTEXT.sub('', said)}"


class Refusals:
    """By job: what was refused, when, and the server's words. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[Key, dict[tuple[str, str], tuple[str, float]]] = {}
        self._generations: dict[Key, int] = {}

    def of(self, key: Key, generation: int) -> dict[tuple[str, str], str]:
        """Return the sentences about a job, by kind and name. One stays until it was tried again, or is not wanted any more.

        What was refused of another spec says nothing about this one, and is tried at once.
        """
        if self._generations.get(key) != generation:
            self._known.pop(key, None)
            self._generations[key] = generation
        now = self._clock()
        known = self._known.get(key, {}).items()
        return {place: sentence for place, (sentence, at) in known if now - at < 3 * REFUSED_S}

    def is_fresh(self, key: Key, action: Create) -> bool:
        """Tell whether it is too early to try again."""
        told = self._known.get(key, {}).get((action.kind, action.name))
        return told is not None and self._clock() - told[1] < REFUSED_S

    def add(self, key: Key, action: Create, sentence: str) -> None:
        """Take note of a refusal."""
        self._known.setdefault(key, {})[action.kind, action.name] = sentence, self._clock()

    def clear(self, key: Key, action: Create) -> None:
        """Take note that it was made after all."""
        self._known.get(key, {}).pop((action.kind, action.name), None)

    def keep(self, key: Key, wanted: Collection[tuple[str, str]]) -> None:
        """Forget what was refused and nobody wants any more: it says nothing about what is wanted later."""
        known = self._known.get(key, {})
        for place in [place for place in known if place not in wanted]:
            del known[place]

    def forget(self, key: Key) -> None:
        """Forget a job."""
        self._known.pop(key, None)
        self._generations.pop(key, None)
