"""The owner's door: a UNIX socket in the run's private folder, where the same is answered as over TCP.

It is always there, so that `planaria drain` and `planaria stop` work without a port: it costs one descriptor, and nothing that
serves HTTP is imported before somebody knocks. The folder is our user's alone, and the kernel says who knocks.
"""

from __future__ import annotations

import os

from planaria.agent.listener import Listener
from planaria.base import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket as socket
    from collections.abc import Callable

    from planaria.base.loop import Loop

SOCKET_NAME = "http"
EMBEDDED_NAME = (
    "embedded"  # a file beside it: the agent is in its program's own process, and there is no launcher above
)


class Door:
    """Calls `on_visitor(connection)` for every connection of our own user, or of root."""

    def __init__(self, loop: Loop, path: str, on_visitor: Callable[[socket.socket], object]) -> None:
        self._on_visitor = on_visitor
        self._listener = Listener(loop, path, self._look)

    def close(self) -> None:
        """Let nobody in any more, for an agent whose process goes on without it."""
        self._listener.close()

    def _look(self, visitor: socket.socket) -> None:
        if linux.peer_of(visitor)[1] in (0, os.getuid()):
            self._on_visitor(visitor)
        else:
            visitor.close()
