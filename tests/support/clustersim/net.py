"""The network: hosts, one-way links that delay, hold back or cut, and connections as pairs of ordered pipes."""

from planaria.rendezvous.wire import decode, encode

DIAL_S = 1.0


class End:
    """One end of a connection. `got` takes what arrives, `lost` is called at most once, when the other end is gone."""

    __slots__ = ("got", "held", "host", "is_open", "last", "lost", "peer")

    def __init__(self, host, got, lost):
        self.host = host
        self.got = got
        self.lost = lost
        self.peer = None
        self.is_open = True
        self.last = 0.0
        """When the newest thing sent arrives: nothing sent later may overtake it."""
        self.held = []
        """What waits for a cut link, in order; None is the end of the stream."""


class Net:
    """Moves bytes. A host that is away swallows everything; one that is back answers, and refuses what it forgot."""

    def __init__(self, cluster, rng, delay_s):
        self.cluster = cluster
        self.rng = rng
        self.delay_s = delay_s
        self.listeners = {}
        """Address: the agent that listens there."""
        self.down = set()
        self.cut = {}
        """(from, to): how many faults cut that direction."""
        self.lossy = set()
        self.ends = {}
        """Open ends by host, in order of their making: sets of objects have no order to repeat."""

    # Links.

    def passes(self, source, target):
        """Tell whether a packet would arrive."""
        return source == target or not ((source, target) in self.cut or source in self.down or target in self.down)

    def delay(self, source, target):
        """Draw how long a packet takes, lost and sent again included."""
        if source == target:
            return 0.0001
        delay = self.delay_s * (0.5 + self.rng.random())
        if self.lossy and ((source, target) in self.lossy):
            while self.rng.random() < 0.3 and delay < 5.0:
                delay += 0.2 + self.rng.random() * 0.6
        return delay

    def block(self, pairs):
        """Cut some directions until `unblock`."""
        for pair in pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1

    def unblock(self, pairs):
        """Undo one `block`; what was held back is sent again, a while later."""
        for pair in pairs:
            self.cut[pair] -= 1
            if not self.cut[pair]:
                del self.cut[pair]
        self.flush()

    def flush(self):
        """Send again what no link stands in the way of any more."""
        for ends in list(self.ends.values()):
            for end in list(ends):
                if end.held and self.passes(end.host, end.peer.host):
                    held, end.held = end.held, []
                    end.last = max(end.last, self.cluster.now + self.rng.random() * 1.5)  # the kernel tries again then
                    for data in held:
                        self._push(end, data)

    # Connections.

    def dial(self, host, address, opened, got, lost):
        """Connect: `opened(end)` or `lost(refused)` will be called. Returns a handle that `hang_up` takes."""
        end = End(host, got, lost)
        there = self.cluster.host_of(address)
        if not (self.passes(host, there) and self.passes(there, host)):
            self.cluster.after(DIAL_S, self._no_answer, end)
        else:
            self.cluster.after(self.delay(host, there), self._arrive, end, address, there, opened)
        return end

    def _no_answer(self, end):
        if end.is_open:
            end.is_open = False
            end.lost(False)

    def _arrive(self, end, address, there, opened):
        if not end.is_open:
            return
        agent = self.listeners.get(address)
        if not (self.passes(end.host, there) and self.passes(there, end.host)):
            self.cluster.after(DIAL_S, self._no_answer, end)
        elif agent is None:
            self.cluster.after(self.delay(there, end.host), self._refuse, end)
        elif agent.is_deaf:
            # The kernel of a stopped agent takes connections; with a token nothing more happens.
            self.cluster.after(DIAL_S, self._no_answer, end)
        else:
            peer = agent.accept(there)
            end.peer, peer.peer = peer, end
            for one in (end, peer):
                self.ends.setdefault(one.host, {})[one] = None
            self.cluster.after(self.delay(there, end.host), self._connected, end, opened)

    def _refuse(self, end):
        if end.is_open:
            end.is_open = False
            end.lost(True)

    def _connected(self, end, opened):
        if end.is_open:
            opened(end)

    def send(self, end, message):
        """Send a message, unless the end is closed."""
        if end.is_open and end.peer is not None:
            self._push(end, encode(message))

    def close(self, end):
        """End a connection after what was sent; nothing more is reported of it."""
        if not end.is_open:
            return
        end.is_open = False
        if end.peer is not None:
            self._push(end, None)
            self._forget(end)

    def vanish(self, end):
        """Forget one end without a word to the other: its host is gone."""
        end.is_open = False
        end.held = []
        self._forget(end)

    def snap(self, end, later_s):
        """Break a connection: this end learns of it at once, the other `later_s` after; what is on its way still arrives."""
        if end.is_open and end.peer is not None:
            end.is_open = False
            self._forget(end)
            peer = end.peer
            end.lost(False)
            self.cluster.after(later_s, self._ended, peer)

    def _forget(self, end):
        self.ends.get(end.host, {}).pop(end, None)

    def _push(self, end, data):
        source, target = end.host, end.peer.host
        if end.held or not self.passes(source, target):
            end.held.append(data)
            if len(end.held) == 1:
                self.ends.setdefault(end.host, {})[end] = None  # so that `flush` finds it, closed or not
            return
        end.last = max(end.last, self.cluster.now + self.delay(source, target))
        self.cluster.at(end.last, self._deliver, end, data)

    def _deliver(self, end, data):
        peer = end.peer
        if data is None:
            self._ended(peer)
        elif peer.is_open:
            peer.got(decode(data))

    def _ended(self, end):
        if end.is_open:
            end.is_open = False
            self._forget(end)
            end.lost(False)

    # Hosts.

    def reset_to(self, host):
        """`host` is back and remembers nothing: whoever still holds a connection to it learns so."""
        for ends in list(self.ends.values()):
            for end in list(ends):
                if end.is_open and end.peer is not None and end.peer.host == host and not end.peer.is_open:
                    self.cluster.after(0.1 + self.rng.random(), self._ended, end)
