"""The launcher's process once its agent runs: pass signals on, and see to it that nothing outlives either of them.

    guardian (the pid the owner knows)  --pipe: signal numbers, end of file = I am dead-->  agent  -->  workers
                                        <--board: no worker may live from this moment on--

Both are child subreapers, the guardian above the agent, in different sessions and with different command lines, so one
blow rarely hits both. If the agent dies, whatever it leaves is re-parented to the guardian, which ends it. If the guardian
dies, the agent reads the end of the pipe and ends everything itself; a stopped agent is woken by its parent death signal.
If both die in the same instant, workers still die by theirs.

An agent that is one of many holds a lease, and must not have workers when it has run out. An agent that is stopped cannot
see to that: the guardian does, by the newest moment on the board. Without one it has no clock to look at and only sleeps.
"""

from __future__ import annotations

import os
import sys

from planaria.base import linux, signals
from planaria.base.value import Value
from planaria.contract import exit_status
from planaria.process.children import decode
from planaria.process.descendants import children_of, descendants_of, end_descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

END_TIMEOUT_S = 5.0
IMPATIENT_AFTER = (
    3  # the first Ctrl-C asks, the second makes the agent kill, the third does not trust the agent any more
)
SLACK_S = 0.05  # an agent that runs kills its workers itself, in time, and knows then why they died
LOOK_AGAIN_S = 0.01  # a process that forks while it is being killed is met at the second look
_NS = 1_000_000_000


class Agent(Value):
    """The agent as its guardian knows it; `spared` are children this process had before, which are not the job's."""

    pid: int
    tell: int
    spared: frozenset[int]
    board: int


class Line(Value):
    """What ties an agent to its guardian: the pipe it hears signals on, and the board it writes its fence on."""

    hear: int
    board: int
    guardian: int


class AgentEnd(Value):
    """How the agent ended: its exit status, or minus the signal that killed it; `clean` when nothing was left alive."""

    status: int
    clean: bool


class Fence:
    """The agent's hand on the board: an anonymous file of eight bytes, so there is nothing to fill up and only the newest."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._deadline: float | None = None

    def move(self, deadline: float | None, now: float) -> None:
        """Let the guardian kill every worker at `deadline`, on the clock both share, unless it is moved again; None: never."""
        before, self._deadline = self._deadline, deadline
        os.pwrite(self._line.board, int((deadline or 0) * _NS).to_bytes(8, "little"), 0)
        # It sleeps until the old deadline, finds the new one then, and need not be woken for every renewal.
        if deadline is not None and (before is None or before <= now or deadline < before):
            self._wake_guardian()

    def _wake_guardian(self) -> None:
        try:
            if os.getppid() == self._line.guardian:
                os.kill(self._line.guardian, signals.SIGCHLD)  # it waits for this one in any case
        except ProcessLookupError:
            return


def start_agent(run: Callable[[Line, set[int]], int], forwarded: tuple[int, ...]) -> Agent:
    """Fork the agent, which calls `run` with what ties it to us and the signal mask to restore once it can listen.

    In this process the signals stay blocked: `guard` waits for them.
    """
    spared = frozenset(children_of(os.getpid()))
    signals.set_handler(
        signals.SIGCHLD, signals.SIG_DFL
    )  # whoever started us may ignore it, and we would wait for ever
    before = signals.block((*forwarded, signals.SIGCHLD))
    linux.become_subreaper()
    hear, tell = os.pipe()
    board = os.memfd_create("planaria-fence", os.MFD_CLOEXEC)
    guardian = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = exit_status.INTERNAL
        try:
            os.close(tell)
            os.setsid()
            linux.become_subreaper()
            # SIGCONT wakes the agent even when it is stopped; the end of the pipe then tells it why.
            linux.set_parent_death_signal(signals.SIGCONT)
            if os.getppid() == guardian:
                status = run(Line(hear, board, guardian), before)
        except BaseException:  # noqa: BLE001  our bug: print it whole, then leave without unwinding the launcher's stack
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    os.close(hear)
    return Agent(pid, tell, spared, board)


def guard(agent: Agent, forwarded: tuple[int, ...], clock: Callable[[], float]) -> AgentEnd:
    """Pass signals to the agent until it ends, then end whatever is left below us. Meanwhile, keep its fence."""
    interrupts = 0
    watch = _Watch(agent, clock)
    while True:
        number = signals.wait_for_any((*forwarded, signals.SIGCHLD), watch.left_s())
        if number == signals.SIGCHLD:
            status = _reap(agent.pid)
            if status is not None:
                return AgentEnd(status, end_descendants(END_TIMEOUT_S, clock, agent.spared))
        if number is None or number == signals.SIGCHLD:
            watch.look()
            continue
        interrupts += number == signals.SIGINT
        if interrupts >= IMPATIENT_AFTER:
            os.kill(agent.pid, signals.SIGKILL)
        else:
            _tell(agent.tell, number)


class _Watch:
    """Keeps the agent's fence. It has a moment to wake up for only while the agent has set one that is to come."""

    def __init__(self, agent: Agent, clock: Callable[[], float]) -> None:
        self._agent = agent
        self._clock = clock
        self._kept = 0.0
        self._due: float | None = None

    def left_s(self) -> float | None:
        """Return how long to sleep; None: as long as nothing happens."""
        return None if self._due is None else max(self._due - self._clock(), 0.0)

    def look(self) -> None:
        """Read the board. A moment that has passed costs everything below the agent its life, once; not the agent's own."""
        fence = self._newest()
        if fence in (0.0, self._kept):
            self._due = None
        elif self._clock() < fence + SLACK_S:
            self._due = fence + SLACK_S
        else:
            self._kept, self._due = fence, None
            self._kill_workers()

    def _newest(self) -> float:
        return int.from_bytes(os.pread(self._agent.board, 8, 0), "little") / _NS

    def _kill_workers(self) -> None:
        """Kill what is below the agent until a look finds nobody new. The dead stay there while their parent is stopped."""
        seen: set[int] = set()
        while self._newest() == self._kept and (fresh := set(descendants_of(self._agent.pid)) - seen):
            for victim in fresh:
                try:
                    os.kill(victim, signals.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
            seen |= fresh
            signals.wait_for_any((), LOOK_AGAIN_S)


def _reap(agent: int) -> int | None:
    """Reap adopted orphans; return the agent's status when it is among the dead."""
    while True:
        pid, wait_status = os.waitpid(-1, os.WNOHANG)
        if pid == agent:
            return decode(wait_status)
        if pid == 0:
            return None


def _tell(tell: int, number: int) -> None:
    try:
        os.write(tell, bytes([number]))
    except BrokenPipeError:  # it is dying; its SIGCHLD comes next
        return
