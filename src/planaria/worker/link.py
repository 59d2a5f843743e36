"""The worker's end of the control socket: report progress, hear that a stop or another world is coming.

Outside of `planaria run` there is no agent to talk to, and everything here does nothing.
"""

from __future__ import annotations

import os
import socket

from planaria.contract.control import LINE_LIMIT_BYTES, Drain, Progress, Resize, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Link:
    """A connection to the agent, made at the first use and given up for good when it breaks."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._pid = 0
        self._socket: socket.socket | None = None
        self._heard = b""
        self._drain: Drain | None = None
        self._resize: Resize | None = None

    def report(self, step: int, values: Mapping[str, float]) -> None:
        """Send progress; never blocks for long and never raises: training goes on without an agent that listens."""
        peer = self._peer()
        if peer is None:
            return
        try:
            peer.sendall(encode(_plain(step, values)))
        except OSError:
            self._give_up()
        except (TypeError, ValueError, OverflowError):  # not a number: the report is lost, the training is not
            return

    def drain(self) -> Drain | None:
        """Return the agent's notice of a stop, if it has sent one; does not wait."""
        self._listen()
        return self._drain

    def resize(self) -> Resize | None:
        """Return the agent's notice that the world is about to change, if it has sent one; does not wait."""
        self._listen()
        return self._resize

    def _listen(self) -> None:
        peer = self._peer()
        try:
            # A socket with a timeout waits in recv, MSG_DONTWAIT or not; its descriptor does not.
            while peer is not None and (chunk := os.read(peer.fileno(), LINE_LIMIT_BYTES)):
                *lines, self._heard = (self._heard + chunk).split(b"\n")
                for message in map(decode, lines):
                    if isinstance(message, Drain):
                        self._drain = message
                    elif isinstance(message, Resize):
                        self._resize = message
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._give_up()

    def _peer(self) -> socket.socket | None:
        """Return the connection of this process; a forked child makes its own."""
        if self._pid != os.getpid() and self._path:
            self._pid = os.getpid()
            found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            found.settimeout(1.0)
            try:
                found.connect(self._path)
                self._socket = found
            except OSError:
                found.close()
                self._socket = None
        return self._socket

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _plain(step: int, values: Mapping[str, float]) -> Progress:
    """Make Python numbers of whatever counts as one, such as a tensor or an array with a single element."""
    return Progress(int(step), tuple((name, float(value)) for name, value in values.items()))
