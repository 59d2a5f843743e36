"""Run an agent whose workers can only be asked: torch's order of calls, and the decisions of `agent.machine`.

What a subclass and a foreign handler say becomes events of the machine, what it orders becomes calls. For the machine the
workers are one: their agent starts, judges and stops them together. A subclass stops old workers and starts new ones in one
call, `_restart_workers`; so they count as ended as soon as their stop is ordered.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from planaria.agent.machine import step
from planaria.agent.model import (
    DONE,
    FINISHING,
    Begun,
    EndTree,
    Group,
    MembersChanged,
    SignalWorkers,
    StartWorkers,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.agent.phases import Watch, finished
from planaria.base.value import as_dict, replace
from planaria.contract.failure import Failure
from planaria.elastic.agent.server.model import RunResult, WorkerState
from planaria.elastic.events import Event, EventSource, record
from planaria.elastic.metrics import put_metric
from planaria.elastic.utils.logging import get_logger

if TYPE_CHECKING:
    from planaria.agent.model import Effect
    from planaria.agent.model import Event as Happening

logger = get_logger(__name__)


class Synchronous:
    """Drives one `SimpleElasticAgent`, whose own methods it calls. There is no decision here."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._workers = agent.get_worker_group()
        self._spec = self._workers.spec
        # torch starts again whatever the error, and a foreign rendezvous chooses the master port.
        budget = self._spec.max_restarts
        self._group = Group(size=1, max_restarts=budget, grace_s=0.0, always_restart=True, fixed_port=True)
        self._queue: list[Happening] = []
        self._saw_at = 0.0
        self._charged = 0
        self._result = RunResult(state=WorkerState.INIT)

    def run(self) -> RunResult:
        """Drive the workers from their first start to their end; return what the last look at them said."""
        logger.info("[%s] starting workers for entrypoint: %s", self._spec.role, self._spec.get_entrypoint_name())
        self._post(Begun(time.monotonic()))
        while self._group.phase != DONE:
            time.sleep(self._spec.monitor_interval)
            self._look()
        return self._result

    def _post(self, event: Happening) -> None:
        self._queue.append(event)
        while self._queue:
            # The agent's counter is the truth: subclasses change it, as torch's does for a worker stuck in the kernel.
            spent = self._spec.max_restarts - self._agent._remaining_restarts  # noqa: SLF001  the agent's driver
            self._group, effects = step(replace(self._group, restarts=spent), self._queue.pop(0))
            self._agent._remaining_restarts = self._spec.max_restarts - self._group.restarts  # noqa: SLF001
            for effect in effects:
                self._perform(effect)

    def _look(self) -> None:
        """Ask for the state of the workers, and of the rendezvous when they are well."""
        self._result = result = self._agent._monitor_workers(self._workers)  # noqa: SLF001
        self._workers.state = state = result.state
        role = self._spec.role
        put_metric(f"workers.{role}.remaining_restarts", self._agent._remaining_restarts)  # noqa: SLF001
        put_metric(f"workers.{role}.{state.name.lower()}", 1)
        self._saw_at = now = time.monotonic()
        match state:
            case WorkerState.SUCCEEDED:
                self._post(WorkerExited(0, now))
            case WorkerState.UNHEALTHY | WorkerState.FAILED:
                left = self._agent._remaining_restarts  # noqa: SLF001
                logger.info(
                    "[%s] worker group %s, %s of %s restarts left", role, state.name, left, self._spec.max_restarts
                )
                self._post(WorkerExited(0, now, _as_failure(result, now)))
            case WorkerState.HEALTHY:
                waiting = self._spec.rdzv_handler.num_nodes_waiting()
                if waiting > 0:
                    logger.info("[%s] %s nodes are waiting: the workers start again", role, waiting)
                    self._post(MembersChanged(now))
            case _:
                raise RuntimeError(f"[{role}] Worker group in {state.name} state")

    def _perform(self, effect: Effect) -> None:
        match effect:
            case StartWorkers(0):
                self._agent._initialize_workers(self._workers)  # noqa: SLF001
                self._queue.append(WorkersStarted(time.monotonic()))
            case StartWorkers():
                self._restart(effect)
                self._queue.append(WorkersStarted(time.monotonic()))
            case SignalWorkers():
                self._queue.append(WorkerExited(0, time.monotonic()))
            case EndTree() if self._group.phase == FINISHING and self._result.state == WorkerState.SUCCEEDED:
                self._agent._exit_barrier()  # noqa: SLF001
                self._queue.append(TreeEnded(time.monotonic()))
            case EndTree() if self._group.phase == FINISHING:
                self._agent._stop_workers(self._workers)  # noqa: SLF001
                self._workers.state = WorkerState.FAILED
                self._queue.append(TreeEnded(time.monotonic()))
            case EndTree():
                self._queue.append(TreeEnded(time.monotonic()))
            case _:  # deadlines, words and the end: a subclass has its own ways for these
                return

    def _restart(self, order: StartWorkers) -> None:
        """Start the workers again, and record where the time went; a subclass with a way of its own tells less."""
        moments = [self._saw_at, self._saw_at, time.monotonic()]
        milestones: list[float] = self._agent._milestones  # noqa: SLF001  it notes them for us
        milestones.clear()
        self._agent._restart_workers(self._workers)  # noqa: SLF001
        moments += milestones if len(milestones) == 3 else [time.monotonic()] * 3
        charged = order.restart_count > self._charged
        self._charged = order.restart_count
        watch = Watch(tuple(moments), None, frozenset(), (), order.round, order.restart_count, order.reason, charged)
        _, restart = finished(watch)
        run_id = self._spec.rdzv_handler.get_run_id()
        told: dict[str, Any] = {
            "run_id": run_id,
            "role": self._spec.role,
            "host": os.uname().nodename,
            "at": moments[-1],
        }
        told.update(as_dict(restart))
        event = Event("planaria.restart", EventSource.AGENT, metadata=told)
        record(event, self._spec.event_log_handler)


def _as_failure(result: RunResult, now: float) -> Failure:
    """Return the failure of a group as the machine knows failures."""
    rank, cause = next(iter(result.failures.items()), (0, None))
    status = (cause.exitcode if cause is not None else 0) or 1
    pid = cause.pid if cause is not None else 0
    return Failure(rank, 0, "", pid, status, now, 0.0, "exit", message=result.state.name)
