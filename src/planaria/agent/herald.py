"""Writes tidings of the run into a ConfigMap, in a thread: the loop never waits for the API server, a failure costs nothing.

Only an agent that finds PLANARIA_KUBE_PROGRESS imports this file.
"""

from __future__ import annotations

import os
from functools import partial
from queue import SimpleQueue

from planaria import __version__
from planaria.agent.credentials import kube_server
from planaria.agent.tidings import Standing, Tidings
from planaria.contract import glimpse
from planaria.contract.progress import KEY
from planaria.errors import UsageError
from planaria.store.api import Where
from planaria.store.bridge import Bridge
from planaria.store.kubernetes_api import CONFIG_MAPS, Api, ApiAway, ApiConflict, ApiDenied, Manners, access_to

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.driver import Driver
    from planaria.agent.model import Job
    from planaria.base.loop import Loop
    from planaria.store.kubernetes_api import Access

LOOK_S = 1.0  # ranks report many times a second: to look now and then is less work than to hear each of them
WITHIN_S = 5.0


class Herald:
    """Looks, and tells, until it is closed. What goes wrong is said once, until it goes well again."""

    def __init__(self, loop: Loop, name: str, job: Job, driver: Driver, say: Callable[[str], object]) -> None:
        self._loop = loop
        self._name = name
        self._job = job
        self._driver = driver
        self._say = say
        self._tidings = Tidings(f"planaria {__version__}")
        self._orders: SimpleQueue[Mapping[str, str] | None] = SimpleQueue()
        self._bridge: Bridge | None = None
        self._is_busy = False
        self._trouble = ""

    def begin(self) -> None:
        """Find the way to the API server, and look for the first time."""
        try:
            access = access_to(_where(self._name, self._job))
        except UsageError as problem:
            self._complain(str(problem))
            return
        self._bridge = Bridge(self._loop)
        self._bridge.start_thread(lambda: self._work(access))
        self._look()

    def close(self) -> None:
        """Tell nothing more."""
        if self._bridge is not None:
            self._orders.put(None)
            self._bridge.close()

    def _look(self) -> None:
        if self._bridge is None or self._bridge.closing.is_set():
            return
        self._loop.call_later(LOOK_S, self._look)
        if self._is_busy:  # an API server that is slow hears the newest when it has answered
            return
        driver = self._driver
        is_leading = self._job.meeting is None or driver.seat.snapshot().is_leading
        journal = None if driver.observer is None else driver.observer.journal
        happened = 0 if journal is None else journal.notebook.count
        news = self._tidings.news(Standing(is_leading, driver.life, driver.progress, happened), self._loop.now())
        if news is not None:
            self._is_busy = True
            seen = {} if journal is None else {glimpse.KEY: glimpse.write(os.uname().nodename, journal.notebook.events)}
            self._orders.put({KEY: news, **seen})

    def _work(self, access: Access) -> None:
        bridge = self._bridge
        assert bridge is not None
        api = Api(access, Manners(), bridge.clock, bridge.closing)
        while (news := self._orders.get()) is not None:
            bridge.post(partial(self._done, _written(api, news)))
        api.close()

    def _done(self, trouble: str) -> None:
        self._is_busy = False
        if trouble:
            self._complain(trouble)
        else:
            self._trouble = ""

    def _complain(self, trouble: str) -> None:
        if not self._trouble:
            self._say(f"the progress of this run cannot be told to its cluster: {trouble}; training goes on")
        self._trouble = trouble


def _where(name: str, job: Job) -> Where:
    """Return the way that the run's own store takes, if that is in Kubernetes, else that of a pod."""
    options = {"server": kube_server(job.environment)}
    if job.meeting is not None and job.meeting.backend == "kubernetes":
        options = dict(job.meeting.options)
        namespace, slash, _ = job.meeting.endpoints[0].rpartition("/")
        name = name if "/" in name else f"{namespace}{slash}{name}"
    return Where(
        endpoints=(name,),
        ca=options.get("cacert", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
        options=tuple(options.items()),
    )


def _written(api: Api, news: Mapping[str, str]) -> str:
    """Write entries of the ConfigMap; return why that was not possible, or nothing."""
    try:
        api.patch(CONFIG_MAPS, {"data": news}, WITHIN_S)
    except (ApiAway, ApiDenied, ApiConflict) as problem:
        return str(problem)
    except Exception as problem:  # noqa: BLE001  whatever it is, the next record may be written
        return f"{type(problem).__name__}: {problem}"
    return ""
