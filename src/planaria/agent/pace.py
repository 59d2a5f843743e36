"""How fast a node's workers step, and for how long they have stepped. Pure: whoever tells, tells when.

A life trains from the first step that was reported in it to the last: what lies before is start-up, what lies after was lost.
Between two reports of a rank it trains, too, unless that was a silence far longer than its steps usually take.
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
GAPS = 9  # a rank's last so many gaps tell what is usual: one long silence among them changes nothing


def samples_of(report: Progress) -> float | None:
    """Return how many samples a rank says it has seen; None where it does not say, or what it says is no number."""
    samples = dict(report.values).get("samples")
    return samples if samples is not None and isfinite(samples) else None


class _Runner:
    """One rank of a life: where it began, where it is, and where it was during the last seconds."""

    __slots__ = ("first", "gaps", "newest", "trail")

    def __init__(self, step: int, samples: float | None, at: float) -> None:
        self.first = step
        self.gaps: list[float] = []
        self.newest = (at, step, samples)
        self.trail = [self.newest]

    def is_fresh(self, gap_s: float) -> bool:
        """Tell whether a silence of this length is one of a rank that trains."""
        return gap_s <= FRESH_S or (bool(self.gaps) and gap_s <= FRESH_STEPS * sorted(self.gaps)[len(self.gaps) // 2])

    def report(self, step: int, samples: float | None, at: float) -> None:
        self.gaps = [*self.gaps[1 - GAPS :], at - self.newest[0]]
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
        self._counted_until: float | None = None
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
            self._at_work_since, self._counted_until = now, None
        elif not at_work and self._at_work_since is not None:
            self._working_s += now - self._at_work_since
            self._at_work_since = self._counted_until = None

    def report(self, local_rank: int, step: int, samples: float | None, at: float) -> None:
        """Take a rank's word for how far it is."""
        runner = self._runners.get(local_rank)
        if self._at_work_since is not None:
            self._counted_until = at if self._counted_until is None else self._counted_until
            if runner is not None and (not runner.gaps or runner.is_fresh(at - runner.newest[0])):
                self._stepping_s += max(0.0, at - max(runner.newest[0], self._counted_until))
            self._counted_until = max(at, self._counted_until)
        if runner is None:
            self._runners[local_rank] = _Runner(step, samples, at)
        else:
            runner.report(step, samples, at)
        self.is_reported = True

    def trained_s(self, now: float) -> float:
        """Return for how many seconds the workers have trained; the silence that goes on counts while it is not too long."""
        if not self.is_reported:
            return self._working_s + (0.0 if self._at_work_since is None else now - self._at_work_since)
        counted_until = self._counted_until
        if counted_until is None or not any(one.is_fresh(now - one.newest[0]) for one in self._runners.values()):
            return self._stepping_s
        return self._stepping_s + max(0.0, now - counted_until)

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
