"""The agent's end of the control socket: hear progress and scopes from workers, tell them of a drain or a resize.

Whoever connects must be our own user and a descendant of one of our workers; a broken or hostile peer loses its connection
and nothing else.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import os

from planaria.agent.listener import Listener
from planaria.base import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planaria.base.loop import Loop

_CHUNK_BYTES = 1 << 16
_CHUNKS = 8  # more than the kernel keeps for one connection
_HUNG_UP = (
    BrokenPipeError,
    ConnectionResetError,
)  # no reason to drop a peer: what it said before that is still to be heard


class Peer:
    """A process that is connected: a worker, or a descendant of one."""

    __slots__ = ("descriptor", "is_witness", "local_rank", "partial", "pid")

    def __init__(self, descriptor: int, pid: int, local_rank: int) -> None:
        self.descriptor = descriptor
        self.pid = pid
        self.local_rank = local_rank
        self.partial = b""
        self.is_witness = False


class ControlServer:
    """Listens in the run's private folder. `on_message(peer, line)` raises ValueError to have a peer dropped.

    `on_left(peer)`, once it is set, is called for every peer that goes, whatever the reason.
    """

    def __init__(self, loop: Loop, path: str, on_message: Callable[[Peer, bytes], None], line_limit: int) -> None:
        self._loop = loop
        self.path = path
        self._on_message = on_message
        self._line_limit = line_limit
        self._workers: Mapping[int, int] = {}
        self._peers: dict[int, Peer] = {}
        self.on_left: Callable[[Peer], None] | None = None
        self._latest = b""
        self._listener = Listener(loop, path, self._welcome)

    def serve(self, workers: Mapping[int, int]) -> None:
        """Accept these workers from now on, given as pid -> local rank; peers of the last life are dropped."""
        self._workers = workers
        self._latest = b""
        for peer in list(self._peers.values()):
            self._drop(peer)

    def close(self) -> None:
        """Stop listening and drop every peer."""
        self.serve({})
        self._listener.close()

    @property
    def has_listeners(self) -> bool:
        """Tell whether any worker of this life is connected by now, whatever else the loop has to do first."""
        self.catch_up()
        return not all(peer.is_witness for peer in self._peers.values())

    @property
    def speakers(self) -> frozenset[int]:
        """Return the local ranks of which a process is connected that may report."""
        return frozenset(peer.local_rank for peer in self._peers.values() if not peer.is_witness)

    @property
    def witnesses(self) -> frozenset[int]:
        """Return the local ranks that have a thread which answers while the others hang."""
        return frozenset(peer.local_rank for peer in self._peers.values() if peer.is_witness)

    def ask_witnesses(self, line: bytes) -> None:
        """Send a line to them alone."""
        for peer in [peer for peer in self._peers.values() if peer.is_witness]:
            self._send(peer, line)

    def broadcast(self, line: bytes) -> None:
        """Send a line to every worker, also to those that connect later in this life.

        One that does not read loses its connection: a stop never waits for a reader.
        """
        self._latest = line
        for peer in list(self._peers.values()):
            self._send(peer, line)

    def reply(self, peer: Peer, line: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send a line to one peer, descriptors beside it; to one that has gone, nothing."""
        if not self._is_here(peer):
            return
        if not descriptors:
            self._send(peer, line)
            return
        from array import array

        connection = socket.socket(fileno=peer.descriptor)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
        try:
            sent = connection.sendmsg([line], [rights])
        except _HUNG_UP:
            sent = len(line)
        except OSError:
            sent = -1
        finally:
            connection.detach()
        if sent != len(line):
            self._drop(peer)

    def catch_up(self) -> None:
        """Hear everything that was sent before now, also by those who have yet to be let in."""
        self._listener.accept_waiting()
        for peer in list(self._peers.values()):
            self._hear_out(peer)

    def _hear_out(self, peer: Peer) -> None:
        """Hear everything that a peer has sent before now."""
        for _ in range(_CHUNKS):
            if not self._is_here(peer) or not self._read(peer):
                break

    def _send(self, peer: Peer, line: bytes) -> None:
        try:
            sent = os.write(peer.descriptor, line)
        except _HUNG_UP:
            return
        except OSError:
            sent = -1
        if sent != len(line):
            self._drop(peer)

    def _welcome(self, connection: socket.socket) -> None:
        pid, local_rank = self._who_is(connection)
        descriptor = connection.detach()
        if local_rank is None:
            os.close(descriptor)
            return
        for peer in [peer for peer in self._peers.values() if peer.pid == pid]:
            self._hear_out(peer)  # what a process said over a connection that it gave up comes before what it says now
        self._peers[descriptor] = Peer(descriptor, pid, local_rank)
        self._loop.on_readable(descriptor, lambda: self._read(self._peers[descriptor]))
        if self._latest:
            self._send(self._peers[descriptor], self._latest)

    def _who_is(self, peer: socket.socket) -> tuple[int, int | None]:
        """Return the peer's pid and the local rank of the worker that it is or descends from."""
        pid, uid = linux.peer_of(peer)
        return pid, None if uid != os.getuid() else rank_of(pid, self._workers)

    def _read(self, peer: Peer) -> bool:
        """Hear one chunk; False when there was nothing to hear or the peer is gone."""
        try:
            chunk = os.read(peer.descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        *lines, rest = (peer.partial + chunk).split(b"\n")
        is_broken = not chunk or max(map(len, (*lines, rest))) > self._line_limit
        try:
            for line in lines:
                self._on_message(peer, line)
                if not self._is_here(peer):  # it does not read, as an answer to it has shown
                    return False
        except ValueError:
            is_broken = True
        if is_broken:
            self._drop(peer)
            return False
        peer.partial = rest
        return True

    def _is_here(self, peer: Peer) -> bool:
        return self._peers.get(peer.descriptor) is peer

    def _drop(self, peer: Peer) -> None:
        if not self._is_here(peer):  # its descriptor may be somebody else's by now
            return
        self._loop.forget(peer.descriptor)
        os.close(peer.descriptor)
        del self._peers[peer.descriptor]
        if self.on_left is not None:
            self.on_left(peer)


def rank_of(pid: int, workers: Mapping[int, int]) -> int | None:
    """Return the local rank of the worker that a process is or descends from; `workers` is pid -> local rank."""
    above: int | None = pid
    while above is not None and above > 1:
        if above in workers:
            return workers[above]
        above = linux.parent_of(above)
    return None
