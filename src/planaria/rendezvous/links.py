"""The connections of an agent, by the names the rendezvous machine gives them: to others, from others, and to itself."""

from __future__ import annotations

from planaria.base.channel import NOBODY, PEER, REFUSED, ChannelBroken
from planaria.base.net import Complaints, dial
from planaria.base.value import Value, replace
from planaria.rendezvous import wire
from planaria.rendezvous.inner import Inner
from planaria.rendezvous.messages import Leads
from planaria.rendezvous.model import SELF, Answered, Lost, Opened, Received

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    from planaria.base.channel import Met
    from planaria.base.loop import Loop, Timer
    from planaria.base.net import Connection, Dialling
    from planaria.rendezvous.messages import Ask, Ended, Message
    from planaria.rendezvous.model import Event
    from planaria.rendezvous.security import Security

    Who = Literal["nobody", "stranger", "peer"]

CONNECT_WITHIN_S = 3.0  # a host that is gone without a trace answers nothing; the machine has others to try
SPEAK_WITHIN_S = 10.0  # how long a peer may be connected without a word
ANSWER_WITHIN_S = 1.0
MOST_CLOSING = 64  # ended connections that are kept in mind before they are forgotten
TROUBLES_SHOWN = 3
MOST_TROUBLES = 16
GUEST = b'["Dock",'  # how the first message begins of one that does not come for the rendezvous


class Trouble(Value):
    """Why an address could not be reached, in a sentence that names it."""

    who: Who
    why: str


def explained(ended: Ended, troubles: Mapping[str, Trouble]) -> Ended:
    """Add to the end of a run that did not begin in time whom this agent could not reach, and why."""
    if ended.kind != "timeout":
        return ended
    whys = list(dict.fromkeys(trouble.why for trouble in troubles.values()))
    return replace(ended, explanation="; ".join([ended.explanation, *whys[:TROUBLES_SHOWN]]))


