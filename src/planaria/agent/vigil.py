"""Watch over the progress of this node's ranks: hear their signs, look when one is late, have it examined, act as was asked.

An agent imports this when a worker reports for the first time. `hangs` and `stragglers` decide; nothing is decided here.
"""

from __future__ import annotations

import os
import time

from planaria.agent import proc
from planaria.agent.examiner import Examination, Found, Request
from planaria.agent.hangs import Hangs
from planaria.agent.model import EndRequested, ScopeExpired
from planaria.agent.stragglers import Stragglers
from planaria.agent.suspects import UNKNOWN, Examined
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
    from planaria.base.loop import Loop, Timer
    from planaria.contract.env import Round
    from planaria.process.workers import WorkerSeen

LATE_S = 1.0  # a loop that comes so much later than it wanted was stopped itself
STRAGGLERS_EVERY_S = 10.0
MOST_FOLDERS = 64  # of evidence, in a job
WRITING_S = 24.0  # what is to be ended waits so long for its evidence, once it is known who it is


class _Hang(Value):
    """What was called: in which life, where its evidence goes, and the ranks that stand still, the one behind first."""

    at: float
    life: Round
    folder: str
    still: Mapping[int, Standing]


class Vigil:
    """That of one agent. `newest` is the last hang, as `/v1/status` has it; `hangs` are all of them, for the report."""

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
        self._gone_on: dict[int, str] = {}  # while they were examined, and how
        self._called = 0
        self._speakers: set[int] = set()
        self._named: dict[int, dict[str, object]] = {}  # ranks that are suspected, with what was told of them
        self._compared_at = 0.0
        self.stragglers: tuple[Straggler, ...] = ()
        self.newest: dict[str, object] | None = None
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
        self._due = None
        self._look_at(None)
        self._watch.begin(())
        self._stragglers, self.stragglers = Stragglers(), ()
        self._speakers = set()
        self._named = {}
        self.newest = None

    def exited(self, local_rank: int) -> None:
        """Watch a worker no more. One that ends while it is examined did not hang."""
        self._watch.ended(local_rank)
        if self._is_examined:
            self._gone_on[self._rank(local_rank)] = "has ended"

    def speaks(self, local_rank: int) -> None:
        """Note that a rank reports by itself: when its connection goes, nothing more can be known of it."""
        self._speakers.add(local_rank)

    def progressed(self, local_rank: int, report: Progress) -> None:
        """Take a report."""
        now, values = self._loop.now(), dict(report.values)
        if self._watch.progressed(local_rank, report.step, values.get("samples"), now):
            self._goes_on(local_rank)
        self._stragglers.reported(local_rank, report.step, now, values, self._watch.reporting)
        if self._timer is None:
            self._look_at(self._watch.next_look(now))

    def entered(self, local_rank: int, phase: str) -> None:
        """Take the begin or the end of a phase."""
        now = self._loop.now()
        if self._watch.entered(local_rank, safe_line(phase), now):
            self._goes_on(local_rank)
        if self._timer is None:
            self._look_at(self._watch.next_look(now))

    def finished(self, local_rank: int) -> None:
        """Judge a rank no more that has made all its steps, unless it reports another one."""
        self._watch.ended(local_rank)
        self._goes_on(local_rank)

    def _look_at(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self._look)
        self._looked_at = self._loop.now()

    def _look(self) -> None:
        """Look for ranks that are late. What was on its way counts; time in which we did not run ourselves does not."""
        assert self._timer is not None
        late_s = self._loop.now() - self._timer.when
        self._timer = None
        if self._driver.workers.is_held(self._looked_at):  # steps may be made that nobody hears of
            self._watch.forgive(self._loop.now() - self._looked_at)
        elif late_s > LATE_S:
            self._watch.forgive(late_s)
        self._driver.control.catch_up()
        for local_rank in self._speakers - self._driver.control.speakers:
            self._speakers.discard(local_rank)
            self._watch.ended(local_rank)
        now = self._loop.now()
        call = self._watch.call(now) if self._driver.group.phase == "running" and self._examination is None else None
        if call is not None:
            self._examine(call)
        if now - self._compared_at >= STRAGGLERS_EVERY_S:
            self._compared_at = now
            self._compare(now)
        self._look_at(self._watch.next_look(now))

    # Stragglers.

    def _compare(self, now: float) -> None:
        before = [one.local_rank for one in self.stragglers]
        self.stragglers = self._stragglers.found()
        if self.stragglers and [one.local_rank for one in self.stragglers] != before:
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
        folder = self._folder(life.number)
        hang = _Hang(call.at, life, folder, still)
        self._is_judged, self._is_resumed, self._gone_on = False, False, {}
        if self._called > MOST_FOLDERS:
            self._found(hang, Found())
            return
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
            is_alone=life.world_size == life.local_world_size,
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
        found = late or self._watch.standing(seen.local_rank, self._loop.now())
        if found is None:
            age_s = self._loop.now() - seen.started_at
            return Examined(seen.rank, seen.local_rank, seen.pid, UNKNOWN, None, age_s, 0.0, still=False)
        return Examined(
            rank=seen.rank,
            local_rank=seen.local_rank,
            pid=seen.pid,
            phase=found.phase,
            step=found.step,
            silent_s=round(found.silent_s, 3),
            usual_s=round(found.usual_s, 3),
            still=late is not None,
        )

    def _folder(self, number: int) -> str:
        """Name a folder, a new one each time. Nobody looks whether there is one: its disk may be what hangs."""
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(self.wall_s()))
        return os.path.join(self._driver.evidence_dir, f"{when}-round{number}-hang{self._called}")

    @property
    def _is_examined(self) -> bool:
        return self._examination is not None and not self._is_judged

    def _written(self) -> None:
        """Note that all evidence is there, and do what waits for it."""
        self._examination = None
        self._do()

    def _do(self) -> None:
        due, self._due = self._due, None
        if due is not None:
            due()

    def _found(self, hang: _Hang, found: Found) -> None:
        self._is_judged = True
        driver = self._driver
        behind = tuple(hang.still)
        ranks, waiting = (found.ranks, found.waiting) if found.sentence else (behind[:1], behind[1:])
        suspects = ranks or waiting
        remaining = [rank for rank in suspects if rank not in self._gone_on]
        first = (remaining or suspects)[0]
        one = hang.still.get(first, next(iter(hang.still.values())))
        evidence = hang.folder if found.is_kept else None
        brief = (
            found.brief if first == suspects[0] and found.brief else _brief(one, evidence, is_seen=bool(found.brief))
        )
        sentence = (found.sentence or f"rank {first} on {self._host} {brief}") + self._meanwhile(suspects)
        who = {"ranks": list(ranks), "waiting": list(waiting), "elsewhere": found.elsewhere}
        told = {**self._about(hang, one), **who, "evidence": evidence, "sentence": sentence}
        # One that never reports cannot be seen to go on, but those that wait for it can.
        watched = [rank for rank in remaining if rank in hang.still] or [
            rank for rank in waiting if remaining and rank not in self._gone_on
        ]
        self._named.update((rank, told) for rank in watched)
        self.newest = told if watched else None
        if not watched:
            self._judge_anew()
        self.hangs = [*self.hangs[1 - MOST_FOLDERS :], told]
        if not self._is_resumed:  # else where it was stopped is nowhere but in there
            driver.workers.settle_black_boxes()
        event = {name: value for name, value in told.items() if name not in ("run_id", "host")}
        self._emit("planaria.hang", hang.at, **event)
        driver.say(sentence)
        # Whoever waits for another node, or may do so, lets that one find its rank and write its evidence first.
        wait_s = self._job.vigilance.floor_s + WRITING_S if found.elsewhere or found.unclear else 0.0
        self._due = lambda: self._loop.call_later(wait_s, lambda: self._act(told, remaining, brief, hang.life))
        if self._examination is None:
            self._do()
        else:
            self._loop.call_later(WRITING_S, lambda: self._do() if self._standing(told) else None)

    def _meanwhile(self, suspects: tuple[int, ...]) -> str:
        """Say which of the suspects did something while they were examined."""
        if len(suspects) == 1:
            return "".join(f"; it {how} meanwhile" for rank, how in self._gone_on.items() if rank in suspects)
        return "".join(f"; rank {rank} {how} meanwhile" for rank, how in self._gone_on.items() if rank in suspects)

    def _judge_anew(self) -> None:
        """Give those that stood still with the suspect their time again: it has gone on, they may have not."""
        first = self._rank(0)
        self._watch.judge_anew(self._loop.now(), suspected={rank - first for rank in self._named})
        if self._timer is None:
            self._look_at(self._watch.next_look(self._loop.now()))

    def _standing(self, told: dict[str, object]) -> list[int]:
        """Return those by which a hang is known that have not gone on."""
        return [rank for rank, about in self._named.items() if about is told]

    def _act(self, told: dict[str, object], suspects: list[int], brief: str, life: Round) -> None:
        """Do what is to be done about a hang, if it still is one."""
        driver, policy = self._driver, self._job.vigilance.policy
        standing = self._standing(told)
        if policy == "report" or not standing or driver.group.phase != "running" or driver.life is not life:
            return
        now, blamed = self._loop.now(), next((rank for rank in suspects if rank in standing), suspects[0])
        if policy == "stop":
            driver.post(EndRequested(f"rank {blamed} on {self._host} {brief} (--hang-policy=stop)", 0.0, now))
            return
        local_rank = blamed - life.first_rank
        failure = driver.workers.suspect(local_rank, brief, now, signals.SIGTERM)
        failure = replace(failure, type=HANG, where=str(told["phase"]))
        driver.post(ScopeExpired(failure, failure.pid, signals.SIGTERM))

    def _rank(self, local_rank: int) -> int:
        life = self._driver.life
        return local_rank + (life.first_rank if life is not None else 0)

    def _goes_on(self, local_rank: int) -> None:
        """Say that the rank that was called goes on. Where it is being examined, that is told, and nothing is done to it."""
        rank = self._rank(local_rank)
        if self._is_resumed and (self._is_examined or self._due is not None):  # because we let it
            return
        if self._is_examined:
            self._gone_on[rank] = "goes on"
            return
        told = self._named.pop(rank, None)
        if told is not None and not self._standing(told):
            self.newest = None if self.newest is told else self.newest
            self._driver.say(f"rank {rank} goes on: what looked like a hang was none, or is over")
            self._emit("planaria.hang.over", self._loop.now(), rank=rank)
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
        return {"phases": self.phases(), "hang": self.newest, "stragglers": self.stragglers_as_json()}


def _brief(one: Standing, evidence: str | None, *, is_seen: bool) -> str:
    """Say of a rank what is known without a look at it."""
    told = [f"hangs in phase {one.phase}: no sign for {one.silent_s:.1f} s"]
    told += ["nobody could look at it in time"] * (not is_seen) + [f"evidence in {evidence}"] * (evidence is not None)
    return "; ".join(told)
