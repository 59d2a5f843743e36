"""Where agents meet about commits: lines to an anchor, and parts that go from one memory to another.

It moves bytes and knows no meaning. Everything goes over the agent's own listener, with the token and certificates of the
rendezvous, which hands over what begins with `["Dock", intent, run_id, round, header]`. No agent asks anything of itself: an
anchor's own member sits in its hall, and a node is neither its own buddy nor fetches what it holds.
"""

from __future__ import annotations

from planaria.agent.berth import decode, encode
from planaria.agent.cargo import Fetching, Giving, Storing, Taking
from planaria.agent.line import Attendance, Line
from planaria.base.net import dial
from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.agent.berth import Ending
    from planaria.base.connection import Connection
    from planaria.base.loop import Loop
    from planaria.base.net import Complaints
    from planaria.rendezvous.security import Security

    class Host(Protocol):
        """Who answers what other agents ask. All of it is called on the loop; `header` is any JSON value: check it."""

        def attended(self, round: int, header: object, line: Line, /) -> object:  # noqa: A002  # the word of the domain
            """Take a member's line to this anchor: set its `on_message` and `on_lost` at once, or close it."""

        def offered(self, round: int, header: object, size_bytes: int, /) -> memoryview | str:  # noqa: A002  # as above
            """Return where to put so many bytes, or why not. Exactly one of `arrived` and `dropped` follows memory."""

        def arrived(self, round: int, header: object, tell: Callable[[str], object], /) -> object:  # noqa: A002  # as above
            """Verify what is there now, and then, on the loop, `tell("")` or why it is not kept."""

        def dropped(self, round: int, header: object, why: str, /) -> object:  # noqa: A002  # as above
            """Hear that the bytes of an offer will not come."""

        def wanted(self, round: int, header: object, /) -> tuple[memoryview, Callable[[], None]] | str:  # noqa: A002  # as above
            """Return a part that is to be read and how to let go of it, which is called once; or why there is none."""


CONNECT_WITHIN_S = 3.0
LONGEST_HEADER_BYTES = 1 << 18
_INTENTS = ("attend", "store", "fetch")


