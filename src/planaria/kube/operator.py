"""Run the operator: one of several acts, by a Lease; it keeps its copies, looks at jobs, and says how it is over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from planaria.base.value import Value
from planaria.contract import progress
from planaria.errors import KubeError, LeadershipLost
from planaria.kube.books import WITH_EVENTS, Books
from planaria.kube.gallery import Gallery
from planaria.kube.gather import READ_S, Gatherer
from planaria.kube.leadership import Leadership
from planaria.kube.queue import Queue
from planaria.kube.reconcile import Reconciler
from planaria.kube.resources import LEASE, NODE, path
from planaria.kube.serve import Door
from planaria.kube.tails import Tails
from planaria.kube.tenure import Terms
from planaria.kube.watching import Watcher, silence
from planaria.observe.metrics import Registry

if TYPE_CHECKING:
    from planaria.kube.api import Api, Call
    from planaria.kube.watching import Key

_MEASURE_S = 1.0  # between two counts of what the cluster has left
_RELEASE_S = 3.0
LOOPBACK = "127.0.0.1"
T = TypeVar("T")


class Settings(Value):
    """What an owner may choose."""

    identity: str
    lease: tuple[str, str] = ("planaria-system", "planaria-operator")
    namespaces: tuple[str, ...] = ()  # of the jobs; empty: all
    host: str = ""
    port: int = 8080
    tasks: int = 8
    metrics_every_s: float = READ_S
    terms: Terms = Terms.of(15.0)
    dashboard_port: int | None = None  # of the web page, on loopback; None: there is none


class Means(Value):
    """What the operator gets from outside: words to people, the time of day, fresh tokens, chance, seconds that only grow."""

    say: Callable[[str], object]
    wall: Callable[[], float]
    noise: Callable[[], str]
    chance: Callable[[], float]
    clock: Callable[[], float] = time.monotonic


class Operator:
    """One operator process."""

    def __init__(self, api: Api, settings: Settings, means: Means) -> None:
        self._settings = settings
        self._means = means
        self._api = api
        self._chained = api.before_call
        api.before_call = self._before_call
        self._lease_path = api.exempt = path(LEASE, settings.lease[0], settings.lease[1])
        self._meters = Meters()
        self._leadership = Leadership(api, settings.lease, settings.identity, settings.terms, means.chance, means.clock)
        entries = (progress.KEY,) if settings.dashboard_port is None else WITH_EVENTS  # events are for the page alone
        self._books = Books(self._wake, settings.namespaces, self._renewed, means.clock, entries)
        self._watchers: list[Watcher] = []
        self._gatherer = Gatherer(api, self._wake, means.chance, settings.metrics_every_s, means.clock)
        reconciler = Reconciler(api, self._books, self._gatherer, means.wall, means.noise)
        self._queue = Queue(reconciler.look, means.chance, means.say, self._meters.looked)
        self._tails = Tails(api, means.clock)
        self._gallery = Gallery(self._books, means.wall, self._tails)

    async def run(self) -> None:
        """Run until cancelled.

        Raises:
            LeadershipLost: Another may act from now on. Start again, as a standby.
            KubeError: The cluster does not let this operator work.
            OSError: The address for health and metrics cannot be had.
        """
        door = Door(self._alive, self._ready, self._meters.registry)
        server = await door.serve(self._settings.host, self._settings.port)
        async with server, self._page():
            self._means.say(f"health and metrics at {_addresses(server)}")
            await self._leadership.acquire(self._means.say)
            self._means.say(f"{self._settings.identity} holds the Lease and acts")
            try:
                await self._act()
            finally:
                await self._gatherer.close()
                with contextlib.suppress(KubeError, TimeoutError):
                    async with asyncio.timeout(_RELEASE_S):
                        await self._leadership.release()

    async def _act(self) -> None:
        self._meters.leads.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._leadership.keep())  # first: a large cluster takes its time to list
                await self._look_for_nodes()
                self._watchers = [
                    Watcher(self._api, copy, self._means.chance, self._means.say, namespace)
                    for copy in self._books.copies
                    for namespace in copy.selection.namespaces
                ]
                for watcher in self._watchers:
                    group.create_task(watcher.run())
                for copy in self._books.copies:
                    await copy.is_synced.wait()
                self._books.measure()
                self._means.say(f"{len(self._books.jobs)} jobs found")
                group.create_task(self._measure())
                group.create_task(self._queue.run(self._settings.tasks))
        except BaseExceptionGroup as group_of:
            raise _first(group_of) from group_of

    async def _look_for_nodes(self) -> None:
        """Do without nodes where an owner lets us see one namespace alone: room that appears is found by trying."""
        try:
            await self._api.list(NODE, metadata=True)
        except KubeError as problem:
            if problem.status != 403:
                raise
            self._books.nodes = None
            self._means.say(f"going on without a view of nodes: {problem.message}")

    @contextlib.asynccontextmanager
    async def _page(self) -> AsyncIterator[None]:
        """Serve the web page to this pod alone, where somebody wants it: `kubectl port-forward` leads there."""
        if self._settings.dashboard_port is None:
            yield
            return
        from planaria.dashboard.answers import Answers
        from planaria.dashboard.door import Door as PageDoor

        answers = Answers(self._gallery, None, LOOPBACK, time.monotonic, _at_once)
        page = PageDoor(answers.answer)
        port = await page.open(LOOPBACK, self._settings.dashboard_port)
        self._means.say(f"web page at http://{LOOPBACK}:{port}/")
        try:
            yield
        finally:
            await page.close()
            await self._tails.close()

    def _wake(self, key: Key) -> None:
        self._queue.wake(key)
        if self._settings.dashboard_port is not None:
            self._gallery.saw(key)

    def _alive(self) -> str:
        return silence(self._watchers, time.monotonic())

    def _renewed(self, key: Key) -> None:
        self._queue.forget(key)  # what failed was another spec: this one need not wait

    def _ready(self) -> str:
        if not self._leadership.is_held:
            return "" if self._leadership.is_seen else "the Lease was not seen yet"
        return "" if self._books.is_synced else "not everything was listed yet"

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_S)
            if self._books.measure():
                self._books.wake_all()
            self._meters.jobs.set(len(self._books.jobs))
            self._meters.pods.set(len(self._books.pods))
            self._meters.waiting.set(len(self._queue))

    def _before_call(self, call: Call) -> None:
        """Count a call, and refuse one that would write after the Lease is over."""
        self._chained(call)
        made_path = f"{call.path}/{call.name}" if call.name else call.path
        if call.writes and made_path != self._lease_path and not self._leadership.is_held:
            raise LeadershipLost("the Lease is over: nothing is written any more")
        self._meters.calls.add(1, method=call.method)


class Meters:
    """What /metrics shows."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.leads = self.registry.gauge("planaria_operator_leads", "1 on the operator that acts.")
        self.jobs = self.registry.gauge("planaria_operator_jobs", "Jobs there are.")
        self.pods = self.registry.gauge("planaria_operator_pods", "Pods of jobs.")
        self.waiting = self.registry.gauge("planaria_operator_queue_length", "Jobs that wait to be looked at.")
        self.calls = self.registry.counter("planaria_operator_calls_total", "Calls of the API server.", ("method",))
        self._looks = self.registry.counter(
            "planaria_operator_looks_total", "Looks at a job, by their end.", ("result",)
        )
        self._seconds = self.registry.histogram("planaria_operator_look_seconds", "How long a look took.")

    def looked(self, seconds: float, result: str) -> None:
        """Count a look at a job."""
        self._looks.add(1, result=result)
        self._seconds.observe(seconds)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one error that stands for all: tasks that were cancelled for it are none."""
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


async def _at_once(call: Callable[..., T], /, *args: Any) -> T:
    """Call what does not block, on this loop, where the books are written."""
    return call(*args)


def _addresses(server: asyncio.Server) -> str:
    return ", ".join(sorted({f"port {one.getsockname()[1]}" for one in server.sockets}))
