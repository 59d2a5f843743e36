"""How fast a node's workers step, and for how long they have stepped. Pure: whoever tells, tells when.

A life trains from the first step that was reported in it to the last: what lies before is start-up, what lies after was lost.
Where no worker ever reports, the time at work has to stand for it.
"""

from __future__ import annotations

from math import isfinite

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.control import Progress

WINDOW_S = 10.0
SAMPLE_S = 0.5  # ranks may report a thousand times a second
FRESH_S = 10.0  # a step may take this long, or three times the usual, before it no longer counts as training
FRESH_STEPS = 3.0


def samples_of(report: Progress) -> float | None:
    """Return how many samples a rank says it has seen; None where it does not say, or what it says is no number."""
    samples = dict(report.values).get("samples")
    return samples if samples is not None and isfinite(samples) else None


class _Runner:
    """One rank of a life: where it began, where it is, and where it was during the last seconds."""

    __slots__ = ("first", "newest", "trail")

    def __init__(self, step: int, samples: float | None, at: float) -> None:
        self.first = step
        self.newest = (at, step, samples)
        self.trail = [self.newest]

    def report(self, step: int, samples: float | None, at: float) -> None:
        self.newest = (at, step, samples)
        if at - self.trail[-1][0] >= SAMPLE_S:
            self.trail.append(self.newest)
            while len(self.trail) > 2 and at - self.trail[1][0] >= WINDOW_S:
                self.trail.pop(0)


class Pace:
    """One node's workers, through all their lives."""

    def __init__(self) -> None:
        self._runners: dict[int, _Runner] = {}
        self._at_work_since: float | None = None
        self._first_at: float | None = None
        self._last_at = 0.0
        self._steps = 0
        self._stepping_s = 0.0
        self._working_s = 0.0
        self.is_reported = False
        """Whether any worker ever said how far it is."""

    def begin(self) -> None:
        """Forget the workers of the last life."""
        self._runners = {}

    def is_at_work(self, now: float, *, at_work: bool) -> None:
        """Note whether the workers of this node are at work in a round."""
        if at_work and self._at_work_since is None:
            self._at_work_since, self._first_at, self._steps = now, None, 0
        elif not at_work and self._at_work_since is not None:
            self._working_s += now - self._at_work_since
            self._stepping_s += 0.0 if self._first_at is None else self._last_at - self._first_at
            self._at_work_since = self._first_at = None

    def report(self, local_rank: int, step: int, samples: float | None, at: float) -> None:
        """Take a rank's word for how far it is."""
        runner = self._runners.get(local_rank)
        if runner is None:
            self._runners[local_rank] = _Runner(step, samples, at)
        else:
            runner.report(step, samples, at)
        self.is_reported = True
        if self._at_work_since is not None:
            self._first_at = at if self._first_at is None else self._first_at
            self._last_at = at
            self._steps += 1

    def trained_s(self, now: float) -> float:
        """Return for how many seconds the workers have trained."""
        if not self.is_reported:
            return self._working_s + (0.0 if self._at_work_since is None else now - self._at_work_since)
        if self._first_at is None:
            return self._stepping_s
        usual_s = (self._last_at - self._first_at) / max(1, self._steps - 1)
        is_fresh = now - self._last_at <= max(FRESH_S, FRESH_STEPS * usual_s)
        return self._stepping_s + (now if is_fresh else self._last_at) - self._first_at

    def first_step(self, local_rank: int) -> int | None:
        """Return the first step that a rank reported in this life."""
        runner = self._runners.get(local_rank)
        return None if runner is None else runner.first

    def rates(self, local_rank: int, now: float) -> tuple[float | None, float | None]:
        """Return a rank's steps and samples a second over the last seconds; None before its second report, 0.0 at rest."""
        runner = self._runners.get(local_rank)
        if runner is None or runner.newest[0] <= runner.trail[0][0]:
            return None, None
        (began, step, samples), (ended, last_step, last_samples) = runner.trail[0], runner.newest
        # Who has said nothing for longer than all of that is slower than it was.
        seconds = max(ended - began, now - ended)
        rate = max(0.0, (last_step - step) / seconds)
        if samples is None or last_samples is None:
            return round(rate, 4), None
        return round(rate, 4), round(max(0.0, (last_samples - samples) / seconds), 4)
