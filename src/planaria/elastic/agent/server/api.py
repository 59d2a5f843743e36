"""Agents: what every one can do, and the one that decides for its subclasses.

    run -> _rendezvous -> _start_workers -> (_monitor_workers every monitor_interval)* -> _shutdown
                 ^                                    | failed, or the members changed
                 +--------------- _stop_workers <-----+

A subclass says how workers are started, looked at, stopped and cleaned up after; `synchronous.py` asks it in torch's order
and lets the agent's machine decide. Nothing of a handler is used but the `RendezvousHandler` interface.
"""

from __future__ import annotations

import abc
import os
import signal
import time
from typing import TYPE_CHECKING, Any

from planaria.elastic.agent.server.model import (
    DEFAULT_ROLE,
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
    _RoleInstanceInfo,  # noqa: F401  torch has it here
)
from planaria.elastic.agent.server.ranks import assign_ranks
from planaria.elastic.agent.server.recording import Recording
from planaria.elastic.agent.server.synchronous import Synchronous
from planaria.elastic.events import EventSource, record
from planaria.elastic.metrics import prof
from planaria.elastic.multiprocessing import SignalException
from planaria.elastic.multiprocessing.signals import SIGNALS_TO_HANDLE, raise_on_signals, signals_named, undisturbed
from planaria.elastic.rendezvous.api import is_named
from planaria.elastic.store import DistStoreError
from planaria.elastic.utils.logging import get_logger

if TYPE_CHECKING:
    from planaria.elastic.multiprocessing.errors import ProcessFailure  # noqa: F401  torch has it here

