"""Both ends of connections on a loop of their own, and what became of them; and a name service that a test owns."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from planaria.base import addresses
from planaria.base.channel import Channel
from planaria.base.loop import Loop
from planaria.base.net import Connection, Listener, dial

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.channel import Met

TURN_S = 20.0
TOKENS = [None, b"secret"]


LISTENERS: list[Listener] = []
CONNECTIONS: list[Connection] = []


def listen(loop: Loop, on_connection: Callable[[Connection], object]) -> Listener:
    def meet(connection: Connection) -> None:
        CONNECTIONS.append(connection)
        on_connection(connection)

    LISTENERS.append(Listener(loop, ("127.0.0.1", 0), meet, token=None))
    return LISTENERS[-1]


def until(loop: Loop, is_done: Callable[[], object], limit_s: float = TURN_S) -> None:
    deadline = time.monotonic() + limit_s  # the loop's own clock may stand still
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen"
        loop.run_once(0.05)


class Server:
    """A listener that echoes, and what it was told."""

    def __init__(self, loop: Loop, address: tuple[str, int] | str = ("127.0.0.1", 0), **kwargs: object) -> None:
        self.connections: list[Connection] = []
        self.lines: list[str] = []
        self.lost: list[str] = []
        self.met: list[Met] = []
        self.heard: list[bytes] = []
        kwargs.setdefault("token", None)
        self.listener = Listener(loop, address, self.meet, on_refused=self.lines.append, **kwargs)  # type: ignore[arg-type]
        LISTENERS.append(self.listener)
        self.address = address if isinstance(address, str) else f"127.0.0.1:{self.listener.port}"

    def meet(self, connection: Connection) -> None:
        self.connections.append(connection)
        CONNECTIONS.append(connection)
        connection.on_lost = self.lose
        connection.on_message = lambda payload: self.hear(connection, payload)

    def lose(self, why: str, met: Met) -> None:
        self.lost.append(why)
        self.met.append(met)

    def hear(self, connection: Connection, payload: bytes) -> None:
        self.heard.append(payload)
        connection.send(b"echo " + payload)


class Client:
    """The dialling end, and what became of it."""

    def __init__(self, loop: Loop, address: str, *first: bytes, timeout_s: float = TURN_S, **kwargs: object) -> None:
        self.first = first
        self.connection: Connection | None = None
        self.heard: list[bytes] = []
        self.lost: list[tuple[str, Met]] = []
        kwargs.setdefault("token", None)
        self.dialling = dial(
            loop,
            address,
            timeout_s=timeout_s,
            on_open=self.open,
            on_lost=lambda why, met: self.lost.append((why, met)),
            **kwargs,  # type: ignore[arg-type]
        )

    def open(self, connection: Connection) -> None:
        self.connection = connection
        CONNECTIONS.append(connection)
        connection.on_message = self.heard.append
        connection.on_lost = lambda why, met: self.lost.append((why, met))
        for payload in self.first:
            connection.send(payload)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Names:
    """A name service of our own making."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
        self.asked = 0
        self.masks: list[set[int]] = []
        self.threads: list[int] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.hosts = hosts
        self.real = addresses._resolve
        monkeypatch.setattr(addresses, "_resolve", self.resolve)

    def resolve(self, host: str, port: int, flags: int) -> list[addresses.Target]:
        if flags:
            return self.real(host, port, flags)
        import signal

        self.asked += 1
        self.threads.append(threading.get_native_id())
        self.masks.append({int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())})
        assert self.may_answer.wait(TURN_S)
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [target for host in self.hosts for target in self.real(host, port, socket.AI_NUMERICHOST)]


def hello() -> bytes:

    return Channel(token=None, dials=True, nonce=bytes(32)).opening()
