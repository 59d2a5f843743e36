"""Agents that start, watch, stop and restart a group of workers, with torch's names and order of calls.

    ElasticAgent            what every agent can do: run, and show its worker group
    SimpleElasticAgent      decides; four methods of a subclass say how workers are started, stopped and looked at
    LocalElasticAgent       the workers are processes of this machine

Who decides is always `planaria.agent.machine`. This room must not hold rules of its own about restarts.
"""

from planaria.elastic.agent.server.api import (
    ElasticAgent,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from planaria.elastic.agent.server.local_elastic_agent import TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE

__all__ = [
    "TORCHELASTIC_ENABLE_FILE_TIMER",
    "TORCHELASTIC_TIMER_FILE",
    "ElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]
