"""Run the workers of a `LocalElasticAgent` on the event-driven driver, and turn what happened into torch's values.

That takes a rendezvous of ours (or none), and an agent without ways of its own. Everybody else is asked, not driven.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from planaria.agent.embedded import Watching, run_embedded
from planaria.agent.model import Job
from planaria.agent.report import causes
from planaria.agent.settings import HealthCheck
from planaria.contract.env import for_workers
from planaria.elastic.agent.server.health_check_server import HOST_VARIABLE
from planaria.elastic.agent.server.model import RunResult, Worker, WorkerState
from planaria.elastic.events import Event, EventSource, record
from planaria.elastic.metrics import put_metric
from planaria.elastic.multiprocessing.call import Recorded
from planaria.elastic.multiprocessing.failures import as_process_failure
from planaria.elastic.multiprocessing.signals import SIGNALS_TO_HANDLE, as_exception
from planaria.elastic.multiprocessing.spec_logs import SpecLogs
from planaria.elastic.multiprocessing.subprocess_handler.subprocess_handler import check_program
from planaria.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousTimeoutError,
)
from planaria.elastic.rendezvous.handler import is_ours
from planaria.elastic.utils.logging import get_logger
from planaria.elastic.utils.secrets import credentials_here
from planaria.observe.responder import LOOPBACK
from planaria.process.model import Call, Command, LogSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.agent.embedded import Ended
    from planaria.agent.model import Outcome
    from planaria.contract.env import Round
    from planaria.contract.failure import Failure
    from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from planaria.elastic.agent.server.model import WorkerSpec
    from planaria.elastic.multiprocessing.errors import ProcessFailure

_WAYS = (
    "_start_workers",
    "_stop_workers",
    "_monitor_workers",
    "_shutdown",
    "_rendezvous",
    "_assign_worker_ranks",
    "_initialize_workers",
    "_restart_workers",
    "_exit_barrier",
    "_set_local_rank_env",
    "_setup_local_watchdog",
    "_setup_healthcheck",
)
_ERRORS: dict[str, type[RendezvousError]] = {
    "timeout": RendezvousTimeoutError,
    "lost": RendezvousConnectionError,
    "refused": RendezvousClosedError,
}
_LATER_S = 1e-6  # enough to keep failures in order, whose order we know better than their times

logger = get_logger(__name__)


def can_drive(agent: LocalElasticAgent, plain: type[LocalElasticAgent]) -> bool:
    """Tell whether this agent is a `plain` one whose rendezvous is ours, and wants nothing that only asking can do."""
    has_ways = any(name in vars(agent) or getattr(type(agent), name) is not getattr(plain, name) for name in _WAYS)
    spec = agent.get_worker_group().spec
    wants_more = agent._stuck.timeout_s > 0 or spec.numa_options is not None  # noqa: SLF001  one thing in two files
    return is_ours(spec.rdzv_handler) and not has_ways and not wants_more


def run(agent: LocalElasticAgent) -> RunResult:
    """Run the workers to their end.

    Raises:
        SignalException: One of the signals to handle came, and the workers were stopped.
        KeyboardInterrupt: The same for Ctrl-C, where it is not among them.
        FileNotFoundError: There is no such program.
        RendezvousGracefulExitError: The others finished the run while this node was not among them.
        RendezvousError: There was no round, or the run is over without this node having failed.
    """
    told, group = _Told(agent), agent.get_worker_group()
    spec, specs = group.spec, _spec_logs(agent)
    listener = None if spec.event_log_handler == "null" else told
    watching = Watching(told.say, told.warn, told.on_round, told.beat, listener)
    handler: Any = spec.rdzv_handler  # one of ours, see `can_drive`
    handler.warn_if_open()
    ended = run_embedded(_job(agent, specs), watching)
    agent._remaining_restarts = spec.max_restarts - ended.group.restarts  # noqa: SLF001
    result = _result(ended, specs, agent._handled_signals())  # noqa: SLF001
    group.state = result.state
    agent._others_are_done = True  # the rendezvous says when everybody is  # noqa: SLF001
    put_metric(f"workers.{spec.role}.{result.state.name.lower()}", 1)
    return result


def _job(agent: LocalElasticAgent, specs: SpecLogs) -> Job:
    spec = agent.get_worker_group().spec
    handler: Any = spec.rdzv_handler
    master, environment = handler.master, _environment(agent)
    return Job(
        command=_command(spec, agent._start_method, environment),  # noqa: SLF001
        local_world_size=spec.local_world_size,
        run_id=handler.get_run_id(),
        role=spec.role,
        max_restarts=spec.max_restarts,
        shutdown_timeout_s=float(agent._shutdown_timeout),  # noqa: SLF001
        signals=tuple(map(int, agent._handled_signals())),  # noqa: SLF001
        environment=environment,
        logs=LogSettings(prefix_template=agent._log_line_prefix_template, plan=lambda _settings: specs),  # noqa: SLF001
        master_addr=spec.master_addr or (master.master_addr if master else spec.local_addr) or "127.0.0.1",
        master_port=spec.master_port or (master.master_port if master else None),
        virtual_local_rank=spec.virtual_local_rank,
        always_restart=True,  # as torch does, whatever the error
        meeting=handler.meeting,
        health=_health_check(agent),
    )


def _health_check(agent: LocalElasticAgent) -> HealthCheck | None:
    """Return where probes are answered; whoever brought a server of their own has it answer them."""
    port = agent._health_check_port()  # noqa: SLF001
    if port is None:
        return None
    host = os.environ.get(HOST_VARIABLE) or LOOPBACK
    return HealthCheck(port, host, token=credentials_here().token)


def _environment(agent: LocalElasticAgent) -> dict[str, str]:
    named = agent._signals_to_handle  # noqa: SLF001
    return {**for_workers(os.environ), **({SIGNALS_TO_HANDLE: named} if named is not None else {})}


def _spec_logs(agent: LocalElasticAgent) -> SpecLogs:
    spec = agent.get_worker_group().spec
    out, err = tuple(spec.duplicate_stdout_filters or ()), tuple(spec.duplicate_stderr_filters or ())
    return SpecLogs(agent._logs_specs, out, err)  # noqa: SLF001


def _command(spec: WorkerSpec, start_method: str, environment: Mapping[str, str]) -> Command | Call:
    if isinstance(spec.entrypoint, str):
        check_program(spec.entrypoint, environment)
        return Command("program", spec.entrypoint, tuple(map(str, spec.args)))
    if spec.entrypoint is None:
        raise AssertionError("a WorkerSpec has an entrypoint")
    return Call(Recorded(spec.entrypoint), spec.args, start_method)


class _Told:
    """Keeps the agent's worker group as it would be if the agent had been asked."""

    def __init__(self, agent: LocalElasticAgent) -> None:
        self._agent = agent
        self._group = agent.get_worker_group()
        self._alone_since = 0.0  # when the last worker ended, or the run began

    def say(self, text: str) -> None:
        logger.info("[%s] %s", self._group.spec.role, text)

    def warn(self, text: str) -> None:
        logger.warning("[%s] %s", self._group.spec.role, text)

    def handle(self, event: Mapping[str, Any]) -> None:
        """Record restarts, with where their time went, and what torch's agent records, in its order."""
        at = event["metadata"]["at"]
        match event["name"]:
            case "planaria.restart":
                told = Event(event["name"], EventSource.AGENT, event["timestamp"], event["metadata"])
                record(told, self._group.spec.event_log_handler)
            case "planaria.run.started" | "planaria.worker.exited":
                self._alone_since = at
            case "planaria.round.started":
                self._record_meeting((at - self._alone_since) * 1000)
            case "planaria.worker.started":
                worker = self._group.workers[event["metadata"]["local_rank"]]
                started = self._agent._construct_event("START", EventSource.WORKER, worker)  # noqa: SLF001
                record(started, self._group.spec.event_log_handler)

    def _record_meeting(self, duration_ms: float) -> None:
        """Record the meeting as torch does. Ranks come with the place in a round: giving them out takes no time of its own."""
        for state, took_ms in (("RENDEZVOUS", duration_ms), ("ASSIGN_WORKER_RANKS", 0.0)):
            event = self._agent._construct_event(state, EventSource.AGENT, duration_ms=took_ms)  # noqa: SLF001
            record(event, self._group.spec.event_log_handler)

    def close(self) -> None:
        """Let go of nothing."""

    def beat(self) -> None:
        self._agent._looked_at = int(time.time())  # noqa: SLF001

    def on_round(self, life: Round, pids: Mapping[int, int]) -> None:
        group, spec, agent = self._group, self._group.spec, self._agent
        group.workers = [_worker(life, local_rank, pid) for local_rank, pid in sorted(pids.items())]
        group.group_rank, group.group_world_size = life.group_rank, life.group_world_size
        group.master_addr, group.master_port = life.master_addr, life.master_port
        group.state = WorkerState.HEALTHY
        agent._remaining_restarts = spec.max_restarts - life.restart_count  # noqa: SLF001
        put_metric(f"workers.{spec.role}.remaining_restarts", agent._remaining_restarts)  # noqa: SLF001
        put_metric(f"workers.{spec.role}.healthy", 1)