class Traffic(Value):
    """What went over the connections of an agent with others; messages to itself cost nothing and are not in it."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0

    def plus(self, *connections: Connection) -> Traffic:
        """Return the sum with what went over some connections."""
        return Traffic(
            self.bytes_in + sum(one.bytes_in for one in connections),
            self.bytes_out + sum(one.bytes_out for one in connections),
            self.messages_in + sum(one.messages_in for one in connections),
        )


class Links:
    """Keeps connections. `report` takes events, `say` a line for people.

    `on_failed(address, why, who)` hears of addresses that were not reached, in a sentence, and who is there instead.
    `troubles` are those that were not reached since anybody was; of an address that has ever been answered at, what was
    said there counts and not that nobody is there any more. `on_guest(connection, payload)`, once somebody has set it, gets
    the connections that are for somebody else, with their first message.
    """

    def __init__(
        self,
        loop: Loop,
        security: Security,
        report: Callable[[Event], object],
        say: Callable[[str], object],
        on_failed: Callable[[str, str, Who], object],
    ) -> None:
        self._loop = loop
        self.security = security
        self._report = report
        self._on_failed = on_failed
        self._open: dict[str, Connection] = {}
        self._dialled: dict[str, Dialling] = {}
        self._unheard: set[str] = set()
        self._asked: set[_Question] = set()
        self._inner: Inner | None = None
        self._ended = Traffic()
        self._arrivals = 0
        self._closing: list[Connection] = []
        self._forget_at = MOST_CLOSING
        self.troubles: dict[str, Trouble] = {}
        self.complaints = Complaints(loop, say)
        self.on_guest: Callable[[Connection, bytes], object] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def traffic(self) -> Traffic:
        """Count everything since the beginning."""
        return self._ended.plus(*self._open.values())

    @property
    def is_quiet(self) -> bool:
        """Tell whether everything that was sent on connections we closed has arrived, or never will."""
        return all(connection.is_ended for connection in self._closing)

    def take(self, connection: Connection) -> None:
        """Take a connection that somebody else made. It is reported with its first message."""
        self._arrivals += 1
        conn = f"in-{self._arrivals}"
        self._open[conn] = connection
        self._unheard.add(conn)
        connection.on_lost = lambda _why, _met: self._lost(conn)
        connection.on_message = lambda data: self._received(conn, connection, data)
        self._loop.call_later(SPEAK_WITHIN_S, lambda: self._drop_mute(conn))

    def _drop_mute(self, conn: str) -> None:
        """Let go of a peer that shook hands and never said anything: it would keep a descriptor for ever."""
        if conn in self._unheard:
            self.close(conn)

    def connect(self, conn: str, address: str) -> None:
        """Open the connection `conn` to another agent, or to this one."""
        if address == SELF:
            self._end_inner()
            self._inner = Inner(self._loop, conn, self._report)
            return
        self._dialled[conn] = dial(
            self._loop,
            address,
            token=self.security.token,
            tls=self.security.dial_tls,
            timeout_s=CONNECT_WITHIN_S,
            on_open=lambda connection: self._opened(conn, address, connection),
            on_lost=lambda why, met: self._failed(conn, address, why, met),
        )

    def send(self, conn: str, message: Message) -> None:
        """Send a message, if the connection is still there."""
        if self._inner is not None and self._inner.has(conn):
            self._inner.send(conn, message)
        elif conn in self._open:
            self._send(conn, message)

    def close(self, conn: str) -> None:
        """End a connection after what was sent on it; nothing more is reported."""
        if self._inner is not None and self._inner.has(conn):
            self._inner.close(conn)
        if conn in self._dialled:
            self._dialled.pop(conn).cancel()
        self._unheard.discard(conn)
        if conn in self._open:
            connection = self._open.pop(conn)
            connection.close()
            self._ended = self._ended.plus(connection)
            self._closing.append(connection)
            if len(self._closing) >= self._forget_at:  # thousands may close in one turn
                self._closing = [one for one in self._closing if not one.is_ended]
                self._forget_at = 2 * len(self._closing) + MOST_CLOSING

    def ask(self, address: str, ask: Ask, on_answer: Callable[[Answered], object]) -> None:
        """Ask one address who leads, and call back exactly once within a second."""
        question = _Question(
            self._loop,
            address,
            wire.encode(ask),
            lambda answer, why, met: self._answered(question, answer, why, met, on_answer),
        )
        self._asked.add(question)
        question.begin(self.security)

    def close_all(self) -> None:
        """End everything, after what was sent."""
        for question in list(self._asked):
            question.cancel()
        self._asked.clear()
        self._end_inner()
        for conn in [*self._dialled, *self._open]:
            self.close(conn)
        self.complaints.close()

    def _end_inner(self) -> None:
        if self._inner is not None:
            self._inner.end()
            self._inner = None

    def _send(self, conn: str, message: Message) -> None:
        connection = self._open[conn]
        try:
            connection.send(wire.encode(message))
        except ChannelBroken as problem:
            what = f"cannot send it a {type(message).__name__}: {problem}"
            self.complaints.add(f"dropped the connection with {connection.peer}: {what}", connection.peer)
            connection.close()
            self._lost(conn)

    def _opened(self, conn: str, address: str, connection: Connection) -> None:
        self._dialled.pop(conn, None)
        self._open[conn] = connection
        connection.on_lost = lambda why, met: self._failed(conn, "" if connection.messages_in else address, why, met)
        self._report(Opened(conn))
        connection.on_message = lambda data: self._answered_us(conn, connection, data)

    def _answered_us(self, conn: str, connection: Connection, data: bytes) -> None:
        self.troubles.clear()  # it leads, or knows who does: whom we failed to reach before is no news
        self._received(conn, connection, data)

    def _failed(self, conn: str, address: str, why: str, met: Met) -> None:
        trouble = self._note(address, why, met) if address else None
        self._lost(conn, refused=met == REFUSED)
        if trouble is not None:
            self._on_failed(address, trouble.why, trouble.who)

    def _note(self, address: str, why: str, met: Met) -> Trouble:
        why = why.replace(f"({address}: ", "(")  # `dial` names which address of a name it was, and mostly there is one
        trouble = Trouble(NOBODY if met == REFUSED else met, why if address in why else f"{address}: {why}")
        before = self.troubles.pop(address, trouble)
        self.troubles[address] = before if trouble.who == NOBODY != before.who else trouble
        if len(self.troubles) > MOST_TROUBLES:
            del self.troubles[next(iter(self.troubles))]
        return trouble

    def _lost(self, conn: str, *, refused: bool = False) -> None:
        self._dialled.pop(conn, None)
        if conn in self._open:
            self._ended = self._ended.plus(self._open.pop(conn))
        if conn in self._unheard:
            self._unheard.discard(conn)  # nobody was told of it
        else:
            self._report(Lost(conn, refused))

    def _received(self, conn: str, connection: Connection, data: bytes) -> None:
        if self._open.get(conn) is not connection:
            return  # closed by what came with the same bytes before this
        if self.on_guest is not None and conn in self._unheard and data.startswith(GUEST):
            self._hand_over(conn, connection, data, self.on_guest)
            return
        try:
            message = wire.decode(data)
        except ValueError as problem:
            what = f"which sent no message of ours: {problem}"
            self.complaints.add(f"dropped the connection with {connection.peer}, {what}", connection.peer)
            connection.close()
            self._lost(conn)
            return
        self._unheard.discard(conn)
        self._report(Received(conn, message))

    def _hand_over(
        self, conn: str, connection: Connection, data: bytes, on_guest: Callable[[Connection, bytes], object]
    ) -> None:
        """Let a connection go that is for somebody else; what it carries is no traffic of the rendezvous."""
        self._unheard.discard(conn)
        del self._open[conn]
        connection.on_message = connection.on_lost = None
        on_guest(connection, data)

    def _answered(
        self, question: _Question, answer: Answered, why: str, met: Met, on_answer: Callable[[Answered], object]
    ) -> None:
        self._asked.discard(question)
        if question.connection is not None:
            self._ended = self._ended.plus(question.connection)
        if answer.leads is not None:
            self.troubles.pop(answer.address, None)
            on_answer(answer)
            return
        trouble = self._note(answer.address, why, met)
        on_answer(answer)
        self._on_failed(answer.address, trouble.why, trouble.who)


class _Question:
    """One `Ask` on its way."""

    def __init__(
        self, loop: Loop, address: str, data: bytes, on_answer: Callable[[Answered, str, Met], object]
    ) -> None:
        self._loop = loop
        self._address = address
        self._data = data
        self._on_answer = on_answer
        self.connection: Connection | None = None
        self._dialling: Dialling | None = None
        self._limit: Timer | None = None
        self._is_over = False
        self._ends_at = loop.now() + ANSWER_WITHIN_S

    def begin(self, security: Security) -> None:
        """Dial; the time is counted there until the connection is open, and here from then on."""
        self._dialling = dial(
            self._loop,
            self._address,
            token=security.token,
            tls=security.dial_tls,
            timeout_s=ANSWER_WITHIN_S,
            on_open=self._opened,
            on_lost=self._lost,
        )

    def cancel(self) -> None:
        """Forget the question; nobody is called back."""
        self._is_over = True
        if self._limit is not None:
            self._limit.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self.connection is not None:
            self.connection.close()

    def _opened(self, connection: Connection) -> None:
        self.connection = connection
        self._limit = self._loop.call_at(self._ends_at, self._too_late)
        connection.on_lost = self._lost
        connection.on_message = self._received
        connection.send(self._data)

    def _lost(self, why: str, met: Met) -> None:
        self._finish(Answered(self._address, refused=met == REFUSED), why, met)

    def _too_late(self) -> None:
        why = f"it took the connection and said nothing within {ANSWER_WITHIN_S:g} s"
        self._finish(Answered(self._address), why, NOBODY)

    def _received(self, data: bytes) -> None:
        try:
            message = wire.decode(data)
        except ValueError:
            message = None
        leads = message if isinstance(message, Leads) else None
        self._finish(Answered(self._address, leads), "it gave no answer of ours", PEER)

    def _finish(self, answer: Answered, why: str, met: Met) -> None:
        if not self._is_over:
            self.cancel()
            self._on_answer(answer, why, met)
