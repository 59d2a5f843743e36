"""The connections of one agent, by the names its machine gives them: to others, from others, and to itself."""

from clustersim.net import DIAL_S, End
from planaria.rendezvous.messages import Leads
from planaria.rendezvous.model import SELF, Answered, Lost, Opened, Received


class Talking:
    """The part of an agent that talks."""

    def __init__(self):
        self.ends = {}
        self.incoming = 0
        self.unheard = set()
        self.own = None
        """What the connection to itself is called."""

    @property
    def is_deaf(self):
        """Whether a new connection gets no answer: the process is stopped and would have to say something first."""
        return self.is_paused and self.cluster.plan.token

    def accept(self, host):
        """Take a connection."""
        self.incoming += 1
        conn = f"in-{self.incoming}"
        self.unheard.add(conn)
        end = self.ends[conn] = End(
            host, lambda message: self._got(conn, message), lambda refused: self._lost(conn, refused)
        )
        return end

    def _got(self, conn, message):
        self.unheard.discard(conn)
        self.post(Received(conn, message))

    def _lost(self, conn, refused):
        self.ends.pop(conn, None)
        if conn in self.unheard:
            self.unheard.discard(conn)  # nobody was told of it
        else:
            self.post(Lost(conn, refused))

    # Effects: connections.

    def _on_connect(self, effect):
        conn = effect.conn
        if effect.address == SELF:
            self.own = conn
            self.cluster.after(0.0, self._own_opened, conn)
            return

        def opened(end):
            self.ends[conn] = end
            self.post(Opened(conn))

        # Until it is open it is known by its name as well: `Close` may come first.
        self.ends[conn] = self.cluster.net.dial(
            self.host,
            effect.address,
            opened,
            lambda message: self.post(Received(conn, message)),
            lambda refused: self._lost(conn, refused),
        )

    def _own_opened(self, conn):
        if self.own == conn:
            self.post(Opened(conn))

    def _on_send(self, effect):
        conn = effect.conn
        if conn == SELF:
            if self.own is not None:
                self.cluster.after(0.0, self._own_got, self.own, self.own, effect.message)
        elif conn == self.own:
            self.cluster.after(0.0, self._own_got, self.own, SELF, effect.message)
        elif (end := self.ends.get(conn)) is not None:
            self.cluster.net.send(end, effect.message)

    def _own_got(self, own, conn, message):
        if self.own == own:
            self.post(Received(conn, message))

    def _on_close(self, effect):
        conn = effect.conn
        if conn in (SELF, self.own):
            if self.own is not None:
                self.cluster.after(0.0, self.post, Lost(self.own if conn == SELF else SELF))
                self.own = None
        elif (end := self.ends.pop(conn, None)) is not None:
            self.cluster.net.close(end)

    def _on_ask_around(self, effect):
        address = effect.address
        state = []

        def answer(leads=None, refused=False):
            if not state:
                state.append(True)
                self.cluster.net.close(end)
                self.post(Answered(address, leads, refused))

        end = self.cluster.net.dial(
            self.host,
            address,
            lambda end: self.cluster.net.send(end, effect.ask),
            lambda message: answer(message) if isinstance(message, Leads) else None,
            lambda refused: answer(None, refused),
        )
        self.cluster.after(DIAL_S, answer)
