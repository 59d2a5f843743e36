"""The owner's door: a UNIX socket in the run's private folder, where the same is answered as over TCP.

It is always there, so that `planaria drain` and `planaria stop` work without a port: it costs one descriptor, and nothing that
serves HTTP is imported before somebody knocks. The folder is our user's alone, and the kernel says who knocks.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import os

from planaria.base import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer

SOCKET_NAME = "http"
EMBEDDED_NAME = (
    "embedded"  # a file beside it: the agent is in its program's own process, and there is no launcher above
)
_BACKLOG = 64
_PAUSE_S = 0.25  # after an error of `accept`: whoever waits is still waiting then


class Door:
    """Calls `on_visitor(connection)` for every connection of our own user, or of root."""

    def __init__(self, loop: Loop, path: str, on_visitor: Callable[[socket.socket], object]) -> None:
        self._loop = loop
        self._on_visitor = on_visitor
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind(path)
        self._socket.listen(_BACKLOG)
        self._pause: Timer | None = None
        self._open()

    def close(self) -> None:
        """Let nobody in any more, for an agent whose process goes on without it."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.forget(self._socket.fileno())
        self._socket.close()

    def _open(self) -> None:
        self._loop.on_readable(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            descriptor, _ = self._socket._accept()  # type: ignore[attr-defined]  # noqa: SLF001  what socket.accept wraps
        except BlockingIOError:
            return
        except OSError:
            self._loop.forget(self._socket.fileno())
            self._pause = self._loop.call_later(_PAUSE_S, self._open)
            return
        os.set_blocking(descriptor, False)
        visitor = socket.socket(fileno=descriptor)
        if linux.peer_of(visitor)[1] in (0, os.getuid()):
            self._on_visitor(visitor)
        else:
            visitor.close()
