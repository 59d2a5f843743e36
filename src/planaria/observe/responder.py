"""An HTTP server in a thread of its own: it answers while the loop of its owner is stuck, and says so.

This is why it is a thread: a probe that the watched loop had to answer itself could never be told that it is stuck. The thread
only reads and writes sockets; what it is asked about the owner it asks on the owner's loop (`Mailbox`). It never forks, so no
worker is ever its child, and all signals are blocked in it: they stay with the main thread.
"""

from __future__ import annotations

import _thread

from planaria.base import signals
from planaria.base.addresses import join_address
from planaria.base.loop import Loop
from planaria.base.mailbox import Mailbox
from planaria.base.net import tcp_socket
from planaria.observe.http import HttpServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.observe.http import Peer, Respond
    from planaria.observe.request import Request

LOOPBACK = "127.0.0.1"


class Responder:
    """Listens at (host, port) from the start, and answers once it was started. Port 0 is a free one.

    `answer(request, peer, respond)` is called in the thread, which also has to make the response: see `post`.

    Raises:
        OSError: The address cannot be had.
    """

    def __init__(self, host: str, port: int, answer: Callable[[Request, Peer, Respond], object]) -> None:
        listening = tcp_socket(host, port)
        self.port: int = listening.getsockname()[1]
        self.address = join_address(host or "*", self.port)
        self.loop = Loop()
        self._mailbox = Mailbox(self.loop)
        self._server = HttpServer(self.loop, answer)
        self._server.listen(listening)
        self._ended = _thread.allocate_lock()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError where the system has none left; then the port is free again."""
        self._ended.acquire()
        before = signals.block(signals.NUMBERS.values())  # a thread inherits the mask of its maker
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            self._ended.release()
            self.stop()
            raise
        finally:
            signals.restore_mask(before)

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made in the thread; from any other."""
        self._mailbox.post(call)

    def stop(self, within_s: float = 5.0) -> None:
        """Answer nobody any more and wait for the thread to end."""
        if self._ended.locked():
            self.post(self.loop.stop)
            if not self._ended.acquire(timeout=within_s):
                return  # a callback of its owner's hangs in it: what it uses stays open
            self._ended.release()
        self._server.close()
        self._mailbox.close()
        self.loop.close()

    def _run(self) -> None:
        try:
            self.loop.run()
        finally:
            self._ended.release()
