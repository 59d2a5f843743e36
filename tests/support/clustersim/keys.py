"""The store of a cluster with an external one: the shipped store machine, and clients whose requests and answers get lost.

An agent's side of it is the shipped `Records`, on a loop that stands still while its agent is paused.
"""

from planaria.rendezvous.records import Records, key_of
from planaria.store.api import ANSWER_WITHIN_S, Watching
from planaria.store.machine import Machine
from planaria.store.model import Changed, Delete, Found, Get, List, Unavailable, WatchLost, is_repeatable

HOST = "store"
AGAIN_S = 0.3


class Store:
    """One store; its clock stands still while it is away, unless leases are to run on."""

    def __init__(self, cluster, rng):
        self.cluster = cluster
        self.rng = rng
        self.machine = Machine(start=100)
        self.watches = {}
        self.away = 0
        self.stood_still = 0.0
        self.forgetful = 0
        self.expiry = None

    def records(self, agent):
        """Return what an agent's driver keeps its keys with."""
        return Records(Loop(agent), Client(self, agent), agent.settings.run_id, agent.settings.ttl_s, agent.post)

    def outage(self, lasting, *, leases_run_on):
        """Go away for a while."""
        self.away += 1
        self.cluster.after(lasting, self._back, 0.0 if leases_run_on else lasting)

    def _back(self, stood_still):
        self.away -= 1
        self.stood_still += stood_still
        self.tell()

    def lose_replies(self, lasting):
        """Perform requests for a while, and lose half of the answers."""
        self.forgetful += 1
        self.cluster.after(lasting, self._remember)

    def _remember(self):
        self.forgetful -= 1

    def empty(self, *, anew):
        """Lose all keys of the run; `anew`: all leases and revisions as well, as a store does that is set up again."""
        if self.away:
            self.cluster.after(AGAIN_S, lambda: self.empty(anew=anew))
        elif anew:
            self.machine, self.expiry = Machine(start=1), None
            for watch in list(self.watches):
                watch.lose()
        else:
            for entry in self.machine.request(List(key_of("run", "")), 0.0).entries:
                self.perform(Delete(entry.key))

    def has_round(self):
        """Tell whether a round was ever written."""
        return isinstance(self.machine.request(Get(key_of("run", "round")), 0.0), Found)

    def reaches(self, host):
        """Tell whether a host and the store can talk."""
        net = self.cluster.net
        return not self.away and net.passes(host, HOST) and net.passes(HOST, host)

    def perform(self, asked):
        """Perform a request and tell the watchers."""
        reply = self.machine.request(asked, self.cluster.now - self.stood_still)
        self.tell()
        return reply

    def tell(self):
        """End leases that are over, and tell everybody what changed."""
        if self.away:
            return
        self.machine.expire(self.cluster.now - self.stood_still)
        for change in self.machine.take_changes():
            for watch in list(self.watches):
                watch.changed(change)
        expiry = self.machine.next_expiry()
        if expiry is not None and expiry != self.expiry:
            self.expiry = expiry
            # A little later: what is added and taken away again is not always the same number.
            self.cluster.at(max(expiry + self.stood_still, self.cluster.now) + 1e-6, self._expire, expiry)

    def _expire(self, expiry):
        if expiry == self.expiry:
            self.expiry = None
        self.tell()


