"""Tells a journal how far the workers of a node are, and which commit is the newest: at most once a second, while that moves.

Nothing ticks while nothing moves: a worker's word winds it up, and it runs until a second has passed without news.
"""

from __future__ import annotations

from planaria.agent.pace import samples_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.pace import Pace
    from planaria.base.loop import Loop, Timer
    from planaria.contract.commit import Stamp
    from planaria.contract.control import Progress

BEAT_S = 1.0


class Pulse:
    """`tell(name, at, metadata)` writes into the journal; what is asked for is read when a beat is due."""

    def __init__(self, loop: Loop, pace: Pace, tell: Callable[[str, float, dict[str, object]], object]) -> None:
        self._loop = loop
        self._pace = pace
        self._tell = tell
        self._timer: Timer | None = None
        self._told: Mapping[int, tuple[Progress, float]] = {}
        self._told_commits: dict[str, Stamp] = {}
        self._round = 0
        self._first_rank = 0
        self.began_at = 0.0
        """When the agent began."""
        self.reports: Callable[[], Mapping[int, tuple[Progress, float]]] = dict
        self.phases: Callable[[], Mapping[int, str]] = dict
        self.commits: Callable[[], Mapping[str, Stamp]] = dict

    def begin(self, number: int, first_rank: int) -> None:
        """Speak of the workers of a new round from now on; their first step is told at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._round, self._first_rank, self._told = number, first_rank, {}

    def stir(self) -> None:
        """Something may have moved. The first news after a rest are told at once, the others a beat later."""
        if self._timer is None:
            self._beat()

    def flush(self) -> None:
        """Tell what has not been told: the next thing that happens is the end of a life."""
        self._tell_progress()
        self._tell_commits()

    def _beat(self) -> None:
        self._timer = None
        if self._tell_progress() | self._tell_commits():
            self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _tell_progress(self) -> bool:
        reports = dict(self.reports())
        if not reports or reports == self._told:
            return False
        self._told = reports
        now = self._loop.now()
        ranks = {str(self._first_rank + one): self._rank(one, *reports[one], now) for one in sorted(reports)}
        told = {"trained_s": round(self._pace.trained_s(now), 3), "uptime_s": round(now - self.began_at, 3)}
        self._tell("planaria.progress", now, {"round": self._round, "ranks": ranks, **told})
        return True

    def _rank(self, local_rank: int, report: Progress, at: float, now: float) -> dict[str, object]:
        rate, samples_rate = self._pace.rates(local_rank, now)
        return {
            "step": report.step,
            "first": self._pace.first_step(local_rank),
            "samples": samples_of(report),
            "age_s": round(now - at, 3),
            "phase": self.phases().get(local_rank),
            "rate": rate,
            "samples_rate": samples_rate,
        }

    def _tell_commits(self) -> bool:
        news = {tier: stamp for tier, stamp in self.commits().items() if self._told_commits.get(tier) != stamp}
        for tier, stamp in news.items():
            told: dict[str, object] = {"tier": tier, "step": stamp.step, "run": stamp.run, "round": stamp.round}
            self._tell("planaria.commit", self._loop.now(), {**told, "generation": stamp.generation})
        self._told_commits |= news
        return bool(news)
