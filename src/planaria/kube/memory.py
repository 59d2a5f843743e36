"""What an operator has to remember of a job between two looks. It is kept in `status.operator`, so that the next one knows it.

Times are seconds of the operator's own wall clock. One that lies ahead is taken for now: a clock that was set back costs
patience, no more. What cannot be read is forgotten, since a status can be written by anybody who may.
"""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.kube import restart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from planaria.kube.model import Json
    from planaria.kube.seen import PodSeen

    T = TypeVar("T")

# The first replacement comes at once, those after it later and later, as a kubelet does; a pod that lived long starts anew.
_FIRST_DELAY_S = 10.0
_LONGEST_DELAY_S = 300.0
_LONG_LIFE_S = 600.0
# A status has to fit into an object of the API server, 1.5 MB, whatever happens to ten thousand pods at once.
_WHY_LETTERS = 300
_MOST = 1000  # entries; of those beyond, the waits are counted later, and failures are followed by no pause


class Attempt(Value):
    """How often in a row the pod of one name has failed."""

    count: int
    at_s: float  # when the last failure was seen
    uid: str  # of the pod that failed last: it is counted once
    why: str = ""
    is_weather: bool = False  # the cluster took it; it did not fail

    @property
    def ready_s(self) -> float:
        """Return when the pod may be replaced."""
        delay_s = 0.0 if self.count <= 1 else min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** (min(self.count, 20) - 2))
        return self.at_s + delay_s


class Memory(Value):
    """All of it."""

    restarts_gone: int = 0  # of pods that are no more
    restarts: Mapping[str, int] = {}  # of pods that are, by uid
    renewed: Mapping[
        str, int
    ] = {}  # how often a container was started again after status 0, by uid: that counts nowhere
    attempts: Mapping[str, Attempt] = {}  # by name
    refused: Mapping[str, float] = {}  # uid -> since when the scheduler finds no room
    crowded_s: float | None = None  # since when the API server refuses to make a Worker
    leaving: Mapping[str, float] = {}  # uid -> since when it is being deleted
    done: frozenset[str] = frozenset()  # names of pods that are done: of a plain job, and of a Master outside the world
    first_done_s: float | None = None  # when the first member of an elastic job was done
    idle_s: float | None = None  # since when enough Workers run and too few of them train
    has_run: bool = False  # every Worker of the first size has run once, or enough of them for long
    fixed: Mapping[str, str] = {}  # what may not change, as it is in the pods
    made: frozenset[str] = frozenset()  # kinds that have had a pod since then
    free: Mapping[str, float] | None = None  # what the cluster had for this job when the scheduler found no room last

    @property
    def total_restarts(self) -> int:
        """Return all restarts that count."""
        return self.restarts_gone + sum(self.restarts.values())

    @property
    def told_restarts(self) -> str:
        """Return their number in words."""
        return "1 restart" if self.total_restarts == 1 else f"{self.total_restarts} restarts"


class Look(Value):
    """A pod, and what follows if it is over."""

    pod: PodSeen
    judged: restart.Judged | None

    @property
    def is_live(self) -> bool:
        """Tell whether the pod works or will: it is neither over nor on its way out."""
        return self.judged is None and not self.pod.is_going


def remember(memory: Memory, looks: Iterable[Look], now_s: float) -> Memory:
    """Return the memory after a look at the pods. The same look again changes nothing."""
    looks = tuple(looks)
    by_uid = {look.pod.uid: look for look in looks}
    pods = {uid: look.pod for uid, look in by_uid.items()}
    renewed = {uid: _renewed(pod, memory) for uid, pod in pods.items()}
    restarts = {uid: _restarts(look, memory.restarts.get(uid, 0), renewed[uid]) for uid, look in by_uid.items()}
    gone = sum(count for uid, count in memory.restarts.items() if uid not in pods)
    return replace(
        memory,
        restarts_gone=memory.restarts_gone + gone,
        restarts={uid: count for uid, count in restarts.items() if count},
        renewed={uid: count for uid, count in renewed.items() if count},
        attempts=_attempts(memory.attempts, looks, now_s),
        refused=_since(
            memory.refused, (pod for pod in pods.values() if pod.unschedulable is not None and not pod.is_going), now_s
        ),
        leaving=_since(memory.leaving, (pod for pod in pods.values() if pod.is_going), now_s),
        made=memory.made | {pod.kind for pod in pods.values()},
    )


def _restarts(look: Look, before: int, renewed: int) -> int:
    failed = look.judged is not None and look.judged.counts and not look.pod.is_going
    return max(before, look.pod.restarts - renewed + (1 if failed else 0))


def _renewed(pod: PodSeen, memory: Memory) -> int:
    """Return how often a container was started again after status 0. Of several since the last look, the last counts."""
    before = memory.renewed.get(pod.uid, 0)
    new = pod.restarts - before - memory.restarts.get(pod.uid, 0)
    return before + new if new > 0 and pod.last is not None and pod.last.status == 0 else before


