"""Talk with the doctor of another host, and note what came of it. Nothing is judged here."""

from __future__ import annotations

import os

from planaria.base.addresses import numeric, split_address
from planaria.base.channel import NOBODY, PEER, REFUSED, STRANGER
from planaria.base.net import dial
from planaria.base.value import replace
from planaria.doctor import talk
from planaria.doctor.peers import PeerSeen, check_peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.channel import Met
    from planaria.base.loop import Loop, Timer
    from planaria.base.net import Connection
    from planaria.doctor.talk import Greeting

PINGS = 8
STREAM_S = 1.0
_BLOB = bytes(talk.LARGE_BYTES)
_PIECE = memoryview(talk.UP + bytes(talk.PIECE_BYTES))


class Visit:
    """One talk, from the dialling to the report. `done(seen)` is called once, in any case."""

    def __init__(
        self,
        loop: Loop,
        peer: str,
        own: Greeting,
        done: Callable[[PeerSeen], object],
        *,
        token: bytes | None,
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._own = own
        self._done = done
        self._timeout_s = timeout_s
        self._seen = PeerSeen(peer, "nobody", own_version=own.version)
        self._connection: Connection | None = None
        self._timer: Timer | None = None
        self._trips: list[float] = []
        self._asked_at = 0.0
        self._greeted_at = 0.0
        self._has_waited = False
        self._taken = 0
        self._hear: Callable[[bytes], object] = self._greeted
        dial(loop, peer, token=token, timeout_s=timeout_s, on_open=self._opened, on_lost=self._unmet)

    def _unmet(self, why: str, met: Met) -> None:
        if met == REFUSED:
            self._end(met="refused", why=why)
        elif met == STRANGER and "protocol" in why:
            self._end(met="stranger", why=why)
        elif met in (PEER, STRANGER):  # an agent hangs up on a message that is none of its own
            self._end(met="token" if "token" in why else "peer", why=why)
        else:
            self._end(met="nobody", why=why)

    def _opened(self, connection: Connection) -> None:
        self._connection = connection
        connection.on_message = self._on_message
        connection.on_lost = self._left
        self._seen = replace(self._seen, met="peer", why="it did not answer the greeting")
        self._within(self._end)
        self._greeted_at = self._asked_at
        connection.send(talk.greet(self._own))

    def _left(self, why: str, met: Met) -> None:
        """Take its leave. Without a token, hands are shaken while we talk already: it may be another than we thought."""
        if self._seen.met == "doctor" or met == NOBODY:
            self._end(why=why)
        else:
            self._unmet(why, met)

    def _on_message(self, message: bytes) -> None:
        self._hear(message)

    def _within(self, late: Callable[[], object]) -> None:
        """Give what is asked next its time."""
        if self._timer is not None:
            self._timer.cancel()
        self._asked_at = self._loop.now()
        self._timer = self._loop.call_later(self._timeout_s, late)

    def _send(self, message: bytes) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def _greeted(self, message: bytes) -> None:
        if message == talk.WAIT:
            self._has_waited = True
            self._within(self._end)
            return
        greeting = talk.read_greeting(message)
        if greeting is None:
            self._end(why="its answer to the greeting is another's")
            return
        passed_s = self._loop.now() - self._greeted_at
        ahead_s = greeting.wall_s - self._own.wall_s - (passed_s if self._has_waited else passed_s / 2)
        self._seen = replace(self._seen, met="doctor", why="", version=greeting.version, clock_ahead_s=ahead_s)
        self._hear = self._ponged
        self._ping()

    def _ping(self) -> None:
        self._within(self._end)
        self._send(talk.PING + b"%d" % len(self._trips))

    def _ponged(self, _message: bytes) -> None:
        self._trips.append(self._loop.now() - self._asked_at)
        if len(self._trips) < PINGS:
            self._ping()
            return
        self._seen = replace(self._seen, round_trip_s=sorted(self._trips)[PINGS // 2], large_up=False, large_down=False)
        self._hear = self._arrived
        self._within(self._end)
        self._send(talk.LARGE + _BLOB)

    def _arrived(self, message: bytes) -> None:
        if message == talk.ARRIVED:
            self._seen = replace(self._seen, large_up=True)
            self._within(self._end)
            self._send(talk.MORE)  # asked for, so that the small answer is not one packet with the large one
        elif message.startswith(talk.LARGE):
            self._seen = replace(self._seen, large_up=True, large_down=True)
            self._stream_up()

    def _stream_up(self) -> None:
        """Send for a second, as fast as the other end takes it."""
        connection = self._connection
        if connection is None:
            return
        self._hear = self._taken_up
        self._within(self._end)
        until = self._loop.now() + STREAM_S

        def more() -> None:
            while self._connection is not None and self._loop.now() < until:
                if not connection.send_bulk(_PIECE):
                    return
            connection.on_drained = None
            self._send(talk.UP_END)

        connection.on_drained = more
        more()

    def _taken_up(self, message: bytes) -> None:
        number = message[1:]
        if not message.startswith(talk.UP_END) or not number.isdigit() or len(number) > 20:
            return
        self._seen = replace(self._seen, up_bytes_s=int(number) / max(self._loop.now() - self._asked_at, 1e-6))
        self._hear = self._take_down
        self._within(self._end)
        self._send(talk.DOWN)

    def _take_down(self, message: bytes) -> None:
        self._taken += len(message)
        if message.startswith(talk.DOWN_END):
            rate = self._taken / max(self._loop.now() - self._asked_at, 1e-6)
            self._seen = replace(self._seen, down_bytes_s=rate)
            self._end()

    def _end(self, **more: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        seen = replace(self._seen, **more)
        if seen.met == "doctor":
            self._send(talk.report(check_peer(seen)))
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._done(seen)


def visit_all(
    loop: Loop, peers: tuple[str, ...], own: Callable[[], Greeting], *, token: bytes | None, timeout_s: float
) -> list[PeerSeen]:
    """Talk with one peer after the other: two at once would share the bandwidth that is measured."""
    found: list[PeerSeen] = []
    for peer in peers:
        before = len(found)
        Visit(loop, peer, own(), found.append, token=token, timeout_s=timeout_s)
        while len(found) == before:
            loop.run_once()
        if found[-1].met == "nobody":
            found[-1] = replace(found[-1], is_alive=_answers_elsewhere(peer))
        farewell = loop.now() + 0.2  # the report is on its way
        while (left_s := farewell - loop.now()) > 0:
            loop.run_once(left_s)
    return found


def _answers_elsewhere(peer: str) -> bool:
    from planaria.doctor.look_network import is_alive, look_up

    host, port = split_address(peer)
    targets = numeric(host, port)
    addresses = [str(targets[0][1][0])] if targets else list(look_up(host).addresses[:1])
    return bool(addresses) and is_alive(addresses[0])


def own_greeting(version: str, wall_s: float) -> Greeting:
    """Return who we are."""
    return talk.Greeting(version, os.uname().nodename, wall_s)