def _worker(life: Round, local_rank: int, pid: int) -> Worker:
    worker = Worker(
        local_rank=local_rank,
        global_rank=life.first_rank + local_rank,
        role_rank=life.first_role_rank + local_rank,
        world_size=life.world_size,
        role_world_size=life.role_world_size,
    )
    worker.id = pid
    return worker


def _result(ended: Ended, specs: SpecLogs, signals: tuple[int, ...]) -> RunResult:
    outcome = ended.outcome
    if outcome.kind == "done" and (ended.life is None or len(ended.return_values) < ended.life.local_world_size):
        raise RendezvousGracefulExitError("the others finished the run without this node")
    if outcome.kind == "done":
        first = ended.life.first_rank if ended.life is not None else 0
        values = {first + local_rank: value for local_rank, value in sorted(ended.return_values.items())}
        return RunResult(state=WorkerState.SUCCEEDED, return_values=values)
    if outcome.kind in ("signal", "stopped"):
        raise _stopped(outcome, signals)
    failures = _failures(ended, specs)
    if outcome.kind == "failed" and failures:
        return RunResult(state=WorkerState.FAILED, failures=failures)
    raise _ERRORS.get(outcome.kind, RendezvousError)(outcome.explanation or f"the run ended: {outcome.kind}")


def _stopped(outcome: Outcome, signals: tuple[int, ...]) -> BaseException:
    """Return what a run ends with that somebody ended: by a signal or `planaria drain`, or by `planaria stop` on any node."""
    if outcome.kind == "stopped":
        return RendezvousClosedError(outcome.explanation)
    if outcome.signal == signal.SIGINT and outcome.signal not in signals:
        return KeyboardInterrupt()
    return as_exception(outcome.signal)


