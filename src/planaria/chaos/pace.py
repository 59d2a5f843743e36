"""When a job is at work again, and when the next fault is due: some steps later, or after a while where it tells none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.chaos.seen import World

WITHOUT_STEPS_S = 1.0
FIRST_STEP_WITHIN_S = 10.0
"""A job that was whole for so long and has not told any step is taken for one that tells none."""


class Pace:
    """The pace of one campaign. It is told what is seen, and when."""

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._tells_steps: bool | None = None
        self._after_steps = 0
        self._since: float | None = None
        self._first_step: int | None = None

    def expect(self, after_steps: int) -> None:
        """Begin to wait for the next fault."""
        self._after_steps = after_steps
        self._since = self._first_step = None

    def is_due(self, seen: World, now: float) -> bool:
        """Tell whether the job, which is whole, has come to the moment of the fault."""
        if self._since is None:
            self._since = now
        waited_s = now - self._since
        if seen.step is not None:
            self._tells_steps = True
            if self._first_step is None:
                self._first_step = seen.step
            return waited_s >= self._pace_s and seen.step >= self._first_step + self._after_steps
        if self._tells_steps is None and waited_s >= FIRST_STEP_WITHIN_S:
            self._tells_steps = False
        return self._tells_steps is False and waited_s >= (self._pace_s or WITHOUT_STEPS_S)


class Recovery:
    """The way back from a fault. A job is at work again when all ranks have made a step after the fault was over."""

    def __init__(self, before: World, *, is_anew: bool, is_fatal: bool) -> None:
        self._before = before
        self._is_anew = is_anew
        self._is_fatal = is_fatal
        self._first_step: int | None = None

    def is_back(self, seen: World) -> bool:
        """Tell so of a job that is whole. Where no steps are told, being whole has to do."""
        if self._is_anew or seen.round > self._before.round:
            return seen.step is not None or self._before.step is None
        if self._is_fatal or seen.step is None or self._before.step is None:
            return not self._is_fatal and self._before.step is None
        if self._first_step is None:
            self._first_step = seen.step
        return seen.step > self._first_step
