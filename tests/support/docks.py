"""Docks on one loop, each behind a listener of its own, and hosts that write down what they were asked."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from clocks import Leaping

from planaria.agent.dock import Dock
from planaria.base.channel import NONCE_BYTES, Channel
from planaria.base.loop import Loop
from planaria.base.net import Listener
from planaria.rendezvous.links import Links
from planaria.rendezvous.security import Security

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.line import Line

PATIENCE_S = 20.0


class Keep:
    """A host: parts by their header, and everything that it was asked."""

    def __init__(self) -> None:
        self.parts: dict[object, bytearray] = {}
        self.refuses = ""
        self.is_slow = False
        self.told: list[tuple[str, object, object]] = []
        self.lines: list[Line] = []
        self.heard: list[object] = []
        self.lost: list[str] = []
        self.tells: list[Callable[[str], object]] = []
        self.held = 0

    def attended(self, round: int, header: object, line: Line) -> None:  # noqa: A002
        self.told.append(("attended", round, header))
        self.lines.append(line)
        line.on_message, line.on_lost = self.heard.append, self.lost.append
        if self.refuses:
            line.close()

    def offered(self, round: int, header: object, size_bytes: int) -> memoryview | str:  # noqa: A002
        self.told.append(("offered", round, size_bytes))
        if self.refuses:
            return self.refuses
        self.parts[str(header)] = bytearray(size_bytes)
        return memoryview(self.parts[str(header)])

    def arrived(self, round: int, header: object, tell: Callable[[str], object]) -> None:  # noqa: A002
        self.told.append(("arrived", round, header))
        self.tells.append(tell)
        if not self.is_slow:
            tell("")

    def dropped(self, round: int, header: object, why: str) -> None:  # noqa: A002
        self.told.append(("dropped", (round, header), why))

    def wanted(self, round: int, header: object) -> tuple[memoryview, Callable[[], None]] | str:  # noqa: A002
        self.told.append(("wanted", round, header))
        if str(header) not in self.parts:
            return "there is no such part"
        self.held += 1
        return memoryview(self.parts[str(header)]), self.let_go

    def let_go(self) -> None:
        self.held -= 1

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.told]


class Agent:
    """One agent's dock, host, listener and links."""

    def __init__(self, loop: Loop, security: Security, run_id: str) -> None:
        self.said: list[str] = []
        self.keep = Keep()
        self.links = Links(loop, security, lambda _: None, self.said.append, lambda *_: None)
        self.listener = Listener(
            loop,
            ("127.0.0.1", 0),
            self.links.take,
            token=security.token,
            tls=security.listen_tls,
            on_refused=self.links.complaints,
        )
        self.address = f"127.0.0.1:{self.listener.port}"
        self.dock = Dock(loop, security, run_id, self.keep, self.links.complaints)
        self.links.on_guest = self.dock.guest

    def close(self) -> None:
        self.dock.close()
        self.links.close_all()
        self.listener.close()


class Harbour:
    """Agents on one loop, whose clock a test may put forward."""

    def __init__(self) -> None:
        self.clock = Leaping()
        self.loop = Loop(self.clock)
        self.agents: list[Agent] = []
        self.streams: list[socket.socket] = []

    def agent(self, *, token: bytes | None = b"ours", run_id: str = "run", security: Security | None = None) -> Agent:
        self.agents.append(Agent(self.loop, security or Security(token=token), run_id))
        return self.agents[-1]

    def until(self, is_done: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_done():
            assert time.monotonic() < deadline, [(one.keep.told, one.said) for one in self.agents]
            self.loop.run_once(0.05)

    def turns(self, count: int = 5) -> None:
        for _ in range(count):
            self.loop.run_once(0.0)

    def pass_s(self, seconds: float) -> None:
        """Let time pass, in steps that no timer is lost in."""
        for _ in range(int(seconds)):
            self.clock.ahead_s += 1.0
            self.turns(3)

    def raw(self, agent: Agent, token: bytes | None = b"ours") -> Raw:
        return Raw(self, agent, token)

    def close(self) -> None:
        for agent in self.agents:
            agent.close()
        for stream in self.streams:
            stream.close()
        self.loop.close()


class Raw:
    """A peer made by hand: it has shaken hands and can say anything."""

    def __init__(self, harbour: Harbour, agent: Agent, token: bytes | None) -> None:
        self.harbour = harbour
        self.channel = Channel(token=token, dials=True, nonce=bytes(NONCE_BYTES))
        self.stream = socket.create_connection(("127.0.0.1", agent.listener.port))
        harbour.streams.append(self.stream)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.sendall(self.channel.opening())
        self.stream.setblocking(False)
        self.heard: list[bytes] = []
        self.is_over = False
        harbour.until(lambda: self.read() or self.channel.is_open)

    def read(self) -> None:
        """Take what has arrived."""
        try:
            data = self.stream.recv(1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.is_over = True
            return
        payloads, reply = self.channel.receive(data)
        self.heard += payloads
        if reply:
            self.stream.sendall(reply)

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.push(self.channel.seal(payload))

    def push(self, data: bytes) -> None:
        """Send bare bytes."""
        left = memoryview(data)
        while left:
            try:
                left = left[self.stream.send(left) :]
            except BlockingIOError:
                self.harbour.turns(1)
            except ConnectionError:  # it has dropped us
                return

    def until(self, is_done: Callable[[], object]) -> None:
        self.harbour.until(lambda: self.read() or is_done())