__all__ = [
    "ElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]

_TERMINAL_STATE_SYNC_ID = "torchelastic/agent/terminal_state"
_LOOK_S = 0.1  # how often an agent at the exit barrier asks the store; a wait inside a foreign store hears no signal

logger = get_logger(__name__)


class ElasticAgent(abc.ABC):
    """Whoever keeps a group of workers alive on behalf of one process."""

    @abc.abstractmethod
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Run the workers to their end, starting them again as often as `max_restarts` allows.

        Raises:
            Exception: Something other than a worker failed.
        """

    @abc.abstractmethod
    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:
        """Return the worker group of a role. It is the agent's own, and changes while the agent runs."""


class SimpleElasticAgent(Recording, ElasticAgent):
    """An agent for workers of one role. Subclass it and say how workers are started, looked at, stopped and shut down.

    `exit_barrier_timeout` bounds how long an agent whose workers are done waits for the others, `shutdown_timeout` how long
    workers have to end after a signal.
    """

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30) -> None:
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._store: Any = None
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout
        self._total_execution_time = 0
        self._in_exit_barrier = False
        self._others_are_done = False
        self._milestones: list[float] = []
        """When the workers of the restart under way were stopped, were given their new places, and were started."""
        self._signals_to_handle: str | None = None
        """Names of signals; whoever runs the agent may set them. None: those of `TORCHELASTIC_SIGNALS_TO_HANDLE`."""

    def get_worker_group(self, role: str = DEFAULT_ROLE) -> WorkerGroup:  # noqa: ARG002  there is only one
        """Return the worker group, whatever the role."""
        return self._worker_group

    @abc.abstractmethod
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        """Start every worker of the group; return the id of each by its local rank."""

    @abc.abstractmethod
    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Stop every worker, whatever state it is in: gone, stuck or never started."""

    @abc.abstractmethod
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Look at the workers and return the state of the group now, without waiting."""

    @abc.abstractmethod
    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        """Let go of everything at the end of a run; workers that still live get `death_sig`, and `timeout` to heed it."""

    @prof
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        """Meet the other agents and give every worker its new ranks."""
        spec = worker_group.spec
        with self.record_duration("RENDEZVOUS"):
            met = spec.rdzv_handler.next_rendezvous()
        self._store = met.store
        with self.record_duration("ASSIGN_WORKER_RANKS"):
            worker_group.workers = self._assign_worker_ranks(met.store, met.rank, met.world_size, spec)
        worker_group.store = met.store
        worker_group.group_rank = met.rank
        worker_group.group_world_size = met.world_size
        place = met.bootstrap_store_info
        worker_group.master_addr = spec.master_addr or (place.master_addr if place else None)
        worker_group.master_port = spec.master_port or (place.master_port if place else None)
        logger.info(
            "[%s] node %s of %s, ranks %s, master %s:%s, restart %s of %s",
            spec.role,
            met.rank,
            met.world_size,
            [worker.global_rank for worker in worker_group.workers],
            worker_group.master_addr,
            worker_group.master_port,
            spec.max_restarts - self._remaining_restarts,
            spec.max_restarts,
        )

    @prof
    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Return this node's workers with their ranks: nodes before it, of whatever size, come first."""
        return assign_ranks(store, group_rank, group_world_size, spec)

    @prof
    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """Meet the others and start the workers. Whoever calls has stopped the last ones."""
        self._rendezvous(worker_group)
        self._milestones.append(time.monotonic())
        for local_rank, worker_id in self._start_workers(worker_group).items():
            worker = worker_group.workers[local_rank]
            worker.id = worker_id
            record(self._construct_event("START", EventSource.WORKER, worker), worker_group.spec.event_log_handler)
        self._milestones.append(time.monotonic())
        worker_group.state = WorkerState.HEALTHY

    @prof
    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Stop the workers, meet the others again and start new ones."""
        logger.info("[%s] stopping the workers, to start them again", worker_group.spec.role)
        self._stop_workers(worker_group)
        self._milestones.append(time.monotonic())
        worker_group.state = WorkerState.STOPPED
        self._initialize_workers(worker_group)

    @prof
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Run the workers to their end; see `ElasticAgent.run`.

        Raises:
            SignalException: A signal of `TORCHELASTIC_SIGNALS_TO_HANDLE` came. The workers were stopped first.
        """
        with raise_on_signals(self._handled_signals()):
            return self._run_and_shut_down(role)

    def _handled_signals(self) -> tuple[signal.Signals, ...]:
        named = self._signals_to_handle
        return signals_named(os.environ if named is None else {SIGNALS_TO_HANDLE: named})

    def _run_and_shut_down(self, role: str) -> RunResult:
        began = time.monotonic()
        is_shut_down = False
        try:
            result = self._invoke_run(role)
            self._total_execution_time = int(time.monotonic() - began)
            self._record_metrics(result)
            self._record_worker_events(result)
        except SignalException as told:
            logger.warning("received %s, stopping the workers", told.sigval.name)
            with undisturbed():
                is_shut_down = True
                self._shutdown(told.sigval, timeout=self._shutdown_timeout)
            raise
        except Exception as left:
            if not is_named(left, "RendezvousGracefulExitError"):
                raise
            logger.info("the rendezvous was left in good order: %s", left)
            return RunResult(state=WorkerState.STOPPED)
        else:
            return result
        finally:
            if not is_shut_down:
                with undisturbed():  # a signal that comes now can ask for no more
                    self._shutdown(timeout=self._shutdown_timeout)
            self._total_execution_time = int(time.monotonic() - began)

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:  # noqa: ARG002  there is only one
        """Start the workers and look at them until the machine says that it is over."""
        return Synchronous(self).run()

    def _exit_barrier(self) -> None:
        """Wait until the workers of every agent of the round are done, `exit_barrier_timeout` at most.

        Ours are done: whatever goes wrong here is logged and changes nothing, except a signal.
        """
        began = time.monotonic()
        self._in_exit_barrier = True
        try:
            self._wait_for_others(began + self._exit_barrier_timeout)
            self._others_are_done = True
            logger.info("every agent is done, after %.1f s", time.monotonic() - began)
        except SignalException as told:
            logger.warning("received %s while waiting for other agents", told.sigval.name)
            raise
        except (DistStoreError, TimeoutError) as over:
            logger.warning("gave up waiting for other agents after %.1f s: %s", time.monotonic() - began, over)
        except Exception:
            logger.exception("gave up waiting for other agents after %.1f s", time.monotonic() - began)
        finally:
            self._in_exit_barrier = False

    def _wait_for_others(self, deadline: float) -> None:
        """Count this agent and look until the last one was counted. Looking, not waiting: see `_LOOK_S`."""
        last_member = f"{_TERMINAL_STATE_SYNC_ID}/last_member"
        if self._store.add(f"{_TERMINAL_STATE_SYNC_ID}/num_members", 1) == self._worker_group.group_world_size:
            self._store.set(last_member, "<val_ignored>")
        while not self._store.check([last_member]):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("an agent is lost, or its workers need longer than exit_barrier_timeout")
            time.sleep(min(_LOOK_S, left_s))
