"""The agent whose workers are processes of this machine: functions or programs.

With one of our own rendezvous handlers it runs on the event-driven driver of `planaria run` (`embedding.py`). With a foreign
handler, or when a subclass has its own way of starting or watching workers, it is asked as every `SimpleElasticAgent` is,
and its workers come from the contexts of `multiprocessing`.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import uuid
from string import Template
from typing import TYPE_CHECKING, Any

from planaria.contract.env import NCCL_ERRORS, Round, torchrun_variables
from planaria.elastic import events
from planaria.elastic.agent.server import embedding
from planaria.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerState
from planaria.elastic.agent.server.health_check_server import create_healthcheck_server
from planaria.elastic.agent.server.model import DEFAULT_ROLE
from planaria.elastic.agent.server.stuck import StuckWorkers
from planaria.elastic.metrics import prof
from planaria.elastic.multiprocessing import new_context, started
from planaria.elastic.multiprocessing.signals import SIGNALS_TO_HANDLE
from planaria.elastic.utils import macros
from planaria.elastic.utils.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.elastic import timer
    from planaria.elastic.agent.server.api import WorkerGroup, WorkerSpec
    from planaria.elastic.agent.server.health_check_server import HealthCheckServer
    from planaria.elastic.agent.server.model import Worker
    from planaria.elastic.agent.server.watchdog import WorkersTimerServer
    from planaria.elastic.multiprocessing import LogsSpecs, PContext

__all__ = [
    "TORCHELASTIC_ENABLE_FILE_TIMER",
    "TORCHELASTIC_HEALTH_CHECK_PORT",
    "TORCHELASTIC_TIMER_FILE",
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",
    "LocalElasticAgent",
]

TORCHELASTIC_ENABLE_FILE_TIMER = "TORCHELASTIC_ENABLE_FILE_TIMER"
TORCHELASTIC_HEALTH_CHECK_PORT = "TORCHELASTIC_HEALTH_CHECK_PORT"
TORCHELASTIC_TIMER_FILE = "TORCHELASTIC_TIMER_FILE"
TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
"""Seconds a worker may sleep in the kernel (state D) before the group is given up; 0 or nothing: for ever."""

_CUDA = "CUDA_VISIBLE_DEVICES"
_HIGHEST_PORT = 65535
_ALIVE_S = 60  # how old the last sign of life may be before the health check says no; torch's number

logger = get_logger(__name__)


def _resolve_uninterruptible_state_timeout(explicit: float | None) -> float:
    """Return the argument, else the variable, else 0; what is no number counts as 0, as in torch."""
    try:
        found = float(os.environ.get(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT) or 0) if explicit is None else explicit
    except ValueError:
        found = 0.0
    return max(0.0, float(found))


class _AliveCallbackProxy:
    """A callback for a health check server that is started before its agent exists: alive, until the agent takes over."""

    def __init__(self) -> None:
        self._delegate: Callable[[], int] | None = None

    def __call__(self) -> int:
        return self._delegate() if self._delegate is not None else int(time.time())

    def set_delegate(self, delegate: Callable[[], int]) -> None:
        """Ask the agent from now on."""
        self._delegate = delegate


class LocalElasticAgent(SimpleElasticAgent):
    """Keeps the workers of one host alive: `spec.entrypoint` is a function, started by `start_method`, or a program.

    Functions and their arguments have to be what `multiprocessing` can send, and return values come back by global rank. In
    arguments that are strings `${local_rank}` stands for the worker's. `TORCHELASTIC_ENABLE_FILE_TIMER=1` starts the watchdog,
    `TORCHELASTIC_HEALTH_CHECK_PORT` the health check server.
    """

    def __init__(  # noqa: PLR0917  torch's signature
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: HealthCheckServer | None = None,
        uninterruptible_state_timeout: float | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        self._start_method = start_method
        self._pcontext: PContext | None = None
        self._rdzv_handler = spec.rdzv_handler
        self._log_line_prefix_template = log_line_prefix_template
        self._worker_watchdog: WorkersTimerServer | None = None
        self._logs_specs = logs_specs
        self._health_check_server = health_check_server
        self._stuck = StuckWorkers(_resolve_uninterruptible_state_timeout(uninterruptible_state_timeout))
        self._looked_at: int | None = None

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        if embedding.can_drive(self, LocalElasticAgent):
            return embedding.run(self)
        self._setup_healthcheck()
        return super()._invoke_run(role)

    @prof
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        if worker_group.store is None:
            raise AssertionError("_start_workers comes after _rendezvous")
        self._looked_at = None
        envs = {worker.local_rank: self._environment(worker_group, worker) for worker in worker_group.workers}
        self._setup_local_watchdog(envs)
        if spec.entrypoint is None or self._logs_specs is None:
            raise AssertionError("an agent needs an entrypoint and logs_specs")
        context = new_context(
            spec.entrypoint,
            self._start_method,
            name=spec.role,
            args={rank: tuple(macros.substitute(list(spec.args), str(rank))) for rank in envs},
            envs=envs,
            logs_specs=self._logs_specs,
            log_line_prefixes=self._prefixes(worker_group),
            numa_options=spec.numa_options,
            duplicate_stdout_filters=spec.duplicate_stdout_filters,
            duplicate_stderr_filters=spec.duplicate_stderr_filters,
        )
        context.close_timeout = self._shutdown_timeout
        self._pcontext = started(context)
        return self._pcontext.pids()

    def _environment(self, group: WorkerGroup, worker: Worker) -> dict[str, str]:
        spec = group.spec
        life = Round(
            number=0,
            run_id=spec.rdzv_handler.get_run_id(),
            role=spec.role,
            group_rank=group.group_rank or 0,
            group_world_size=group.group_world_size or 0,
            first_rank=worker.global_rank - worker.local_rank,
            world_size=worker.world_size,
            first_role_rank=worker.role_rank - worker.local_rank,
            role_world_size=worker.role_world_size,
            local_world_size=spec.local_world_size,
            master_addr=group.master_addr or "",
            master_port=group.master_port or 0,
            restart_count=spec.max_restarts - self._remaining_restarts,
            max_restarts=spec.max_restarts,
        )
        environment = torchrun_variables(life, worker.local_rank)
        environment["TORCHELASTIC_USE_AGENT_STORE"] = str(spec.rdzv_handler.use_agent_store)
        environment[NCCL_ERRORS] = os.environ.get(NCCL_ERRORS, "1")
        if self._signals_to_handle is not None:
            environment[SIGNALS_TO_HANDLE] = self._signals_to_handle
        self._set_local_rank_env(environment, worker.local_rank, spec)
        if "OMP_NUM_THREADS" in os.environ:
            environment["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
        return environment

    def _set_local_rank_env(self, worker_env: dict[str, str], local_rank: int, spec: WorkerSpec) -> None:
        """Set the local rank and the devices; with a virtual local rank every worker sees one device and is rank 0."""
        visible = os.environ.get(_CUDA)
        worker_env["LOCAL_RANK"] = "0" if spec.virtual_local_rank else str(local_rank)
        if not spec.virtual_local_rank:
            if visible is not None:
                worker_env[_CUDA] = visible
            return
        devices = visible.split(",") if visible is not None else [str(rank) for rank in range(local_rank + 1)]
        if local_rank >= len(devices):
            raise ValueError(f"local_rank {local_rank} exceeds available GPUs in {_CUDA}={visible}")
        worker_env[_CUDA] = devices[local_rank].strip()

    def _prefixes(self, group: WorkerGroup) -> dict[int, str] | None:
        if not self._log_line_prefix_template:
            return None
        template = Template(self._log_line_prefix_template)
        return {
            worker.local_rank: template.safe_substitute(
                role_name=group.spec.role, rank=worker.global_rank, local_rank=worker.local_rank
            )
            for worker in group.workers
        }

    @prof
    def _stop_workers(self, worker_group: WorkerGroup) -> None:  # noqa: ARG002  torch's signature
        self._close_workers(signal.SIGTERM, self._shutdown_timeout)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        self._close_workers(death_sig, timeout)
        if self._health_check_server is not None:
            self._health_check_server.stop()
            self._health_check_server = None

    def _close_workers(self, death_sig: signal.Signals, timeout: int) -> None:
        if self._pcontext is not None:
            self._pcontext.close(death_sig, timeout)
        if self._worker_watchdog is not None:  # after the workers: they may still write to it
            self._worker_watchdog.stop()
            self._worker_watchdog = None

    @prof
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._looked_at = int(time.time())
        if self._pcontext is None:
            raise AssertionError("_monitor_workers comes after _start_workers")
        started = set(self._pcontext.pids().values())
        known = {worker.id for worker in worker_group.workers}
        role = worker_group.spec.role
        if known != started:
            logger.error("[%s] expected the workers %s, there are %s", role, known, started)
            return RunResult(state=WorkerState.UNKNOWN)
        result = self._pcontext.wait(0)
        if result is None:
            return self._give_up_the_stuck(role, started) or RunResult(state=WorkerState.HEALTHY)
        ranks = [worker.global_rank for worker in worker_group.workers]
        if result.is_failed():
            if self._worker_watchdog is not None:
                self._worker_watchdog.name_scopes(result.failures.values())
            failures = {ranks[local_rank]: failure for local_rank, failure in result.failures.items()}
            return RunResult(state=WorkerState.FAILED, failures=failures)
        values = {ranks[local_rank]: value for local_rank, value in result.return_values.items()}
        return RunResult(state=WorkerState.SUCCEEDED, return_values=values)

    def _give_up_the_stuck(self, role: str, pids: set[int]) -> RunResult | None:
        """Fail a group with a worker that hangs in the kernel: a new one here would meet the same device."""
        stuck = self._stuck.among(pids, time.monotonic())
        if not stuck:
            return None
        logger.error("[%s] workers %s hang in the kernel (state D): no restart on this host", role, sorted(stuck))
        self._remaining_restarts = 0
        return RunResult(state=WorkerState.UNHEALTHY)

    def _setup_local_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        """Start the FIFO watchdog if it is asked for, and tell the workers where it listens."""
        path = os.environ.get(TORCHELASTIC_TIMER_FILE)
        if os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) == "1":
            from planaria.elastic.agent.server.watchdog import WorkersTimerServer

            path = path or os.path.join(tempfile.gettempdir(), f"watchdog_timer_{uuid.uuid4()}")
            run_id = self._worker_group.spec.rdzv_handler.get_run_id()
            self._worker_watchdog = WorkersTimerServer(
                self._worker_pids,
                file_path=path,
                run_id=run_id,
                max_interval=0.1,
                daemon=True,
                log_event=self._log_watchdog_event,
            )
            self._worker_watchdog.start()
        if path is not None:
            for environment in envs.values():
                environment[TORCHELASTIC_TIMER_FILE] = path

    def _worker_pids(self) -> frozenset[int]:
        return frozenset(self._pcontext.pids().values()) if self._pcontext is not None else frozenset()

    def _setup_healthcheck(self) -> None:
        """Start the health check server of an agent that is asked. A driven one answers more, from its own loop."""
        port = self._health_check_port()
        if port is None:
            return
        server = create_healthcheck_server(alive_callback=self._get_alive_time, port=port, timeout=_ALIVE_S)
        server.start()
        self._health_check_server = server

    def _health_check_port(self) -> int | None:
        """Return where this agent is to answer probes; None: nowhere, or somebody has started a server for it."""
        port = os.environ.get(TORCHELASTIC_HEALTH_CHECK_PORT)
        if port is None or self._health_check_server is not None:
            return None
        try:
            number = int(port)
        except ValueError:
            number = -1
        if 0 <= number <= _HIGHEST_PORT:
            return number
        logger.warning("%s expects a port, got %r: no health check", TORCHELASTIC_HEALTH_CHECK_PORT, port)
        return None

    def _get_alive_time(self) -> int:
        """Return when this agent last gave a sign of life, in wall seconds: now while it meets or waits for others."""
        if self._in_exit_barrier or self._looked_at is None:
            return int(time.time())
        if self._worker_watchdog is not None:
            return int(self._worker_watchdog.get_last_progress_time())
        return self._looked_at

    def _log_watchdog_event(self, name: str, request: timer.FileTimerRequest | None) -> None:
        """Record what the watchdog saw."""
        more = {"watchdog_event": name}
        if request is not None:
            more["worker_pid"] = str(request.worker_pid)
            more["scope_id"] = request.scope_id
            more["expiration_time"] = str(request.expiration_time)
            more["signal"] = str(request.signal)
        event = self._construct_event("RUNNING", events.EventSource.AGENT)
        event.name = name
        event.metadata["metadata"] = json.dumps(more)
        events.record(event, self._worker_group.spec.event_log_handler)
