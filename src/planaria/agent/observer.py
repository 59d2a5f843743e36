"""Tell others what happens to a group: events to handlers, numbers to the registry, a record of every restart.

The driver calls `saw` after it has done what was ordered, so nothing waits for a reader. Nothing here decides, and a job that
nobody watches does not import it.
"""

from __future__ import annotations

from planaria.agent.membership import LeaseMoved, TakePlace
from planaria.agent.meters import Meters
from planaria.agent.model import Begun, Finish, ProgressReported, StartWorkers, WorkerExited, WorkersStarted
from planaria.agent.phases import SignsGivenUp, Watch, WorkerSigned, follow
from planaria.agent.stalls import why_it_stops
from planaria.base import signals
from planaria.base.value import as_dict
from planaria.observe.metrics import Registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.agent.model import Effect, Event, Group, Job, Outcome
    from planaria.agent.phases import Restart
    from planaria.base.loop import Loop, Timer
    from planaria.observe.handlers import Handler

    class Workers(Protocol):
        """What is asked of the workers of this node."""

        @property
        def by_pid(self) -> dict[int, int]:
            """The local rank of each worker that runs, by its pid."""

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
        self._warmth: dict[str, list[int] | dict[str, str]] = {}
        self._round = 0
        self._first_rank = 0
        self._began_at = 0.0
        self.registry = Registry()
        self._meters = Meters(self.registry)
        self.handlers: tuple[Handler, ...] = ()
        self.restarts: list[dict[str, object]] = []
        """Every restart so far, oldest first, as the report has them."""
        self.workers: Workers

    def saw(self, event: Event, effects: tuple[Effect, ...], group: Group, ordered_at: float) -> None:
        """Take what happened, what was ordered because of it and when, and the group as it is since then."""
        match event:
            case LeaseMoved():
                return
            case ProgressReported(_, step):
                self._meters.progressed(step)
                return
            case WorkerExited():
                self._take_signs()
        self._tell(event, effects, group)
        self._follow(event, effects, ordered_at)
        if isinstance(event, WorkersStarted) and self._watch.silent:
            self._look_again(FIRST_LOOK_S, ordered_at + SIGNS_WITHIN_S)
        self._meters.group(group)
        for effect in effects:
            if isinstance(effect, Finish):
                self._ended(effect.outcome, group, ordered_at)

    def close(self) -> None:
        """Let the handlers go."""
        for handler in self.handlers:
            handler.close()
        self.handlers = ()

    def emit(self, name: str, at: float, **metadata: object) -> None:
        """Hand an event that happened at a moment of the monotonic clock to every handler."""
        told = {"name": name, "source": "AGENT", "timestamp": self._timestamp(at)}
        event = {**told, "metadata": {**self._common, "at": at, **metadata}}
        for handler in self.handlers:
            handler.handle(event)

    def _timestamp(self, at: float) -> int:
        return round((self._wall_s() - (self._loop.now() - at)) * 1000)

    # What happened, event by event.

    def _tell(self, event: Event, effects: tuple[Effect, ...], group: Group) -> None:
        match event:
            case Begun(at):
                self._began_at = at
                self._meters.begin(self._timestamp(at) / 1000)
                self.emit("planaria.run.started", at, workers=group.size, max_restarts=group.max_restarts)
            case WorkersStarted(at):
                self._pids = {local_rank: pid for pid, local_rank in self.workers.by_pid.items()}
                cold = {str(local_rank): why for local_rank, why in self.workers.cold.items()}
                self._warmth = {"promoted": list(self.workers.promoted), "cold": cold}
                for local_rank, pid in self._pids.items():
                    self.emit("planaria.worker.started", at, **self._worker(local_rank), pid=pid)
            case WorkerExited():
                self._exited(event, group)
        for effect in effects:
            self._announce(effect, event, group)

    def _worker(self, local_rank: int) -> dict[str, object]:
        return {"round": self._round, "rank": self._first_rank + local_rank, "local_rank": local_rank}

    def _announce(self, effect: Effect, event: Event, group: Group) -> None:
        match effect:
            case StartWorkers(number, count, reason):
                nodes, self._first_rank, size = 1, 0, group.size
            case TakePlace(place):
                number, count, reason = place.round, place.restart_count, place.reason
                nodes, self._first_rank, size = place.size, place.first_rank, place.world_size
            case _:
                return
        self._round = number
        self._meters.round(number, size, nodes)
        at = getattr(event, "at", self._loop.now())
        self.emit(
            "planaria.round.started",
            at,
            round=number,
            restart_count=count,
            reason=reason,
            nodes=nodes,
            first_rank=self._first_rank,
            world_size=size,
        )

    def _exited(self, event: WorkerExited, group: Group) -> None:
        told = {**self._worker(event.local_rank), "pid": self._pids.get(event.local_rank)}
        failure = event.failure
        if failure is None:
            result = "ok"
            told |= {"status": 0, "message": ""}
        else:
            kept = [one for one in group.failures if one.local_rank == event.local_rank and one.stopped_for is None]
            result = "failed" if kept else "stopped"
            told |= {
                "status": failure.status,
                "message": failure.message,
                "kind": failure.kind,
                "killer": failure.killer,
            }
            told |= {"ended_at": failure.at, "age_s": failure.age_s}
        self._meters.exited(result)
        self.emit("planaria.worker.exited", event.at, **told, result=result)

    def _ended(self, outcome: Outcome, group: Group, at: float) -> None:
        why = why_it_stops(group)
        if why and why in outcome.explanation:
            self.emit("planaria.stalled", at, lives=group.stalled, step=group.furthest, sentence=why)
        self.emit(
            "planaria.run.ended",
            at,
            outcome=outcome.kind,
            status=outcome.status,
            signal=signals.name_of(outcome.signal) if outcome.signal else None,
            explanation=outcome.explanation,
            restarts=group.restarts,
            duration_s=at - self._began_at,
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