def _failures(ended: Ended, specs: SpecLogs) -> dict[int, ProcessFailure]:
    """Return the failures that ended the run by global rank, the first cause first and earliest."""
    first, count = (ended.life.first_rank, ended.life.local_world_size) if ended.life is not None else (0, 0)
    made: dict[int, ProcessFailure] = {}
    latest = 0.0
    for one in causes(ended.group):
        if one.stopped_for is not None:
            continue
        path = one.error_file or (specs.error_file(one.local_rank) if first <= one.rank < first + count else "")
        made[one.rank] = failure = _as_process_failure(one, path)
        failure.exact_timestamp = latest = max(failure.exact_timestamp, latest + _LATER_S)
        failure.timestamp = int(latest)
    return made


def _as_process_failure(one: Failure, path: str) -> ProcessFailure:
    """Return torch's value; where there is no error file, what else is known of the worker takes its place.

    A path of another host means nothing here.
    """
    is_here = one.host == os.uname().nodename
    failure = as_process_failure(one, path if is_here else "")
    if not is_here:
        failure.host = one.host
    if not os.path.isfile(failure.error_file):
        trace = one.traceback or one.stderr_tail
        more = {"py_callstack": trace, "timestamp": str(int(failure.exact_timestamp))}
        failure.message = {"message": one.message, "extraInfo": more} if trace else one.message
        failure.error_file_data = {"message": failure.message}
    return failure
