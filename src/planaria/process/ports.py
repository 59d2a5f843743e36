"""Reserve a port for torch's store on rank 0, without a race.

A socket that is bound with SO_REUSEADDR and never listens keeps the port from being handed to anybody else, while rank 0,
which binds with SO_REUSEADDR too, can still listen on it. Every round gets a fresh one: a forked child of the last round
may still hold the old one's listener.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use


class Reservation:
    """A port that is ours until `release`. It is no longer fresh once a round has used it, or may have."""

    def __init__(self) -> None:
        self._socket = _bound()
        self.is_fresh = True
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back to the system."""
        self._socket.close()


def _bound() -> socket.socket:
    try:
        return _bind(socket.AF_INET6, "::")
    except OSError:  # no IPv6 on this machine
        return _bind(socket.AF_INET, "0.0.0.0")  # noqa: S104  nothing listens here


def _bind(family: int, address: str) -> socket.socket:
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind((address, 0))
    except OSError:
        found.close()
        raise
    return found