class Dock:
    """The dock of one agent."""

    def __init__(self, loop: Loop, security: Security, run_id: str, host: Host, complaints: Complaints) -> None:
        self._loop = loop
        self._security = security
        self._run_id = run_id
        self._host = host
        self._complaints = complaints
        self._lines: set[Line] = set()
        self._open: dict[object, Ending] = {}  # transfers, by a key of its own each, until it is over

    def close(self) -> None:
        """End everything without a word to those who asked for it; what others have offered is dropped."""
        for line in [*self._lines]:
            line.close()
        for one in [*self._open.values()]:
            one.cancel()
        self._open.clear()

    # What this agent asks of others.

    def attend(
        self,
        address: str,
        round: int,  # noqa: A002  # the word of the domain
        header: object,
        on_message: Callable[[object], object],
        on_lost: Callable[[str], object],
    ) -> Line:
        """Open a line to an anchor, dialling until it is there. `on_lost(why)` is called once, if it breaks or is refused.

        Who wants to go on then attends again: what was said last may not have been heard. Raises ValueError for a header
        that cannot be sent.
        """
        payload = self._header("attend", round, header)
        line = self._line()
        line.on_message, line.on_lost = on_message, on_lost
        line.dialling = Attendance(
            self._loop, payload, line, lambda opened, failed: self._connect(address, opened, failed)
        )
        return line

    def fetch(
        self,
        address: str,
        round: int,  # noqa: A002  # the word of the domain
        header: object,
        into: Callable[[int], memoryview | str],
        on_done: Callable[[str], object],
    ) -> Transfer:
        """Get a part into the memory that `into(size_bytes)` returns; `on_done("")` once all of it is there, or why not.

        `into` may refuse with a text. Raises ValueError for a header that cannot be sent.
        """
        payload = self._header("fetch", round, header)
        return self._transfer(address, on_done, lambda wire, over: Fetching(self._loop, wire, payload, into, over))

    def store(
        self,
        address: str,
        round: int,  # noqa: A002  # the word of the domain
        header: object,
        source: memoryview,
        on_done: Callable[[str], object],
    ) -> Transfer:
        """Bring a part to another agent; `on_done("")` once that one has verified and kept it, or why it has not.

        `source` must not change before; then, or after a `cancel`, nobody has a view of it any more. Raises ValueError for
        a header that cannot be sent.
        """
        payload, view = self._header("store", round, header), memoryview(source).cast("B")
        return self._transfer(
            address, on_done, lambda wire, over: Storing(self._loop, wire, payload, view, over), view.release
        )

    def _header(self, intent: str, round: int, header: object) -> bytes:  # noqa: A002  # the word of the domain
        payload = encode("Dock", intent, self._run_id, round, header)
        if len(payload) > LONGEST_HEADER_BYTES:
            raise ValueError(f"a header of {len(payload)} bytes, over the limit of {LONGEST_HEADER_BYTES}")
        return payload

    def _connect(
        self, address: str, on_open: Callable[[Connection], object], on_lost: Callable[[str], object]
    ) -> Ending:
        return dial(
            self._loop,
            address,
            token=self._security.token,
            tls=self._security.dial_tls,
            timeout_s=CONNECT_WITHIN_S,
            on_open=on_open,
            on_lost=lambda why, _met: on_lost(why),
        )

    def _transfer(
        self,
        address: str,
        on_done: Callable[[str], object],
        begin: Callable[[Connection, Callable[[str], object]], Ending],
        release: Callable[[], object] = lambda: None,
    ) -> Transfer:
        transfer = Transfer(lambda: (self._open.pop(transfer, None), release()), on_done)
        self._open[transfer] = transfer
        transfer.doing = self._connect(address, lambda wire: transfer.begin(begin, wire), transfer.finish)
        return transfer

    def _line(self) -> Line:
        line = Line(self._lines.discard)
        self._lines.add(line)
        return line

    # What others ask of this agent.

    def guest(self, wire: Connection, payload: bytes) -> None:
        """Take a connection with its first message; one that is not for this run, or makes no sense, is dropped."""
        wire.on_message = None
        try:
            intent, round_, header = self._read(payload)
        except ValueError as problem:
            why = safe_line(str(problem))
            self._complaints.add(f"dropped the connection with {wire.peer}, which wanted to dock: {why}", wire.peer)
            wire.send(encode("Refused", why))
            wire.close()
            return
        if intent == "attend":
            self._receive(wire, round_, header)
        elif intent == "fetch":
            self._give(wire, round_, header)
        else:
            key = object()
            taking = Taking(self._loop, wire, self._host, (round_, header), lambda why: self._served(key, wire, why))
            self._open[key] = taking

    def _read(self, payload: bytes) -> tuple[str, int, object]:
        if len(payload) > LONGEST_HEADER_BYTES:
            raise ValueError(f"a header of {len(payload)} bytes, over the limit of {LONGEST_HEADER_BYTES}")
        match decode(payload):
            case "Dock", [str(intent), str(run_id), int(round_), header]:
                if run_id != self._run_id:
                    raise ValueError(f"it is of the run {run_id[:100]!r}, and this agent is not")
                if intent not in _INTENTS or type(round_) is not int or not 0 <= round_ < 1 << 62:
                    raise ValueError(f"no intent of ours, or no round: {intent[:40]!r}, {round_}")
                return intent, round_, header
        raise ValueError("expected Dock, an intent, a run, a round and a header")

    def _receive(self, wire: Connection, round_: int, header: object) -> None:
        line = self._line()
        wire.send(encode("Welcome"))
        self._host.attended(round_, header, line)
        line.join(wire)

    def _give(self, wire: Connection, round_: int, header: object) -> None:
        part = self._host.wanted(round_, header)
        if isinstance(part, str):
            wire.send(encode("Refused", safe_line(part, 500)))
            wire.close()
            return
        key = object()
        self._open[key] = Giving(self._loop, wire, part, lambda why: self._served(key, wire, why))

    def _served(self, key: object, wire: Connection, why: str) -> None:
        self._open.pop(key, None)
        if "no message of ours" in why:
            self._complaints.add(f"dropped the connection with {wire.peer}: {why}", wire.peer)


class Transfer:
    """A part on its way. `on_done` is called exactly once, from the loop, unless it is cancelled before."""

    def __init__(self, on_over: Callable[[], object], on_done: Callable[[str], object]) -> None:
        self._on_over = on_over
        self._on_done = on_done
        self._is_over = False
        self.doing: Ending | None = None

    def begin(self, begin: Callable[[Connection, Callable[[str], object]], Ending], wire: Connection) -> None:
        """Go on with a connection that is open."""
        self.doing = begin(wire, self.finish)

    def finish(self, why: str) -> None:
        """Hear that it is over."""
        if not self._is_over:
            self._is_over = True
            self._on_over()
            self._on_done(why)

    def cancel(self) -> None:
        """Give it up. Harmless when it is over."""
        if not self._is_over:
            self._is_over = True
            self._on_over()
            if self.doing is not None:
                self.doing.cancel()