def _attempts(before: Mapping[str, Attempt], looks: tuple[Look, ...], now_s: float) -> dict[str, Attempt]:
    attempts = {name: replace(attempt, at_s=min(attempt.at_s, now_s)) for name, attempt in before.items()}
    for look in looks:
        pod, old = look.pod, attempts.get(look.pod.name)
        failed = look.judged is not None and look.judged.verdict == restart.REPLACED and not pod.is_going
        if failed and look.judged is not None and (old is None or old.uid != pod.uid):
            lived_s = (pod.ended.lived_s if pod.ended is not None else None) or 0.0
            count = 1 if old is None or lived_s >= _LONG_LIFE_S else old.count + 1
            why, is_weather = look.judged.why[:_WHY_LETTERS], not look.judged.counts
            attempts[pod.name] = Attempt(count, now_s, pod.uid, why, is_weather)
        elif look.is_live and pod.is_running and old is not None and now_s - old.at_s > _LONG_LIFE_S:
            del attempts[pod.name]
    there = {look.pod.name for look in looks}  # a name that nobody has for so long is of a larger size: it is forgotten
    attempts = {name: one for name, one in attempts.items() if name in there or now_s - one.at_s <= _LONG_LIFE_S}
    if len(attempts) <= _MOST:
        return attempts
    return dict(sorted(attempts.items(), key=lambda item: (item[1].at_s, item[0]))[-_MOST:])


def _since(before: Mapping[str, float], pods: Iterable[PodSeen], now_s: float) -> dict[str, float]:
    since = {pod.uid: min(before.get(pod.uid, now_s), now_s) for pod in pods}
    if len(since) <= _MOST:
        return since
    return dict(sorted(since.items(), key=lambda item: (item[1], item[0]))[:_MOST])


def encode(memory: Memory) -> Json:
    """Return the memory as JSON; what is empty is left out."""
    kept: Json = {
        "restartsGone": memory.restarts_gone,
        "restarts": dict(memory.restarts),
        "renewed": dict(memory.renewed),
        "attempts": {name: _encoded(attempt) for name, attempt in sorted(memory.attempts.items())},
        "refused": {uid: _short(at_s) for uid, at_s in memory.refused.items()},
        "leaving": {uid: _short(at_s) for uid, at_s in memory.leaving.items()},
        "done": sorted(memory.done),
        "firstDone": None if memory.first_done_s is None else _short(memory.first_done_s),
        "idle": None if memory.idle_s is None else _short(memory.idle_s),
        "crowded": None if memory.crowded_s is None else _short(memory.crowded_s),
        "hasRun": memory.has_run,
        "fixed": dict(memory.fixed),
        "made": sorted(memory.made),
        "free": None if memory.free is None else {name: _short(amount) for name, amount in sorted(memory.free.items())},
    }
    return {name: value for name, value in kept.items() if value or (name == "free" and value is not None)}


def _encoded(attempt: Attempt) -> Json:
    kept: Json = {"count": attempt.count, "at": _short(attempt.at_s), "uid": attempt.uid, "why": attempt.why}
    return kept | ({"weather": True} if attempt.is_weather else {})


def _short(number: float) -> float:
    return round(number, 3)


def decode(kept: Any) -> Memory:
    """Read a memory."""
    if not isinstance(kept, dict):
        return Memory()
    return Memory(
        restarts_gone=_read(kept.get("restartsGone"), int, 0),
        restarts=_mapping(kept.get("restarts"), int),
        renewed=_mapping(kept.get("renewed"), int),
        attempts=_mapping(kept.get("attempts"), _attempt),
        refused=_mapping(kept.get("refused"), float),
        leaving=_mapping(kept.get("leaving"), float),
        done=_words(kept.get("done")),
        first_done_s=_read(kept.get("firstDone"), float, None),
        idle_s=_read(kept.get("idle"), float, None),
        crowded_s=_read(kept.get("crowded"), float, None),
        has_run=kept.get("hasRun") is True,
        fixed=_mapping(kept.get("fixed"), str),
        made=_words(kept.get("made")),
        free=_mapping(kept["free"], float) if "free" in kept else None,
    )


def _attempt(kept: Any) -> Attempt:
    why, is_weather = str(kept.get("why", "")), kept.get("weather") is True
    return Attempt(int(kept["count"]), float(kept["at"]), str(kept["uid"]), why, is_weather)


def _words(kept: Any) -> frozenset[str]:
    return _read(kept, lambda words: frozenset(map(str, words)), frozenset())


def _mapping(kept: Any, read: Callable[[Any], T]) -> dict[str, T]:
    return _read(kept, lambda items: {str(name): read(value) for name, value in items.items()}, {})


def _read(kept: Any, read: Callable[[Any], T], otherwise: T) -> T:
    if kept is None:
        return otherwise
    try:
        return read(kept)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return otherwise
