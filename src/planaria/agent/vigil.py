"""Watch over the progress of this node's ranks: hear their signs, look when one is late, have it examined, act as was asked.

An agent imports this when a worker reports for the first time. Who hangs, who is slow and what is done about it is decided by
`hangs`, `stragglers` and `charge`; when to look, and which signs count while somebody is examined, is decided here.
"""

from __future__ import annotations

import os
import time

from planaria.agent import proc
from planaria.agent.charge import MOST_FOLDERS, STOPPED_S, WRITING_S, Charge, order
from planaria.agent.examiner import Examination, Found, Request, known
from planaria.agent.hangs import Hangs
from planaria.agent.model import EndRequested, ScopeExpired
from planaria.agent.pace import samples_of
from planaria.agent.pause import Pause
from planaria.agent.stragglers import Stragglers
from planaria.base import signals
from planaria.base.text import safe_line
from planaria.base.value import Value, replace
from planaria.contract.control import Look, Progress, encode
from planaria.contract.failure import HANG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from planaria.agent.driver import Driver
    from planaria.agent.hangs import Call, Standing
    from planaria.agent.model import Job
    from planaria.agent.stragglers import Straggler
    from planaria.agent.suspects import Examined
    from planaria.base.loop import Loop, Timer
    from planaria.contract.env import Round
    from planaria.process.workers import WorkerSeen

LATE_S = 1.0  # a loop that comes so much later than it wanted was stopped itself
STRAGGLERS_EVERY_S = 10.0


class _Hang(Value):
    """What was called: in which life, where its evidence goes, and the ranks that stand still, the one behind first."""

    at: float
    life: Round
    folder: str
    still: Mapping[int, Standing]


class _Open(Value):
    """A hang that is not over: what was told of it, and who is charged with it yet."""

    told: dict[str, object]
    charge: Charge


