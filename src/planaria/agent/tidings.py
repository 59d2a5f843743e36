"""What a leading agent lets a cluster know of its run, and when: a record of `contract.progress`, now and then. Pure."""

from __future__ import annotations

from planaria.agent.pace import samples_of
from planaria.base.value import Value
from planaria.contract.progress import Record, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.control import Progress
    from planaria.contract.env import Round

APART_S = 10.0
"""Between two records at least: with the renewals of a lease, a run writes less than once a second."""


class Standing(Value):
    """What a record is made from. `reports`: the newest of each local rank, and when it came."""

    is_leading: bool
    life: Round | None
    reports: Mapping[int, tuple[Progress, float]]
    happened: int = 0
    """How many events the journal of this node has had."""


class Tidings:
    """Decides when there is something to tell, and what."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._round = -1
        self._began_at = 0.0
        self._told_at: float | None = None
        self._told: tuple[str, int] = "", 0

    def news(self, standing: Standing, now: float) -> str | None:
        """Return the record to be written now, or None."""
        life = standing.life
        if life is not None and life.number != self._round:
            self._round, self._began_at = life.number, now
        if life is None or not standing.is_leading:
            return None
        if self._told_at is not None and now < self._told_at + APART_S:
            return None
        record = self._record(life, standing.reports)
        if self._told == (record, standing.happened):  # a job that hangs makes no progress, and that is told
            return None
        self._told, self._told_at = (record, standing.happened), now
        return record

    def _record(self, life: Round, reports: Mapping[int, tuple[Progress, float]]) -> str:
        step: int | None = None
        samples: int | None = None
        seconds = 0.0
        if reports:
            # Ranks are in step; where they are not, the first is the one people look at.
            report, at = reports[min(reports)]
            step, seconds = report.step, max(at - self._began_at, 0.0)
            counted = samples_of(report)
            samples = None if counted is None else int(counted)
        return write(Record(self._agent, life.number, life.group_world_size, life.world_size, step, samples, seconds))
