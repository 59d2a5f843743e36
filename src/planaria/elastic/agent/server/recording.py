"""What an agent tells about itself: torch's events and metrics, with real values where torch has tuples by accident."""

from __future__ import annotations

import json
import os
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from planaria.elastic.agent.server.model import WorkerState
from planaria.elastic.events import Event, EventSource, record
from planaria.elastic.metrics import put_metric

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.elastic.agent.server.model import RunResult, Worker, WorkerGroup


class Recording:
    """The part of an agent that others read: it knows the worker group, the budget and how long the run took."""

    _worker_group: WorkerGroup
    _remaining_restarts: int
    _total_execution_time: int

    def get_event_failed(self) -> Event:
        """Return the event of an agent that failed with the exception being handled."""
        return self._construct_event("FAILED", EventSource.AGENT, raw_error=traceback.format_exc())

    def get_event_succeeded(self) -> Event:
        """Return the event of an agent that did its work; its workers may have failed."""
        return self._construct_event("SUCCEEDED", EventSource.AGENT)

    @contextmanager
    def record_duration(self, state: str) -> Iterator[None]:
        """Record how long the block took, as an event of this state."""
        began = time.perf_counter()
        try:
            yield
        finally:
            duration_ms = (time.perf_counter() - began) * 1000
            event = self._construct_event(state, EventSource.AGENT, duration_ms=duration_ms)
            record(event, self._worker_group.spec.event_log_handler)

    def _record_worker_events(self, result: RunResult) -> None:
        """Record how each worker of the last round ended."""
        for worker in self._worker_group.workers:
            failure = result.failures.get(worker.global_rank)
            event = self._construct_event(
                self._get_worker_state(worker, result),
                EventSource.WORKER,
                worker,
                raw_error=json.dumps(failure.error_file_data) if failure else None,
                exit_code=failure.exitcode if failure else None,
                worker_pid=failure.pid if failure else None,
            )
            record(event, self._worker_group.spec.event_log_handler)

    def _get_worker_state(self, worker: Worker, result: RunResult) -> str:
        failure = result.failures.get(worker.global_rank)
        if result.state in {WorkerState.UNHEALTHY, WorkerState.FAILED} and not failure:
            return "TERMINATED"  # by the agent, because another one failed
        if failure or worker.global_rank in result.return_values:
            return result.state.value
        raise ValueError(f"Unknown worker: {worker.global_rank}")

    def _construct_event(  # noqa: PLR0917  torch's signature
        self,
        state: str,
        source: EventSource,
        worker: Worker | None = None,
        raw_error: str | None = None,
        duration_ms: float | None = None,
        exit_code: int | None = None,
        worker_pid: int | None = None,
    ) -> Event:
        group, spec = self._worker_group, self._worker_group.spec
        more = {"group_world_size": group.group_world_size, "entry_point": spec.get_entrypoint_name()}
        if worker:
            more |= {"local_rank": worker.local_rank, "role_rank": worker.role_rank}
            more |= {"role_world_size": worker.role_world_size, "exit_code": exit_code, "worker_pid": worker_pid}
        metadata = {
            "run_id": spec.rdzv_handler.get_run_id(),
            "global_rank": worker.global_rank if worker else None,
            "group_rank": group.group_rank,
            "worker_id": str(worker.id) if worker else None,
            "role": spec.role,
            "hostname": os.uname().nodename,  # a name service, which torch asks, may take seconds; the loop stands still
            "state": state,
            "total_run_time": self._total_execution_time,
            "rdzv_backend": spec.rdzv_handler.get_backend(),
            "raw_error": raw_error,
            "metadata": json.dumps(more),
            "agent_restarts": spec.max_restarts - self._remaining_restarts,
            "duration_ms": duration_ms,
        }
        return Event(f"torchelastic.worker.status.{state}", source=source, metadata=metadata)

    def _record_metrics(self, group_results: RunResult) -> None:
        """Count the run: one of four, by how it ended and whether it needed a restart."""
        is_failed = group_results.is_failed()
        self._record_flakiness_metric(is_failed)
        had_restarts = self._remaining_restarts != self._worker_group.spec.max_restarts
        put_metric(f"workers.{self._worker_group.spec.role}.run_total", 1)
        self._record_metric_with_condition("run_success_with_retries", not is_failed and had_restarts)
        self._record_metric_with_condition("run_success_no_retries", not is_failed and not had_restarts)
        self._record_metric_with_condition("run_failed_with_retries", is_failed and had_restarts)
        self._record_metric_with_condition("run_failed_no_retries", is_failed and not had_restarts)

    def _record_metric_with_condition(self, metric_name: str, condition: bool) -> None:
        put_metric(f"workers.{self._worker_group.spec.role}.{metric_name}", int(condition))

    def _record_flakiness_metric(self, is_failed: bool = False) -> None:
        """Tell which part of the budget was needed, in per cent."""
        spec = self._worker_group.spec
        needed = 100.0 - 100.0 * (self._remaining_restarts + 1) / (spec.max_restarts + 1)
        put_metric(f"workers.{spec.role}.flakiness", 100 if is_failed else int(needed))