class Client:
    """The interface of `planaria.store.api`, on virtual time."""

    def __init__(self, store, agent):
        self.store = store
        self.agent = agent
        self.cluster = store.cluster
        self.last = 0.0
        self.is_closed = False

    def ask(self, asked, on_reply, *, timeout_s=ANSWER_WITHIN_S):
        """Send a request; repeat it if that is harmless or nobody can have seen it."""
        self._send(asked, on_reply, self.cluster.now + timeout_s)

    def _send(self, asked, on_reply, limit):
        if self.is_closed or not (self.agent.is_alive or self.agent.is_polite):
            return
        if self.cluster.now >= limit:
            self._answer(on_reply, Unavailable("no answer", False))
        elif not self.store.reaches(self.agent.host):
            self.cluster.after(AGAIN_S, self._send, asked, on_reply, limit)
        else:
            rng = self.store.rng
            late = rng.random() * 3.0 if self.store.forgetful and rng.random() < 0.2 else 0.0
            lost = self.store.forgetful and rng.random() < 0.5
            delay = self.cluster.net.delay(self.agent.host, HOST) + late
            self.cluster.after(delay, self._arrived, asked, on_reply, limit, lost)

    def _arrived(self, asked, on_reply, limit, lost):
        store = self.store
        if store.away:
            self.cluster.after(AGAIN_S, self._send, asked, on_reply, limit)
            return
        reply = store.perform(asked)
        if not lost and self.cluster.net.passes(HOST, self.agent.host):
            self.later(self._answer, on_reply, reply)
        elif is_repeatable(asked):
            self.cluster.after(AGAIN_S, self._send, asked, on_reply, limit)
        else:
            self.cluster.at(max(limit, self.cluster.now), self._answer, on_reply, Unavailable("no answer", True))

    def later(self, call, *args):
        """Call something when what the store says now has arrived here, in order."""
        self.last = max(self.last, self.cluster.now + self.cluster.net.delay(HOST, self.agent.host))
        self.cluster.at(self.last, call, *args)

    def _answer(self, on_reply, reply):
        self.agent.soon(lambda: None if self.is_closed else on_reply(reply))

    def watch(self, prefix, after, on_event):
        """Tell changes from now on; whatever happened between `after` and now makes it begin again."""
        return Watch(self, prefix, after, on_event)

    def close(self):
        """Drop everything."""
        self.is_closed = True


class Watch(Watching):
    """A watch that is lost with the connection: the machine's history is the business of the store's own tests."""

    def __init__(self, client, prefix, after, on_event):
        self.client = client
        self.prefix = prefix
        self.on_event = on_event
        self.store = client.store
        self.store.watches[self] = None
        missed = self.store.machine.changes_after(after, 1000)
        for change in missed or ():
            self.changed(change)
        if missed is None:
            self.lose()

    def cancel(self):
        """Tell nothing more."""
        self.store.watches.pop(self, None)

    def changed(self, change):
        """Pass a change on, or lose the watch if it cannot arrive."""
        if not change.key.startswith(self.prefix):
            return
        if self.store.reaches(self.client.agent.host):
            self.client.later(self._tell, change)
        else:
            self.lose()

    def lose(self):
        """Tell nothing more, but that there is more to tell."""
        self.cancel()
        self._tell_lost()

    def _tell_lost(self):
        if self.client.is_closed or not self.client.agent.is_alive:
            return
        if self.store.reaches(self.client.agent.host):
            self.client.agent.soon(lambda: self.on_event(WatchLost()))
        else:
            self.client.cluster.after(AGAIN_S, self._tell_lost)

    def _tell(self, change):
        assert isinstance(change, Changed)
        self.client.agent.soon(lambda: self.on_event(change) if self in self.store.watches else None)


class Loop:
    """As much of `base.loop.Loop` as `Records` uses: its agent's clock, and timers that wait for it."""

    def __init__(self, agent):
        self.agent = agent

    def now(self):
        """Return the moment on the agent's clock."""
        return self.agent.clock()

    def call_later(self, delay_s, callback):
        """Call back after a while."""
        return self.call_at(self.agent.clock() + delay_s, callback)

    def call_at(self, when, callback):
        """Call back at a moment."""
        timer = Timer(self.agent, callback)
        cluster = self.agent.cluster
        cluster.at(max(self.agent.true_time(when), cluster.now), self.agent.soon, timer.fire)
        return timer


class Timer:
    """Something that will be called, unless it is cancelled."""

    def __init__(self, agent, callback):
        self.agent = agent
        self.callback = callback

    def cancel(self):
        """Do not call it."""
        self.callback = None

    def fire(self):
        """Call it, once."""
        if self.callback is not None:
            self.callback()
