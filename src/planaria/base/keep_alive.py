"""What the kernel does to find out that a peer's host is gone without a word: asks it now and then, and gives up."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use

# 30 s after the last sign of life, also for who only listens: as long as a berth bears silence. What was sent and never
# acknowledged ends by the last of these; without it the kernel tries for a quarter of an hour.
KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)


def keep_alive(stream: socket.socket) -> None:
    """Have the kernel look after the host at the other end of a TCP socket, or of all that a listening one accepts."""
    for level, option, value in KEEP_ALIVE:
        stream.setsockopt(level, option, value)
