"""The other end of a connection that somebody opened who is none of us."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from planaria.base.channel import Channel

if TYPE_CHECKING:
    import socket

PATIENCE_S = 60.0


def has_ended(stream: socket.socket) -> bool:
    """Tell whether the other end has closed a connection that does not block; what it said before is skipped."""
    try:
        while stream.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def shake_hands(stream: socket.socket, token: bytes | None) -> tuple[Channel, bytes]:
    """Open a connection as somebody does who knows the token; return the channel and all that was said."""
    channel = Channel(token=token, dials=True, nonce=random.Random(1).randbytes(32))
    said = channel.opening()
    stream.settimeout(PATIENCE_S)
    stream.sendall(said)
    while token is not None and not channel.is_open:
        heard = stream.recv(1000)
        assert heard, "it ended the connection"
        _, reply = channel.receive(heard)
        stream.sendall(reply)
        said += reply
    stream.setblocking(False)
    return channel, said
