"""A UNIX socket in a private folder that others connect to."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer

_BACKLOG = 1024  # all workers of a large node connect at once
_PAUSE_S = 0.25  # after an error of `accept`, such as too many open files: whoever waits is still waiting then


class Listener:
    """Calls `on_connection` with every connection, which does not block and which no worker inherits."""

    def __init__(self, loop: Loop, path: str, on_connection: Callable[[socket.socket], object]) -> None:
        self._loop = loop
        self._on_connection = on_connection
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(path)
        self._socket.listen(_BACKLOG)
        self._pause: Timer | None = None
        self._open()

    def close(self) -> None:
        """Let nobody in any more."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.forget(self._socket.fileno())
        self._socket.close()

    def accept_waiting(self) -> None:
        """Let everybody in who has connected by now, before the loop says so."""
        while self._socket.fileno() >= 0 and self._accept():
            pass

    def _open(self) -> None:
        self._loop.on_readable(self._socket.fileno(), self._accept)

    def _accept(self) -> bool:
        """Let one in; False when nobody waits, or nobody can be let in."""
        try:
            descriptor, _ = self._socket._accept()  # type: ignore[attr-defined]  # noqa: SLF001  what socket.accept wraps
        except BlockingIOError:
            return False
        except OSError:
            self._loop.forget(self._socket.fileno())
            if self._pause is not None:
                self._pause.cancel()
            self._pause = self._loop.call_later(_PAUSE_S, self._open)
            return False
        os.set_blocking(descriptor, False)
        os.set_inheritable(descriptor, False)
        self._on_connection(socket.socket(fileno=descriptor))
        return True
