"""What a commit needs of each tensor, taken when the step before it is over.

A commit holds the tensors that it copies, and knows torch's counts of their changes: one that changes before its copy is over
is noticed. To read 600 of them takes half a millisecond when caches are cold, as they are when `commit()` is called. Right
behind a step, which was at work on all of them, it takes a fraction of that.

Between a step and its commit a program may change tensors, and then the counts are of too early a moment. So they are compared
once with those of the commit, before they are relied upon; and the thread that seals compares them again, every time. If they
are others there, that commit is not kept, since nobody knows on which side of it the change was, and all later ones count for
themselves.
"""

from __future__ import annotations

import weakref
from types import NoneType

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from planaria.worker.capture import Captured


class Ready(Value):
    """The tensors of the commit before, by number, with their counts of changes, when a step was over."""

    captured: Captured
    sources: list[Any]
    marks: list[int]


class Readiness:
    """Gets a commit ready behind the last step before it: the one whose number it was the last time."""

    def __init__(self) -> None:
        self._captured: Callable[[], Captured | None] = NoneType
        self._steps = 0  # since the last commit
        self._steps_between = 0  # the last two commits
        self._ready: Ready | None = None
        self._is_good: bool | None = None  # None until it was compared

    def begin_step(self) -> None:
        """Forget what was taken: a step is about to change it."""
        self._ready = None

    def end_step(self) -> None:
        """Take what the next commit needs, if it is the next thing to come."""
        self._steps += 1
        captured = self._captured()
        if self._steps != self._steps_between or captured is None or self._is_good is False:
            return
        sources = captured.tensors()
        if sources and (marks := marks_of(sources)):
            self._ready = Ready(captured, sources, marks)

    def taken(self) -> Ready | None:
        """Return what was taken and may be relied upon. It is a commit's then."""
        if not self._is_good:
            return None
        ready, self._ready = self._ready, None
        return ready

    @property
    def is_to_compare(self) -> bool:
        """Tell whether something was taken that has not been compared."""
        return self._ready is not None and self._is_good is None

    def compare(self, marks: Mapping[int, int]) -> None:
        """Compare with the counts of a commit, by number: is a step the last to change what it changes?"""
        if self._ready is not None:
            before = self._ready.marks
            self._is_good = all(before[number] == mark for number, mark in marks.items() if number < len(before))

    def depart(self, captured: Captured) -> None:
        """See a commit off. Who looks at each tensor anyway has nothing made ready."""
        self._ready, self._captured = None, weakref.ref(captured) if captured.is_hasty else NoneType
        self._steps, self._steps_between = 0, self._steps

    def distrust(self) -> None:
        """Take nothing any more. For the thread that seals."""
        self._is_good = False


def marks_of(sources: Sequence[Any]) -> list[int]:
    """Return torch's count of changes of each tensor. It has none of tensors that were made for inference."""
    try:
        return [source._version for source in sources]  # noqa: SLF001  torch documents it
    except RuntimeError:
        return []
