"""The agent's end of a worker's link: it tells notices, and reads what the worker reports."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from planaria.contract.control import decode, encode

if TYPE_CHECKING:
    from planaria.contract.control import Drain, Resize


class Notifier:
    """The other end of the control socket."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._peer: socket.socket | None = None
        self._heard = b""

    @property
    def path(self) -> str:
        return self._listener.getsockname()

    @property
    def peer(self) -> socket.socket:
        if self._peer is None:
            self._peer, _ = self._listener.accept()
        return self._peer

    def tell(self, notice: Drain | Resize) -> None:
        self.peer.sendall(encode(notice))

    def reports(self) -> list[Any]:
        self.peer.setblocking(False)
        return [decode(line) for line in self.peer.recv(1 << 16).splitlines()]

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._listener.close()
