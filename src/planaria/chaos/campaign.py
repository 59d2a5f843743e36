"""A campaign: the job is started, struck as planned and watched to its end. What it came to is for `verdict` to say."""

from __future__ import annotations

import time

from planaria.base.value import Value, replace
from planaria.chaos import interrupt, shared
from planaria.chaos.hand import Hand, NotNow, Stuck
from planaria.chaos.model import Budget, Observed, Strike
from planaria.chaos.pace import Pace, Recovery
from planaria.chaos.seen import floor, is_safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.chaos.disk import Disk
    from planaria.chaos.job import Job
    from planaria.chaos.model import Fault
    from planaria.chaos.plan import Plan
    from planaria.chaos.seen import World
    from planaria.chaos.watch import Watch

PATIENCE_S = 120.0  # for a job to be at work again: a large model takes its time to start
LEFT_WITHIN_S = 5.0  # for shared memory to go: on a busy machine others come and go
TRIES = 3  # of a fault that has nothing to strike: a node may be on its way back, a commit on its way to the disk


class Over(Exception):
    """The job has ended."""


class Settings(Value):
    """What of the command line a campaign depends on."""

    pace_s: float
    time_limit_s: float
    expected: str | None
    compare: str
    usual_leaks: tuple[str, ...] = ()
    """What of shared memory the undisturbed run has left."""


class Campaign:
    """One campaign. `tell` hears of every fault when the job is well again."""

    def __init__(self, job: Job, watch: Watch, disk: Disk, orders: str, settings: Settings) -> None:
        self._job = job
        self._watch = watch
        self._settings = settings
        self._hand = Hand(job, watch, disk, orders)
        self._began_at = self._until = 0.0
        self._pace = Pace(settings.pace_s)
        self._strikes: list[Strike] = []

    def run(self, plan: Plan, tell: Callable[[Strike, float], None]) -> Observed:
        """Do all of it, and leave nothing behind; return what was seen."""
        self._began_at = time.monotonic()
        self._until = self._began_at + self._settings.time_limit_s
        stuck, is_interrupted, result = "", False, None
        shared_before = shared.names()
        try:
            self._job.begin()
            self._strike_all(plan, tell)
            result = self._finish()
        except Stuck as exc:
            stuck = str(exc)
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            interrupt.hush()
            self._job.end()
            self._watch.look()
            self._watch.wait(lambda: not shared.left(shared_before, self._settings.usual_leaks), LEFT_WITHIN_S)
        return Observed(
            planned=len(plan.faults),
            began_at=self._began_at,
            ended_at=time.monotonic(),
            strikes=tuple(self._strikes),
            workers=tuple(self._watch.workers()),
            ends=tuple(self._job.ends),
            said=tuple(self._watch.said),
            memory={agent: tuple(samples) for agent, samples in self._watch.memory.items()},
            budgets=tuple(self._budget(era) for era in range(self._job.era + 1)),
            shared_memory_left=shared.left(shared_before, self._settings.usual_leaks),
            expected=self._settings.expected,
            result=result,
            stuck=stuck,
            is_interrupted=is_interrupted,
        )

    def _budget(self, era: int) -> Budget:
        struck = [one for one in self._strikes if one.era == era and not one.left_out]
        return Budget(era, self._watch.charged.get(era, 0), sum(one.fault.is_charged for one in struck))

    def _strike_all(self, plan: Plan, tell: Callable[[Strike, float], None]) -> None:
        try:
            for fault in plan.faults:
                self._strike(fault)
                tell(self._strikes[-1], self._began_at)
        except Over:
            if self._strikes and self._strikes[-1].back_s is None and not self._strikes[-1].left_out:
                tell(self._strikes[-1], self._began_at)

    def _strike(self, planned: Fault) -> None:
        """Make a fault, and wait until the job is at work again. What has nothing to strike is tried again some steps later."""
        for tries_left in reversed(range(TRIES)):
            before = self._wait_due(planned)
            fault = planned if before.step is not None else planned.where_no_steps_are_told()
            safe = floor(before, fault.loss)
            strike = Strike(fault, time.monotonic(), self._job.era, before.round, before.step, safe)
            self._strikes.append(strike)
            try:
                found = self._hand.strike(fault)
            except NotNow as exc:
                self._strikes[-1:] = [] if tries_left else [replace(strike, left_out=str(exc))]
                continue
            self._strikes[-1] = replace(strike, floor=found if found is not None else safe)
            self._wait_back(before, fault, is_anew=self._job.era != strike.era)
            return

    def _wait_back(self, before: World, fault: Fault, *, is_anew: bool) -> None:
        self._job.forget()
        over_at = time.monotonic()
        recovery = Recovery(before, is_anew=is_anew, is_fatal=fault.is_fatal)
        self._wait(
            recovery.is_back,
            f"the job was not at work again within {PATIENCE_S:g} s after fault {fault.number}, {fault}",
        )
        self._strikes[-1] = replace(self._strikes[-1], back_s=time.monotonic() - over_at)

    def _wait_due(self, fault: Fault) -> World:
        """Wait until the job is whole, one more loss is bearable, and it has made as many steps as the plan says."""
        self._pace.expect(fault.after_steps)
        return self._wait(
            lambda seen: is_safe(seen) and self._pace.is_due(seen, time.monotonic()),
            f"the job did not come to the step of fault {fault.number} within {PATIENCE_S:g} s",
        )

    def _wait(self, is_it: Callable[[World], bool], why: str) -> World:
        """Wait for a world that is whole and so. Raises Over when the job ends before, Stuck when it takes too long."""
        until = min(time.monotonic() + PATIENCE_S + self._settings.pace_s, self._until)

        def look() -> World | None:
            seen = self._job.world()
            if seen is not None and is_it(seen):
                return seen
            if self._job.is_over:
                raise Over
            return None

        found = self._watch.wait(look, until - time.monotonic())
        if found is None:
            raise Stuck(self._out_of_time if time.monotonic() >= self._until else why)
        return found

    @property
    def _out_of_time(self) -> str:
        return f"the job did not end within the time limit of {self._settings.time_limit_s:g} s"

    def _finish(self) -> str | None:
        """Let the job come to its end; return its result."""
        if not self._watch.wait(lambda: self._job.is_over, self._until - time.monotonic()):
            raise Stuck(self._out_of_time)
        if late := self._job.bury_all():
            raise Stuck(late)
        if self._settings.expected is None:
            return None
        if self._settings.compare:
            return digest(self._settings.compare)
        firsts = [worker for worker in self._watch.workers() if worker.rank == 0]
        last = max(firsts, key=lambda worker: (worker.era, worker.round), default=None)
        return self._job.last_words(last.node) if last is not None else None


def digest(path: str) -> str | None:
    """Return what is compared of a file; None: there is none."""
    import hashlib

    try:
        with open(path, "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except FileNotFoundError:
        return None