class Vigil:
    """That of one agent. `hangs` are all that were told, for the report."""

    def __init__(self, job: Job, loop: Loop, driver: Driver, host: str) -> None:
        self._job = job
        self._loop = loop
        self._driver = driver
        self._host = host
        self._watch = Hangs(job.vigilance.floor_s)
        self._stragglers = Stragglers()
        self._timer: Timer | None = None
        self._looked_at = 0.0
        self._examination: Examination | None = None
        self._is_judged = False  # and its files are being written
        self._is_resumed = False
        self._due: Callable[[], object] | None = None  # what is done about the newest hang
        self._patience: Timer | None = None  # for its evidence
        self._pause = Pause(loop)  # for what would end those that are examined
        self._gone_on: dict[int, str] = {}  # while they were examined, and how
        self._called = 0
        self._speakers: set[int] = set()
        self._open: list[_Open] = []
        self._compared_at = 0.0
        self.stragglers: tuple[Straggler, ...] = ()
        self.hangs: list[dict[str, object]] = []
        self.wall_s: Callable[[], float] = time.time  # noqa: TID251  folders have the time that people know in their name

    def begin(self, workers: tuple[WorkerSeen, ...]) -> None:
        """Begin a life."""
        self.end()
        self._watch.begin((one.local_rank, one.started_at) for one in workers if one.is_alive)

    def end(self) -> None:
        """Forget a life that has ended, and what was being found out about it."""
        if self._examination is not None:
            self._examination.cancel()
            self._examination = None
        self._drop_due()
        self._look_at(None)
        self._watch.begin(())
        self._stragglers, self.stragglers = Stragglers(), ()
        self._speakers = set()
        self._open = []
        self._pause.release()

    def once_looked(self, go_on: Callable[[], object]) -> None:
        """Do something that ends the workers; if they are being examined, when that is over, but not much later."""
        if self._examination is None:
            go_on()
        else:
            self._pause.keep(go_on, STOPPED_S)

    def exited(self, local_rank: int) -> None:
        """Watch a worker no more. One that ends did not hang, or does so no more."""
        self._watch.ended(local_rank)
        self._take_off(local_rank, "has ended")

    def speaks(self, local_rank: int) -> None:
        """Note that a rank reports by itself: when its connection goes, nothing more can be known of it."""
        self._speakers.add(local_rank)

    def progressed(self, local_rank: int, report: Progress) -> None:
        """Take a report."""
        self._forgive()
        now, samples = self._loop.now(), samples_of(report)
        if self._watch.progressed(local_rank, report.step, samples, now, learns=self._learns):
            self._goes_on(local_rank)
        self._stragglers.reported(local_rank, report.step, now, dict(report.values), self._watch.reporting)
        if self._timer is None:
            self._look_at(self._watch.next_look(now))

    def entered(self, local_rank: int, phase: str) -> None:
        """Take the begin or the end of a phase."""
        self._forgive()
        now = self._loop.now()
        if self._watch.entered(local_rank, safe_line(phase), now, learns=self._learns):
            self._goes_on(local_rank)
        if self._timer is None:
            self._look_at(self._watch.next_look(now))

    def finished(self, local_rank: int) -> None:
        """Judge a rank no more that has made all its steps, unless it reports another one."""
        self._forgive()
        self._watch.ended(local_rank)
        self._goes_on(local_rank)

    def _look_at(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self._look)
        self._looked_at = self._loop.now()

    def _forgive(self) -> None:
        """Count for nobody the time in which we did not run ourselves, which an overdue timer tells.

        To be asked before a sign is taken: what came meanwhile is read before timers are looked at.
        """
        late_s = 0.0 if self._timer is None else self._loop.now() - self._timer.when
        if late_s > LATE_S:
            self._watch.forgive(late_s)
            self._look_at(self._loop.now())

    @property
    def _learns(self) -> bool:
        """Tell whether a gap that ends now tells what is usual: not in a life that ends, nor because we let a rank go on."""
        return self._driver.group.phase == "running" and not self._is_let_go

    def _look(self) -> None:
        """Look for ranks that are late. What was on its way counts; time in which we did not run ourselves does not."""
        if self._driver.workers.is_held(self._looked_at):  # steps may be made that nobody hears of
            self._watch.forgive(self._loop.now() - self._looked_at)
        else:
            self._forgive()
        self._look_at(None)
        self._driver.control.catch_up()
        self._leave_out_the_lost()
        now = self._loop.now()
        call = self._watch.call(now) if self._driver.group.phase == "running" and self._examination is None else None
        if call is not None:
            self._examine(call)
        if now - self._compared_at >= STRAGGLERS_EVERY_S:
            self._compared_at = now
            self._compare(now)
        self._look_at(self._watch.next_look(now))

    def _leave_out_the_lost(self) -> None:
        """Judge those no more that have reported by themselves and cannot any longer."""
        for local_rank in self._speakers - self._driver.control.speakers:
            self._speakers.discard(local_rank)
            self._watch.ended(local_rank)
            self._take_off(local_rank, "has closed its connection")

    # Stragglers.

    def _compare(self, now: float) -> None:
        before = {one.local_rank for one in self.stragglers}
        self.stragglers = self._stragglers.found()
        if {one.local_rank for one in self.stragglers} != before:  # that nobody is slow any more is told, too
            life = self._driver.life
            number = 0 if life is None else life.number
            self._emit("planaria.straggler", now, round=number, ranks=self.stragglers_as_json())

    def stragglers_as_json(self) -> list[dict[str, object]]:
        """Return the slow ranks as events and status have them."""
        first = self._driver.life.first_rank if self._driver.life is not None else 0
        return [
            {"rank": first + one.local_rank, "host": self._host, "slower_by": one.slower_by} for one in self.stragglers
        ]

    # Hangs.

    def _examine(self, call: Call) -> None:
        driver, life = self._driver, self._driver.life
        ranks = {seen.local_rank: seen.rank for seen, _ in driver.workers.black_boxes}
        still = {ranks[one.local_rank]: one for one in call.still if one.local_rank in ranks}
        if life is None or not still:  # they have ended meanwhile
            return
        self._called += 1
        self._is_judged, self._is_resumed, self._gone_on = False, False, {}
        if self._called > MOST_FOLDERS:
            self._found(_Hang(call.at, life, "", still), Found())
            return
        folder = self._folder(life.number)
        hang = _Hang(call.at, life, folder, still)
        witnesses = driver.control.witnesses
        driver.control.ask_witnesses(encode(Look(folder)))
        is_stopped = any(proc.is_stopped(seen.pid) for seen, _ in driver.workers.black_boxes)
        self._is_resumed = is_stopped and self._job.vigilance.policy != "report"
        request = Request(
            folder=folder,
            host=self._host,
            heading=f"run {safe_line(self._job.run_id)}, round {life.number}, on {self._host}: no sign of progress",
            subjects=[
                (self._known(seen, still.get(seen.rank)), box, seen.local_rank in witnesses)
                for seen, box in driver.workers.black_boxes
            ],
            about=self._about(hang, call.still[0]),
            is_alone=_is_alone(life),
            resume=self._is_resumed,
            trace=self._job.vigilance.policy != "report",
        )
        driver.workers.mark_black_boxes()
        try:
            self._examination = Examination(
                self._loop, self._job.environment, request, lambda found: self._found(hang, found), self._written
            )
        except OSError:  # no process or descriptor left: what is known without looking has to do
            self._found(hang, Found())

    def _about(self, hang: _Hang, one: Standing) -> dict[str, object]:
        return {
            "run_id": self._job.run_id,
            "host": self._host,
            "round": hang.life.number,
            "phase": one.phase,
            "step": one.step,
            "gap_s": round(max(each.silent_s for each in hang.still.values()), 3),
            "usual_s": round(one.usual_s, 3),
            "limit_s": round(one.limit_s, 3),
            "floor_s": self._job.vigilance.floor_s,
            "policy": self._job.vigilance.policy,
        }

    def _known(self, seen: WorkerSeen, late: Standing | None) -> Examined:
        now = self._loop.now()
        return known(seen, late or self._watch.standing(seen.local_rank, now), now, still=late is not None)

    def _folder(self, number: int) -> str:
        """Name a folder, a new one each time. Nobody looks whether there is one: its disk may be what hangs."""
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.wall_s()))
        return os.path.join(self._driver.evidence_dir, f"{when}-round{number}-hang{self._called}")

    @property
    def _is_examined(self) -> bool:
        return self._examination is not None and not self._is_judged

    @property
    def _is_let_go(self) -> bool:
        """Tell whether a rank that was stopped goes on because we let it: for the time of looking, before it is ended."""
        return self._is_resumed and (self._is_examined or self._due is not None)

    def _written(self) -> None:
        """Note that all evidence is there, and do what waits for it."""
        self._examination = None
        self._pause.release()
        self._do()

    def _do(self) -> None:
        due = self._due
        self._drop_due()
        if due is not None:
            due()

    def _drop_due(self) -> None:
        self._due = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _found(self, hang: _Hang, found: Found) -> None:
        self._is_judged = True
        driver = self._driver
        charge = Charge(hang.still, found, dict(self._gone_on), self._host, hang.folder, _is_alone(hang.life))
        who = {"ranks": list(charge.ranks), "waiting": list(charge.waiting), "elsewhere": found.elsewhere}
        words = {"evidence": charge.evidence, "sentence": charge.sentence}
        called_ms = int(1000 * (self.wall_s() + hang.at - self._loop.now()))
        told = {**self._about(hang, charge.standing), **who, **words, "timestamp": called_ms}
        if charge.watched:
            self._open.append(_Open(told, charge))
        else:
            self._judge_anew()
        self.hangs = [*self.hangs[1 - MOST_FOLDERS :], told]
        if not self._is_resumed:  # else where it was stopped is nowhere but in there
            driver.workers.settle_black_boxes()
        event = {name: value for name, value in told.items() if name not in ("run_id", "host", "timestamp")}
        self._emit("planaria.hang", hang.at, **event)
        driver.say(charge.sentence)
        self._due = lambda: self._loop.call_later(self._wait_s(hang, charge), lambda: self._act(told, hang.life))
        if self._examination is None:
            self._do()
        else:
            self._patience = self._loop.call_later(WRITING_S, self._do)

    def _wait_s(self, hang: _Hang, charge: Charge) -> float:
        since_s = self._loop.now() - hang.at
        return charge.wait_s(self._job.vigilance.floor_s, since_s, is_let_go=self._is_resumed)

    def _judge_anew(self) -> None:
        """Give those that stood still with the suspect their time again: it has gone on, they may have not."""
        first = self._rank(0)
        suspected = {rank - first for one in self._open for rank in one.charge.watched}
        self._watch.judge_anew(self._loop.now(), suspected)
        if self._timer is None:
            self._look_at(self._watch.next_look(self._loop.now()))

    def _act(self, told: dict[str, object], life: Round) -> None:
        """Do what is to be done about a hang, if it still is one."""
        driver, now = self._driver, self._loop.now()
        if driver.group.phase != "running" or driver.life is not life:
            return
        self._leave_out_the_lost()
        charges = (one.charge for one in self._open if one.told is told)
        ordered = next((order(self._job.vigilance.policy, charge) for charge in charges), None)
        if ordered is None:
            return
        if ordered.reason:
            driver.post(EndRequested(ordered.reason, 0.0, now))
            return
        failure = driver.workers.suspect(ordered.rank - life.first_rank, ordered.brief, now, signals.SIGTERM)
        failure = replace(failure, type=HANG, where=ordered.phase)
        driver.post(ScopeExpired(failure, failure.pid, signals.SIGTERM))

    def _rank(self, local_rank: int) -> int:
        life = self._driver.life
        return local_rank + (life.first_rank if life is not None else 0)

    def _goes_on(self, local_rank: int) -> None:
        """Take a rank off that was called and goes on, unless that is our doing."""
        if not self._is_let_go:
            self._take_off(local_rank, "goes on")

    def _take_off(self, local_rank: int, how: str) -> None:
        """Charge a rank no more. Where it is being examined, that is told then; else when nobody is left to be charged.

        What ranks do in a life that is being ended is no news.
        """
        rank = self._rank(local_rank)
        if self._is_examined:
            self._gone_on[rank] = how
            return
        if self._driver.group.phase != "running":
            return
        before = len(self._open)
        charges = [(one.told, one.charge.without(rank, how)) for one in self._open]
        self._open = [_Open(told, charge) for told, charge in charges if charge.watched]
        if len(self._open) < before:
            self._driver.say(f"rank {rank} {how}: what looked like a hang was none, or is over")
            self._emit("planaria.hang.over", self._loop.now(), rank=rank, how=how)
            self._judge_anew()

    def _emit(self, name: str, at: float, **metadata: object) -> None:
        if self._driver.observer is not None:
            self._driver.observer.emit(name, at, **metadata)

    def phases(self) -> dict[int, str]:
        """Return what each local rank is at, as far as it has said anything."""
        now = self._loop.now()
        found = [self._watch.standing(one.local_rank, now) for one in self._driver.workers.seen]
        return {one.local_rank: one.phase for one in found if one is not None}

    def seen(self) -> dict[str, Any]:
        """Return what `agent.status.View` has of all this."""
        hang = self._open[-1].told if self._open else None
        slow = self.stragglers_as_json()
        return {"phases": self.phases(), "hang": hang, "stragglers": slow, "paces": self._stragglers.paces()}


def _is_alone(life: Round) -> bool:
    return life.world_size == life.local_world_size
