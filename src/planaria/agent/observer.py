"""Tell others what happens to a group: events to handlers, numbers to the registry, a record of every restart.

The driver calls `saw` after it has done what was ordered, so nothing waits for a reader. Nothing here decides. A job that
nobody asked to watch imports it a moment after its first workers have started, and keeps its journal in memory.
"""

from __future__ import annotations

from planaria.agent.machine import step
from planaria.agent.membership import LeaseMoved, TakePlace
from planaria.agent.meters import Meters
from planaria.agent.model import (
    DRAINING,
    MOST_LIVES,
    RESIZING,
    RUNNING,
    Begun,
    Finish,
    ProgressReported,
    StartWorkers,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.pace import Pace, samples_of
from planaria.agent.phases import SignsGivenUp, Watch, WorkerSigned, follow
from planaria.agent.pulse import Pulse
from planaria.agent.report import first_cause
from planaria.agent.stalls import why_it_stops
from planaria.base import signals
from planaria.base.value import as_dict
from planaria.errors import InternalError
from planaria.observe.metrics import Registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Protocol

    from planaria.agent.journal import Journal
    from planaria.agent.model import Effect, Event, Group, Job, Outcome
    from planaria.agent.phases import Restart
    from planaria.base.loop import Loop, Timer
    from planaria.contract.failure import Failure
    from planaria.observe.handlers import Handler
    from planaria.process.workers import WorkerSeen

    class Workers(Protocol):
        """What is asked of the workers of this node."""

        @property
        def by_pid(self) -> dict[int, int]:
            """The local rank of each worker that runs, by its pid."""

        @property
        def seen(self) -> tuple[WorkerSeen, ...]:
            """The workers of this life, also those that have ended."""

        @property
        def signing(self) -> frozenset[int]:
            """The local ranks that will say when they run."""

        @property
        def promoted(self) -> tuple[int, ...]:
            """The local ranks whose workers were standbys."""

        @property
        def cold(self) -> dict[int, str]:
            """Why the others were not, by local rank, where standbys are kept."""

        def signs(self) -> dict[int, float]:
            """The moments at which they began to run, as far as they have said so."""


FIRST_LOOK_S = 0.01  # a Python interpreter needs about as long to come to its first line
LONGEST_LOOK_S = 0.5
LAST_WORDS = 4000  # characters of a message, and of the end of a traceback and of stderr, that events have of a worker
SIGNS_WITHIN_S = 60.0  # an interpreter on a slow network disk may need that long; after it nobody looks any more


class Observer:
    """Watches one group. `registry` and `restarts` may be read at any time, from any thread."""

    def __init__(self, job: Job, loop: Loop, wall_s: Callable[[], float], host: str) -> None:
        self._job = job
        self._loop = loop
        self._wall_s = wall_s
        self._common: dict[str, object] = {"run_id": job.run_id, "role": job.role, "host": host}
        self._watch = Watch()
        self._look: Timer | None = None
        self._pids: dict[int, int] = {}
        self._warmth: dict[str, list[int] | dict[str, str]] = {"promoted": [], "cold": {}}
        self._round = 0
        self._first_rank = 0
        self._began_at = 0.0
        self._unseen_before = 0.0  # workers of lives that were over when this observer came have no pids any more
        self.registry = Registry()
        self._meters = Meters(self.registry)
        self.handlers: tuple[Handler, ...] = ()
        self.restarts: list[dict[str, object]] = []
        """The newest restarts, oldest first, as the report has them."""
        self.workers: Workers
        self.journal: Journal | None = None
        self.evidence_dir: Callable[[], str] = str
        self.pace = Pace()
        self.pulse = Pulse(loop, self.pace, self._keep)
        self.logs: dict[int, tuple[str | None, str | None]] = {}
        """The files of each local rank's output in the newest life, stdout first."""

    @property
    def round(self) -> int:
        """The number of the newest round."""
        return self._round

    @property
    def began_at(self) -> float:
        """When the agent began, on its monotonic clock."""
        return self._began_at

    @property
    def began_s(self) -> float:
        """The same in seconds since 1970, by this node's clock."""
        return self._timestamp(self._began_at) / 1000

    def catch_up(self, story: Sequence[tuple[Event, tuple[Effect, ...]]], group: Group) -> None:
        """Take what happened before this observer came: `group` is as it was in the beginning, and is led through it again."""
        starts = [event.at for event, _ in story if isinstance(event, WorkersStarted)]
        self._unseen_before = starts[-1] if starts else 0.0
        try:
            for event, effects in story:
                group, _ = step(group, event)
                self.saw(event, effects, group, getattr(event, "at", self._loop.now()))
        except InternalError:  # the beginning is not in the story any more, or what is not kept there had a say
            return

    def saw(self, event: Event, effects: tuple[Effect, ...], group: Group, ordered_at: float) -> None:
        """Take what happened, what was ordered because of it and when, and the group as it is since then."""
        match event:
            case LeaseMoved():
                return
            case ProgressReported(local_rank, done):
                self._progressed(local_rank, done)
                return
            case WorkerExited():
                self._take_signs()
                self.pulse.flush()
        self._tell(event, effects, group)
        self._follow(event, effects, ordered_at)
        if isinstance(event, WorkersStarted) and self._watch.silent:
            self._look_again(FIRST_LOOK_S, ordered_at + SIGNS_WITHIN_S)
        self._meters.group(group)
        self.pace.is_at_work(ordered_at, at_work=_is_at_work(group))
        for effect in effects:
            if isinstance(effect, Finish):
                self._ended(effect.outcome, group, ordered_at)

    def _progressed(self, local_rank: int, done: int) -> None:
        self._meters.progressed(done)
        report, at = self.pulse.reports().get(local_rank, (None, self._loop.now()))
        self.pace.report(local_rank, done, None if report is None else samples_of(report), at)
        self.pulse.stir()

    def close(self) -> None:
        """Let the handlers go."""
        for handler in self.handlers:
            handler.close()
        self.handlers = ()
        if self.journal is not None:
            self.journal.close()

    def checked(self, findings: Iterable[Mapping[str, object]], count: int, at: float) -> None:
        """Take what so many checks of this node found that is not well, before it joined."""
        self.emit("planaria.preflight", at, checks=count, findings=list(findings))

    def emit(self, name: str, at: float, **metadata: object) -> None:
        """Hand an event that happened at a moment of the monotonic clock to every handler, and to the journal."""
        self._emit(name, at, metadata, {})

    def _emit(self, name: str, at: float, metadata: Mapping[str, object], details: Mapping[str, object]) -> None:
        """Emit an event; `details` are for the journal alone."""
        self._keep(name, at, {**metadata, **details})
        for handler in self.handlers:
            handler.handle(self._event(name, at, metadata))

    def _keep(self, name: str, at: float, metadata: Mapping[str, object]) -> None:
        if self.journal is not None:
            self.journal.take(self._event(name, at, metadata))

    def _event(self, name: str, at: float, metadata: Mapping[str, object]) -> dict[str, object]:
        told = {"name": name, "source": "AGENT", "timestamp": self._timestamp(at)}
        return {**told, "metadata": {**self._common, "at": at, **metadata}}

    def _timestamp(self, at: float) -> int:
        return round((self._wall_s() - (self._loop.now() - at)) * 1000)

    # What happened, event by event.

    def _tell(self, event: Event, effects: tuple[Effect, ...], group: Group) -> None:
        match event:
            case Begun(at):
                self._began_at = self.pulse.began_at = at
                self._meters.begin(self._timestamp(at) / 1000)
                told = {"workers": group.size, "max_restarts": group.max_restarts}
                kept = self.journal
                node = {} if kept is None else {"node": kept.node, "locked": kept.is_locked}
                self._emit("planaria.run.started", at, told, node)
            case WorkersStarted(at) if at >= self._unseen_before:
                self._pids = {local_rank: pid for pid, local_rank in self.workers.by_pid.items()}
                cold = {str(local_rank): why for local_rank, why in self.workers.cold.items()}
                self._warmth = {"promoted": list(self.workers.promoted), "cold": cold}
                self.logs = {one.local_rank: (one.stdout_log, one.stderr_log) for one in self.workers.seen}
                for local_rank, pid in self._pids.items():
                    details = {"log_files": [path for path in self.logs.get(local_rank, ()) if path]}
                    self._emit("planaria.worker.started", at, {**self._worker(local_rank), "pid": pid}, details)
            case WorkerExited():
                self._exited(event, group)
        for effect in effects:
            self._announce(effect, event, group)

    def _worker(self, local_rank: int) -> dict[str, object]:
        return {"round": self._round, "rank": self._first_rank + local_rank, "local_rank": local_rank}

    def _announce(self, effect: Effect, event: Event, group: Group) -> None:
        match effect:
            case StartWorkers(number, count, reason):
                nodes, self._first_rank, size, start = 1, 0, group.size, ""
            case TakePlace(place):
                number, count, reason = place.round, place.restart_count, place.reason
                nodes, self._first_rank, size, start = place.size, place.first_rank, place.world_size, place.epoch
            case _:
                return
        self._round = number
        self.pace.begin()
        self.pulse.begin(number, self._first_rank)
        self._meters.round(number, size, nodes)
        at = getattr(event, "at", self._loop.now())
        told = {
            "round": number,
            "restart_count": count,
            "reason": reason,
            "nodes": nodes,
            "first_rank": self._first_rank,
            "world_size": size,
        }
        self._emit("planaria.round.started", at, told, {"start": start} if start else {})

    def _exited(self, event: WorkerExited, group: Group) -> None:
        failure = event.failure
        pid = self._pids.get(event.local_rank, None if failure is None else failure.pid)
        told = {**self._worker(event.local_rank), "pid": pid}
        details: dict[str, object] = {}
        if failure is None:
            result = "ok"
            told |= {"status": 0, "message": ""}
        else:
            kept = [one for one in group.failures if one.local_rank == event.local_rank and one.stopped_for is None]
            result = "failed" if kept else "stopped"
            told |= {
                "status": failure.status,
                "message": failure.message[:LAST_WORDS],
                "kind": failure.kind,
                "killer": failure.killer,
            }
            told |= {"ended_at": failure.at, "age_s": failure.age_s}
            details = _last_words(failure) if kept else {}
        self._meters.exited(result)
        self._emit("planaria.worker.exited", event.at, {**told, "result": result}, details)

    def _ended(self, outcome: Outcome, group: Group, at: float) -> None:
        why = why_it_stops(group)
        if why and why in outcome.explanation:
            self.emit("planaria.stalled", at, lives=group.stalled, step=group.furthest, sentence=why)
        self.pulse.flush()
        told = {
            "outcome": outcome.kind,
            "status": outcome.status,
            "signal": signals.name_of(outcome.signal) if outcome.signal else None,
            "explanation": outcome.explanation[:LAST_WORDS],
            "restarts": group.restarts,
            "duration_s": at - self._began_at,
        }
        cause = first_cause(group, outcome)
        shown = None if cause is None else {**as_dict(cause), **_last_words(cause)}
        self._emit(
            "planaria.run.ended", at, told, {"trained_s": round(self.pace.trained_s(at), 3), "first_cause": shown}
        )

    # Restarts.

    def _follow(self, event: Event | WorkerSigned | SignsGivenUp, effects: tuple[Effect, ...], now: float) -> None:
        signing = self.workers.signing if isinstance(event, WorkersStarted) else frozenset()
        self._watch, restart = follow(self._watch, event, effects, now, signing)
        if restart is not None:
            self._restarted(restart)

    def _restarted(self, restart: Restart) -> None:
        fields = {**as_dict(restart), **self._warmth}
        ended_at = restart.began_at + restart.total_s
        self.restarts.append({"timestamp": self._timestamp(ended_at), **fields})
        del self.restarts[:-MOST_LIVES]
        self._meters.restarted(restart, self._warmth)
        self.emit("planaria.restart", ended_at, **fields)

    def _look_again(self, after_s: float, until: float) -> None:
        """Look for signs less and less often; when they were given is written in them, so nothing is lost by it."""
        if self._look is not None:
            self._look.cancel()

        def look() -> None:
            self._take_signs()
            if self._loop.now() >= until:
                self._follow(SignsGivenUp(), (), self._loop.now())
            elif self._watch.silent:
                self._look_again(min(2 * after_s, LONGEST_LOOK_S), until)

        self._look = self._loop.call_later(after_s, look)

    def _take_signs(self) -> None:
        if not self._watch.silent:
            return
        for local_rank, at in self.workers.signs().items():
            self._follow(WorkerSigned(local_rank, at), (), self._loop.now())


def _is_at_work(group: Group) -> bool:
    """Tell whether the workers may step: also those that were only told that the world changes, or that the node drains."""
    return group.phase in (RUNNING, RESIZING) or (group.phase == DRAINING and group.ladder < 0)


def _last_words(failure: Failure) -> dict[str, object]:
    """Return what a journal keeps of a failure beyond what handlers are told."""
    return {
        "message": failure.message[:LAST_WORDS],
        "type": failure.type,
        "bases": list(failure.bases),
        "where": failure.where,
        "traceback": failure.traceback[-LAST_WORDS:],
        "stderr_tail": failure.stderr_tail[-LAST_WORDS:],
        "log_files": list(failure.log_files),
    }
