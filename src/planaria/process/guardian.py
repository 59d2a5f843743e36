"""The launcher's process once its agent runs: pass signals on, and see to it that nothing outlives either of them.

    guardian (the pid the owner knows)  --pipe: signal numbers, end of file = I am dead-->  agent  -->  workers

Both are child subreapers, the guardian above the agent, in different sessions and with different command lines, so one
blow rarely hits both. If the agent dies, whatever it leaves is re-parented to the guardian, which ends it. If the guardian
dies, the agent reads the end of the pipe and ends everything itself; a stopped agent is woken by its parent death signal.
If both die in the same instant, workers still die by theirs.
"""

from __future__ import annotations

import os
import sys

from planaria.base import linux, signals
from planaria.base.value import Value
from planaria.contract import exit_status
from planaria.process.children import decode
from planaria.process.descendants import children_of, end_descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

END_TIMEOUT_S = 5.0
IMPATIENT_AFTER = (
    3  # the first Ctrl-C asks, the second makes the agent kill, the third does not trust the agent any more
)


class Agent(Value):
    """The agent as its guardian knows it; `spared` are children this process had before, which are not the job's."""

    pid: int
    tell: int
    spared: frozenset[int]


class AgentEnd(Value):
    """How the agent ended: its exit status, or minus the signal that killed it; `clean` when nothing was left alive."""

    status: int
    clean: bool


def start_agent(run: Callable[[int, set[int]], int], forwarded: tuple[int, ...]) -> Agent:
    """Fork the agent, which calls `run` with its end of the pipe and the signal mask to restore once it can listen.

    In this process the signals stay blocked: `guard` waits for them.
    """
    spared = frozenset(children_of(os.getpid()))
    signals.set_handler(
        signals.SIGCHLD, signals.SIG_DFL
    )  # whoever started us may ignore it, and we would wait for ever
    before = signals.block((*forwarded, signals.SIGCHLD))
    linux.become_subreaper()
    hear, tell = os.pipe()
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
                status = run(hear, before)
        except BaseException:  # noqa: BLE001  our bug: print it whole, then leave without unwinding the launcher's stack
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    os.close(hear)
    return Agent(pid, tell, spared)


def guard(agent: Agent, forwarded: tuple[int, ...], clock: Callable[[], float]) -> AgentEnd:
    """Pass signals to the agent until it ends, then end whatever is left below us."""
    interrupts = 0
    while True:
        number = signals.wait_for_any((*forwarded, signals.SIGCHLD))
        if number == signals.SIGCHLD:
            status = _reap(agent.pid)
            if status is not None:
                return AgentEnd(status, end_descendants(END_TIMEOUT_S, clock, agent.spared))
            continue
        interrupts += number == signals.SIGINT
        if interrupts >= IMPATIENT_AFTER:
            os.kill(agent.pid, signals.SIGKILL)
        elif number is not None:
            _tell(agent.tell, number)


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
