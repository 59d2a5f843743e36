"""Watch over scopes: hear of them on the control socket and in torch's pipe, tell the agent when one runs for too long.

An agent imports this when a worker opens its first scope, or when it is asked for torch's pipe; `scopes` keeps the books.
"""

from __future__ import annotations

import time

from planaria.agent.control import rank_of
from planaria.agent.scopes import Scope, Scopes, sentence
from planaria.base import linux, signals
from planaria.base.text import safe_line
from planaria.contract import timer
from planaria.contract.control import Acquire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.control import ControlServer, Peer
    from planaria.agent.fifo import TimerPipe
    from planaria.base.loop import Loop, Timer
    from planaria.base.net import Complaints
    from planaria.contract.control import Release

_NEVER = float("inf")
_SHOWN_CHARACTERS = 60


class Watchdog:
    """Watches the scopes of one node's workers. `on_expired(local_rank, scope, now)` is called once for each that is late.

    Nothing that arrives here can end the agent: what cannot be understood is said in few lines and passed over.
    """

    def __init__(
        self,
        loop: Loop,
        control: ControlServer,
        on_expired: Callable[[int, Scope, float], None],
        wall_clock: Callable[[], float] = time.time,  # noqa: TID251  lines of the pipe name moments of that clock
    ) -> None:
        self._loop = loop
        self._wall_clock = wall_clock
        self._control = control
        self._on_expired = on_expired
        self._timer: Timer | None = None
        self._workers: Mapping[int, int] = {}
        self._ranks: dict[int, int] = {}  # of every process that was found to be a worker or below one
        self._pipe: TimerPipe | None = None
        self._complaints: Complaints | None = None
        self.scopes = Scopes()
        control.on_left = self.scopes.drop

    def open_pipe(self, path: str, source: str, say: Callable[[str], object]) -> None:
        """Make torch's pipe and listen to it; `say` gets one line about each kind of trouble with it.

        Raises:
            UsageError: It cannot be made; `source` is who chose the name.
        """
        from planaria.agent.fifo import TimerPipe
        from planaria.base.net import Complaints

        self._complaints = Complaints(self._loop, say)
        self._pipe = TimerPipe(self._loop, path, source, self._on_line, self._complaints.add)

    def close(self) -> None:
        """Remove the pipe, if there is one."""
        if self._pipe is not None:
            self._pipe.close()

    def serve(self, workers: Mapping[int, int]) -> None:
        """Watch over these workers from now on, given as pid -> local rank."""
        self._workers = workers
        self._ranks = dict(workers)

    def forget(self) -> None:
        """Forget the life that has ended, and what its processes wrote before they did."""
        self.serve({})
        if self._pipe is not None:
            self._pipe.read_all()
        self.scopes.clear()

    def hear(self, peer: Peer, message: Acquire | Release) -> None:
        """Take a message from the control socket. Such a scope ends with its connection at the latest."""
        if isinstance(message, Acquire):
            began_at = min(message.at, self._loop.now())
            scope = Scope(peer.pid, message.scope, message.after_s, began_at, signals.SIGTERM)
            self._open_scope(peer, message.id, scope)
        else:
            self.scopes.release(peer, message.id)

    def _on_line(self, text: bytes) -> None:
        """Take a line from the pipe. Whoever wrote it names a process, which has to be one of ours."""
        try:
            line = timer.decode(text)
        except ValueError as problem:
            shown = safe_line(text.decode("utf-8", "replace"), _SHOWN_CHARACTERS)
            self._complain(f"watchdog: ignored a line that is no timer ({problem}): {shown}")
            return
        if line.is_release:
            self.scopes.release(line.pid, line.scope)
        elif self._is_ours(line.pid):
            # The wall clock counts only for the way through the pipe: later it may be set.
            left_s = line.expires_at - self._wall_clock()
            scope = Scope(line.pid, line.scope, max(left_s, 0.0), self._loop.now(), line.signal)
            self._open_scope(line.pid, line.scope, scope)

    def _is_ours(self, pid: int) -> bool:
        if pid in self._ranks:
            return True
        rank = rank_of(pid, self._workers)
        if rank is not None:
            self._ranks[pid] = rank
        elif self._workers:  # else this is what the last life left in the pipe
            self._complain(
                f"watchdog: ignored a line of process {pid}, which is gone or not below any worker of this node"
            )
        return rank is not None

    def _complain(self, text: str) -> None:
        if self._complaints is not None:
            self._complaints.add(text)

    def _open_scope(self, holder: Peer | int, key: int | str, scope: Scope) -> None:
        self.scopes.acquire(holder, key, scope)
        if self._timer is None or scope.deadline < self._timer.when:
            self._look_at(scope.deadline)

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when < _NEVER:
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Tell of scopes that are late. A release that was on its way in time counts, however late we are ourselves.

        No timer is moved by a release: at the moment of a deadline that has been met we look, and look again at the next.
        """
        self._timer = None
        self._control.catch_up()
        if self._pipe is not None:
            self._pipe.read_all()
        now = self._loop.now()
        for scope in self.scopes.take_expired(now):
            self._tell(scope, now)
        when = self.scopes.next_deadline()
        self._look_at(_NEVER if when is None else when)

    def _tell(self, scope: Scope, now: float) -> None:
        rank = rank_of(scope.pid, self._workers) if linux.is_running(scope.pid) else None
        if rank is None:  # it died inside of the scope, which is for others to see
            return
        if scope.signal <= 0:
            self._complain(f"{sentence(scope, now)}; process {scope.pid} asked for no signal, so nothing is done")
            return
        self._on_expired(rank, scope, now)
