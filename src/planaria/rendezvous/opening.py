"""From a command line to a driver that listens: look names up, find the own endpoint, take its port or another.

The same command works on every node, whoever comes first: who finds an endpoint to be its own listens there, the others on
a port of their own. Names that cannot be looked up yet are tried again while the run waits for its nodes anyway.
"""

from __future__ import annotations

import errno
import os

from planaria.base.channel import NOBODY, PEER, STRANGER
from planaria.base.net import Listener, join_address, split_address
from planaria.base.value import Value, replace
from planaria.errors import UsageError
from planaria.rendezvous.addresses import Endpoint, Reach, Routes, known, node_id, reach, reach_owning, spread
from planaria.rendezvous.driver import Driver
from planaria.rendezvous.foreign import EtcdCheck, sentence
from planaria.rendezvous.lookup import NameLookup
from planaria.rendezvous.messages import Ask, Ended
from planaria.rendezvous.security import security_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from planaria.base.loop import Loop, Timer
    from planaria.contract.secret import Secret
    from planaria.rendezvous.addresses import Network
    from planaria.rendezvous.driver import Hands
    from planaria.rendezvous.links import Who
    from planaria.rendezvous.model import Answered, Settings
    from planaria.rendezvous.records import Records
    from planaria.rendezvous.security import Security
    from planaria.store.api import Store

    class Meeting(Protocol):
        """What the command line says about the meeting of nodes."""

        @property
        def backend(self) -> str:
            """Return `embedded`, `static`, or the name of a store's backend."""

        @property
        def endpoints(self) -> tuple[str, ...]:
            """Return them as `host:port`."""

        @property
        def node_rank(self) -> int | None:
            """Return the slot of this node in a static run."""

        @property
        def local_addr(self) -> str | None:
            """Return what the user wants others to know this node by."""

        @property
        def token(self) -> Secret | None:
            """Return what keeps strangers out."""

        @property
        def options(self) -> Mapping[str, str]:
            """Return the backend's own settings, and the certificates for the connections of agents."""


EMBEDDED, STATIC = "embedded", "static"
OURS = (EMBEDDED, STATIC, "etcd")
NAMES_WITHIN_S = 30.0  # after this long an endpoint whose name nobody knows is left to those who dial it
FREE_WITHIN_S = 3.0  # how long the agent of an earlier run on this host may take to leave the port
TRY_AGAIN_S = 0.25
USAGE_STATUS = 2
MOST_COMPLAINTS = 20


def open_driver(  # noqa: PLR0913  # what the agent knows, who it is, and two doors for tests and plugins
    loop: Loop,
    meeting: Meeting,
    hands: Hands,
    draft: Settings,
    *,
    hostname: str,
    random: bytes,
    store: Callable[[], Store] | None = None,
    network: Network | None = None,
) -> Driver:
    """Make the driver of one agent; nothing is looked up, listened on or sent before its `begin`.

    `draft` has what the agent knows; who and where it is, is filled in here. `store` makes the client of the run's external
    store and is None for a run that has none.

    Raises:
        UsageError: An endpoint is no address, a certificate cannot be used, or the store cannot be had.
    """
    endpoints = _endpoints(meeting)
    security = security_of(meeting.token, meeting.options)
    client = _client(draft.run_id, store) if store is not None else None
    node = replace(
        draft, node=node_id(hostname, random, draft.pod_uid), slot=meeting.node_rank, external=client is not None
    )
    opening = Opening(loop, node, endpoints, _Surroundings(meeting, hostname, security, client, network or Routes()))
    driver = Driver(loop, hands, opening, security, opening.on_failed)
    opening.driver = driver
    return driver


class _Surroundings(Value):
    """What an opening needs to know beside the settings."""

    meeting: Meeting
    hostname: str
    security: Security
    store: Store | None
    network: Network


