"""The operator's own reconciler over a server in memory: killed at any call, woken late or twice."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import inf
from random import Random
from typing import Any, TypeVar

from kubesim.door import Door
from kubesim.server import Json, Server, copied
from kubesim.timeline import Timeline
from kubesim.training import Run
from planaria.errors import KubeError
from planaria.kube.api import Change
from planaria.kube.books import Books
from planaria.kube.model import Delete
from planaria.kube.names import JOB_KIND
from planaria.kube.reconcile import Reconciler
from planaria.kube.scaling_model import Wants
from planaria.kube.seen import Metrics

_AWAY_S = 5.0
_AGAIN_S = 1.0  # after a failure
_SAMPLES_S = 10.0

T = TypeVar("T")


class Killed(Exception):
    """The operator's process is no more."""


class Operator:
    """One process after another that looks after one job."""

    def __init__(self, server: Server, time: Timeline, rng: Random, job: str, run: Run | None = None) -> None:
        self.server, self.time, self.rng, self.job, self.run = server, time, rng, job, run
        self.calls = 0
        self.kill_at: set[int] = set()
        self.conflict_at: set[int] = set()
        self.deleting: Callable[[Delete], None] = lambda _: None
        self.events: list[str] = []
        self.told = self.events.append
        self._life: _Life | None = None
        self._due_s = inf
        server.watchers.append(self._changed)
        self._start()

    def call(self, call: Callable[[], T], _what: str = "") -> T:
        """Make a call of the server, which may be the last."""
        index = self.calls
        self.calls += 1
        if index in self.kill_at:
            raise Killed
        if index in self.conflict_at:
            self.server.edit(
                JOB_KIND, self.job, lambda job: job["metadata"].setdefault("labels", {}).update(touched=str(index))
            )
        return call()

    def woken(self) -> None:
        """Look soon; sometimes late, and sometimes twice."""
        late = self.rng.random()
        self._wake(self.rng.uniform(0.0, 5.0) if late < 0.05 else self.rng.uniform(0.0, 0.2))
        if late > 0.9:
            self.time.after(self.rng.uniform(0.0, 2.0), lambda: self._wake(0.0))

    def _changed(self, kind: str, name: str) -> None:
        if self._life is not None:
            self._life.hear(kind, name)

    def _wake(self, seconds: float) -> None:
        """Look after so many seconds, unless it looks before."""
        due_s = self.time.now + seconds
        if due_s < self._due_s:
            self._due_s = due_s
            self.time.after(seconds, lambda: self._turn(due_s))

    def _turn(self, due_s: float) -> None:
        if due_s != self._due_s or self._life is None:
            return
        self._due_s = inf
        try:
            wake = self._life.look()
        except KubeError:
            wake = _AGAIN_S
        except Killed:
            self._life, self._due_s = None, inf
            self.time.after(_AWAY_S, self._start)
            return
        if wake is not None:
            self._wake(wake + 0.01)

    def _start(self) -> None:
        self._due_s = inf
        self._life = _Life(self)
        self._wake(0.0)


class _Life:
    """One process: what it knows, and what goes with it."""

    def __init__(self, operator: Operator) -> None:
        self._operator, self._server, self._time = operator, operator.server, operator.time
        self._namespace = "default"
        self._books = Books(lambda _key: operator.woken(), clock=lambda: self._time.now)
        self._samples = _Samples(operator)
        self._reconciler = Reconciler(
            Door(self._server, operator),  # type: ignore[arg-type]  # what is asked of it
            self._books,
            self._samples,  # type: ignore[arg-type]  # likewise
            lambda: self._time.now,
            lambda: "token",
        )
        self._copies = {copy.selection.kind.name: copy for copy in self._books.copies}
        self._heard: dict[tuple[str, str], Json] = {}
        for kind, copy in self._copies.items():
            listed = [copied(obj) for obj in self._server.list(kind)]
            self._heard |= {(kind, obj["metadata"]["name"]): obj for obj in listed}
            copy.reset(copy.keep(copied(obj)) for obj in listed)

    def hear(self, kind: str, name: str) -> None:
        """Take a change as a watch tells it."""
        if kind not in self._copies:
            return
        found = self._server.get(kind, name)
        change = (
            Change("DELETED", self._heard.get((kind, name))) if found is None else Change("MODIFIED", copied(found))
        )
        if found is not None:
            self._heard[kind, name] = copied(found)
        self._copies[kind].take(change)

    def look(self) -> float | None:
        """Look once; return when to look again."""
        self._books.measure()
        after_s = _driven(self._reconciler.look((self._namespace, self._operator.job)))
        run = self._operator.run
        if after_s is None or run is None or run.is_finished:
            return after_s
        return min(_SAMPLES_S, after_s)  # samples wake it too


class _Samples:
    """What a gatherer has for a job: the samples of its run since this process began, until they are taken."""

    def __init__(self, operator: Operator) -> None:
        self._run, self._time = operator.run, operator.time
        self._born_s = operator.time.now
        self._taken = 0 if self._run is None else len(self._run.samples)

    def push(self, _key: object, _text: str) -> None:
        pass

    def metrics(self, _key: object) -> Metrics:
        samples = () if self._run is None else tuple(self._run.samples[self._taken :])
        return Metrics(samples, watched_s=self._time.now - self._born_s)

    def taken(self, _key: object, count: int, _wants: Wants) -> None:
        self._taken += count

    def follow(self, _key: object, _source: object) -> None:
        pass

    async def drop(self, _key: object) -> None:
        self._taken = 0 if self._run is None else len(self._run.samples)


def _driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as over:
        found: T = over.value
        return found
    raise AssertionError("it waits for something that nobody does")
