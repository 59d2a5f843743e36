"""How long each part of a restart took: a fold over what happened to a group, what was ordered, and when. Pure.

A restart is seven moments, one after the other, and the six phases between them:

    detect      a worker's own end, where its black box tells it, until the agent saw it; 0 where we were only told
    decide      until the stop was ordered: a first failure that looks like a mistake waits for the other ranks, and after a
                scope has expired all workers show where they are
    stop        until no process of the old life is left
    rendezvous  until this node's place in the next round is known; 0 for a node alone
    start       until every worker is forked
    ready       until the last worker's start-up file said in its black box that it runs; who has none says nothing

No moment is before the one before it, so no phase is negative, and together they are the wall time of the restart. A restart
that does not come to its start, because the job ended instead, is none. One whose workers ended before they gave a sign is one.
"""

from __future__ import annotations

from itertools import pairwise

from planaria.agent.membership import Fenced, ReportStopped, RoundStarted, RoundStopped, TakePlace, TellResize
from planaria.agent.model import (
    BlameWorker,
    EndTree,
    Finish,
    KillWorkers,
    ScopeExpired,
    SignalWorkers,
    StartWorkers,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base.value import Value, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Effect, Event
    from planaria.contract.failure import Failure

PHASES = ("detect", "decide", "stop", "rendezvous", "start", "ready")
KINDS = ("failed", "port", "joined", "left", "lost", "other")
_SEEN, _ORDERED, _STOPPED, _PLACED, _STARTED = 2, 3, 4, 5, 6  # how many moments are known by then
_STOPS = (SignalWorkers, KillWorkers, EndTree, TellResize)
_ENDINGS = (
    ((" joined",), "joined"),
    ((" left", " is leaving"), "left"),
    ((" is gone", " fell silent", " had lost touch and stopped its workers"), "lost"),
)


class WorkerSigned(Value):
    """A worker gave its first sign of life at this moment of its own."""

    local_rank: int
    at: float


class SignsGivenUp(Value):
    """Who has not given a sign by now is not waited for."""


class Restart(Value):
    """One restart of the group on this node. `began_at` is in the node's monotonic seconds."""

    round: int
    restart_count: int
    reason: str
    kind: str
    charged: bool
    began_at: float
    signed: int
    """How many workers gave a sign of life."""
    detect_s: float
    decide_s: float
    stop_s: float
    rendezvous_s: float
    start_s: float
    ready_s: float
    total_s: float


class Watch(Value):
    """What is known so far. `moments` are those of the restart under way, none: there is none."""

    moments: tuple[float, ...] = ()
    life_began_at: float | None = None
    silent: frozenset[int] = frozenset()
    signs: tuple[float, ...] = ()
    round: int = 0
    restart_count: int = 0
    reason: str = ""
    charged: bool = False


def kind_of(reason: str) -> str:
    """Return one of `KINDS` for a reason. Host names are in it, so only its beginning or its end counts."""
    if reason.startswith("the master port was taken"):
        return "port"
    for endings, kind in _ENDINGS:
        if reason.startswith("node ") and reason.endswith(endings):
            return kind
    return "failed" if reason.startswith("rank ") or reason.endswith(" failed") else "other"


def follow(
    watch: Watch,
    event: Event | WorkerSigned | SignsGivenUp,
    effects: tuple[Effect, ...],
    now: float,
    signing: frozenset[int],
) -> tuple[Watch, Restart | None]:
    """Take an event, the effects it led to and the moment they were ordered; return a restart once its end is known.

    `signing` are the local ranks that will give a sign once they were started.
    """
    watch, done = _listen(watch, event, effects, now)
    for effect in effects:
        watch = _announce(watch, effect)
    match event:
        case WorkerExited(_, at, failure) if failure is not None:
            watch = _failed(watch, failure, at)
        case ScopeExpired(failure) if any(isinstance(effect, BlameWorker) for effect in effects):
            watch = _failed(watch, failure, failure.at)
        case RoundStopped() | Fenced():
            watch = watch if watch.moments or watch.life_began_at is None else replace(watch, moments=(event.at,) * 2)
        case TreeEnded(at):
            watch = _reach(watch, _STOPPED, at) if watch.moments else watch
        case RoundStarted(_, at) if watch.life_began_at is not None:
            watch = _reach(watch, _PLACED, at)
        case WorkersStarted(at):
            return _started(watch, at, signing)
    return _ordered(watch, event, effects, now), done


def _listen(
    watch: Watch, event: Event | WorkerSigned | SignsGivenUp, effects: tuple[Effect, ...], now: float
) -> tuple[Watch, Restart | None]:
    """Wait for signs of the workers of a restart; its end may come without them."""
    if len(watch.moments) < _STARTED:
        return watch, None
    over = any(isinstance(effect, Finish) for effect in effects)
    match event:
        case WorkerSigned(local_rank, at) if local_rank in watch.silent:
            watch = replace(watch, silent=watch.silent - {local_rank}, signs=(*watch.signs, min(at, now)))
        case WorkerExited(local_rank, _, failure):
            watch = replace(watch, silent=watch.silent - {local_rank})
            over = over or failure is not None
        case RoundStopped() | Fenced() | SignsGivenUp():
            over = True
    return finished(watch) if over or not watch.silent else (watch, None)


def _announce(watch: Watch, effect: Effect) -> Watch:
    match effect:
        case StartWorkers(number, count, reason):
            return replace(watch, round=number, reason=reason, restart_count=count, charged=count > watch.restart_count)
        case TakePlace(place):
            count = place.restart_count
            told = replace(watch, round=place.round, reason=place.reason, restart_count=count)
            return replace(told, charged=count > watch.restart_count)
        case _:
            return watch


def _failed(watch: Watch, failure: Failure, at: float) -> Watch:
    """Begin a restart with a failure, or let one that is not decided yet begin earlier."""
    if watch.life_began_at is None or len(watch.moments) >= _ORDERED:
        return watch
    own = failure.at if failure.at <= at else at  # a worker wrote it: it may be anything, even no number
    began = min(max(own, watch.life_began_at), at)
    if not watch.moments:
        return replace(watch, moments=(began, at))
    return replace(watch, moments=(min(began, watch.moments[0]), watch.moments[1]))


def _ordered(watch: Watch, event: object, effects: tuple[Effect, ...], now: float) -> Watch:
    if len(watch.moments) == _SEEN and any(isinstance(effect, _STOPS) for effect in effects):
        watch = _reach(watch, _ORDERED, now)
    idle = isinstance(event, (RoundStopped, Fenced)) and any(isinstance(effect, ReportStopped) for effect in effects)
    return _reach(watch, _STOPPED, now) if watch.moments and idle else watch


def _reach(watch: Watch, count: int, at: float) -> Watch:
    """Set all moments up to the `count`-th that are not known yet to `at`, or to the last one known if that is later."""
    moments = watch.moments or (at,)
    missing = count - len(moments)
    return replace(watch, moments=moments + (max(at, moments[-1]),) * missing)


def _started(watch: Watch, at: float, signing: frozenset[int]) -> tuple[Watch, Restart | None]:
    if watch.life_began_at is None:
        return replace(watch, life_began_at=at), None
    watch = replace(watch, life_began_at=at, silent=signing, signs=())
    watch = _reach(_reach(watch, _PLACED, watch.moments[-1] if watch.moments else at), _STARTED, at)
    return (watch, None) if signing else finished(watch)


def finished(watch: Watch) -> tuple[Watch, Restart]:
    """Return the restart whose workers are all started, and what is known of the life that begins with it."""
    moments = (*watch.moments, max((watch.moments[-1], *watch.signs)))
    marks = [round((moment - moments[0]) * 1e6) for moment in moments]  # whole microseconds: their differences add up
    detect, decide, stop, meet, start, ready = ((after - before) / 1e6 for before, after in pairwise(marks))
    found = Restart(
        round=watch.round,
        restart_count=watch.restart_count,
        reason=watch.reason,
        kind=kind_of(watch.reason),
        charged=watch.charged,
        began_at=moments[0],
        signed=len(watch.signs),
        detect_s=detect,
        decide_s=decide,
        stop_s=stop,
        rendezvous_s=meet,
        start_s=start,
        ready_s=ready,
        total_s=marks[-1] / 1e6,
    )
    return replace(watch, moments=(), silent=frozenset(), signs=()), found