class Opening:
    """Finds out what the machine has to be told before it can start. See `driver.Opening`."""

    driver: Driver

    def __init__(self, loop: Loop, draft: Settings, endpoints: tuple[Endpoint, ...], around: _Surroundings) -> None:
        self._loop = loop
        self._draft = draft
        self._endpoints = tuple(known(endpoint) for endpoint in endpoints)
        self._around = around
        self._names: NameLookup | None = None
        self._timers: list[Timer] = []
        self._reach = Reach(None, ("",), "")
        self._settled = False
        self._said: set[str] = set()
        self._over = False
        self._etcd = EtcdCheck(loop, self._found_etcd)

    def begin(self) -> None:
        """Look up the names, if any; the rest follows once they are known."""
        missing = tuple(endpoint.host for endpoint in self._endpoints if endpoint.addresses is None)
        if not missing:
            self._settle()
            return
        self._names = NameLookup(self._loop, missing, self._looked_up, lambda text: self.driver.say(text, passing=True))
        self._timers.append(self._loop.call_later(min(NAMES_WITHIN_S, self._draft.join_timeout_s), self._settle))
        self._names.begin()

    def hurry(self) -> None:
        """Start the machine now, with what is known."""
        if not self._settled:
            self._settle()
        if not self._over:  # the own port is taken and it is not known by whom
            self._open_elsewhere("")

    def cancel(self) -> None:
        """Stop everything that is under way."""
        if not self._over and self._around.store is not None:
            self._around.store.close()
        self._over = True
        self._etcd.cancel()
        self._stop_waiting()

    def on_failed(self, address: str, why: str, who: Who) -> None:
        """Say why an endpoint could not be reached, once; if no agent speaks there it may be an etcd."""
        if why not in self._said and len(self._said) < MOST_COMPLAINTS and not self._runs():
            self._said.add(why)
            again = f"trying again, for at most {self._draft.join_timeout_s:g} s"
            self.driver.say(f"no leader yet, {why}; {again}", passing=who == NOBODY)
        if self._around.meeting.backend == STATIC and who != PEER:
            self._etcd.look_at(self._around.meeting.endpoints[0])
        elif who == STRANGER:
            self._etcd.look_at(address)

    def _looked_up(self, found: Mapping[str, tuple[str, ...]]) -> None:
        self._endpoints = tuple(
            replace(one, addresses=found[one.host]) if one.host in found else one for one in self._endpoints
        )
        if all(one.addresses is not None for one in self._endpoints):
            self._settle()

    def _stop_waiting(self) -> None:
        if self._names is not None:
            self._names.cancel()
        for timer in self._timers:
            timer.cancel()

    def _settle(self) -> None:
        """Decide what is ours, and open its port."""
        self._settled = True
        self._stop_waiting()
        meeting, network = self._around.meeting, self._around.network
        local_addr = meeting.local_addr.strip("[]") if meeting.local_addr is not None else None
        if meeting.backend == EMBEDDED:
            self._endpoints = spread(self._endpoints)
            self._reach = reach(self._endpoints, self._around.hostname, local_addr, network)
        else:
            owned = 0 if meeting.backend == STATIC and meeting.node_rank == 0 else None
            local = not self._draft.external and all(one.is_loopback for one in self._endpoints)
            self._reach = reach_owning(owned, self._endpoints, local_addr, network, local=local)
        if self._reach.warning:
            self.driver.say(self._reach.warning)
        self._watch_for_etcd()
        if self._reach.owned is None:
            self._open_elsewhere("")
        else:
            self._open_own(self._endpoints[self._reach.owned], self._loop.now() + FREE_WITHIN_S)

    def _open_own(self, own: Endpoint, deadline: float) -> None:
        if self._over:
            return
        try:
            listeners = self._listen(self._reach.listen, own.port)
        except OSError as problem:
            self._blocked(own, problem, deadline)
            return
        self._start(listeners, self._reach.owned)

    def _blocked(self, own: Endpoint, problem: OSError, deadline: float) -> None:
        """The own port cannot be had: see who has it. Another agent is fine, one that is just leaving leaves it to us."""
        why = f"cannot listen on port {own.port} of this host: {os.strerror(problem.errno or 0)}"
        if self._around.meeting.backend == STATIC:
            self._fail(f"{why}; a static run needs --master-port and the port above it, which is {own.port}")
        elif problem.errno != errno.EADDRINUSE:
            self._open_elsewhere(why)
        else:
            address = join_address(_visible(own), own.port)
            ask = Ask(self._draft.run_id, self._draft.node, "", 0, -1, valid=False)
            self.driver.links.ask(address, ask, lambda answer: self._met(own, answer, deadline))

    def _met(self, own: Endpoint, answer: Answered, deadline: float) -> None:
        """Decide by who answers at the own port. One that knows no leader, or another run's, may be about to end."""
        if self._over:
            return
        leads, run_id = answer.leads, self._draft.run_id
        if leads is not None and leads.run_id == run_id and leads.address:
            self._open_elsewhere("")
        elif self._loop.now() < deadline:
            self._timers.append(self._loop.call_later(TRY_AGAIN_S, lambda: self._open_own(own, deadline)))
        elif leads is None:
            trouble = self.driver.links.troubles[answer.address]
            self._open_elsewhere(
                f"port {own.port} of this host is taken, and not by an agent of this run: {trouble.why}"
            )
        else:
            self._open_elsewhere(
                "" if leads.run_id == run_id else f"port {own.port} of this host serves another run, {leads.run_id!r}"
            )

    def _open_elsewhere(self, why: str) -> None:
        """Listen on a port of our own; the endpoint is somebody else's."""
        hosts = (self._reach.host,) if self._reach.listen != ("",) else ("",)
        try:
            listeners = self._listen(hosts, 0)
        except OSError as problem:
            self._fail(f"cannot listen on any port of this host: {os.strerror(problem.errno or 0)}")
            return
        if why:
            self.driver.say(
                f"{why}; this agent listens on port {listeners[0].port} and waits for the endpoint to answer"
            )
        self._start(listeners, None)

    def _listen(self, hosts: tuple[str, ...], port: int) -> tuple[Listener, ...]:
        opened: list[Listener] = []
        try:
            for host in hosts:
                links, security = self.driver.links, self._around.security
                opened.append(
                    Listener(
                        self._loop,
                        (host, port),
                        links.take,
                        token=security.token,
                        tls=security.listen_tls,
                        on_refused=links.complaints,
                    )
                )
                port = opened[0].port
        except OSError:
            for listener in opened:
                listener.close()
            raise
        return tuple(opened)

    def _start(self, listeners: tuple[Listener, ...], owned: int | None) -> None:
        self._over = True
        port = listeners[0].port
        endpoints = [join_address(one.host, one.port) for one in self._endpoints]
        if owned is not None:
            endpoints[owned] = join_address(self._endpoints[owned].host, port)
        settings = replace(
            self._draft,
            host=self._around.hostname,
            address=join_address(self._reach.host, port),
            endpoints=() if self._draft.external else tuple(endpoints),
            owned=owned,
        )
        self.driver.start(settings, listeners, self._records(settings))

    def _records(self, settings: Settings) -> Records | None:
        if self._around.store is None:
            return None
        from planaria.rendezvous.records import Records

        return Records(self._loop, self._around.store, settings.run_id, settings.ttl_s, self.driver.post)

    def _watch_for_etcd(self) -> None:
        meeting = self._around.meeting
        if meeting.backend not in (EMBEDDED, STATIC):
            return
        for one in self._endpoints:
            for host in (one.host, _visible(one)) if one.addresses else ():
                self._etcd.know(join_address(host, one.port), _visible(one), one.port)
        if meeting.backend == STATIC and self._endpoints[0].addresses:
            given = meeting.endpoints[0]
            self._etcd.know(given, _visible(self._endpoints[0]), self._endpoints[0].port - 1)
            if self._reach.owned is not None:
                self._etcd.look_at(given)

    def _found_etcd(self, address: str) -> None:
        if not self._runs():
            self._fail(sentence(address, self._around.meeting.backend))

    def _runs(self) -> bool:
        """Tell whether this agent has met the others; what endpoints do is then no news."""
        return self.driver.snapshot().standing.round >= 0

    def _fail(self, why: str) -> None:
        self.driver.fail(Ended("failed", USAGE_STATUS, why, (), 0))


def _endpoints(meeting: Meeting) -> tuple[Endpoint, ...]:
    """Return the endpoints; what a backend of others calls an endpoint need not have our form."""
    found = []
    for text in meeting.endpoints:
        try:
            host, port = split_address(text)
        except ValueError as problem:
            if meeting.backend not in OURS:
                continue
            raise UsageError(f"--rdzv-endpoint expects HOST:PORT, got {text!r}: {problem}") from problem
        found.append(Endpoint(host, port + 1 if meeting.backend == STATIC else port))
    return tuple(found)


def _client(run_id: str, store: Callable[[], Store]) -> Store:
    from planaria.rendezvous.records import why_no_run

    why = why_no_run(run_id)
    if why is not None:
        raise UsageError(f"--rdzv-id expects a name that a store can hold: {why}")
    return store()


def _visible(own: Endpoint) -> str:
    """Return an address at which this host reaches what listens at its own endpoint."""
    return own.addresses[0] if own.addresses else own.host
