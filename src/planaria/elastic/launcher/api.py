"""Run a function or a program on many workers, here and on other nodes, and return what they return."""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planaria.agent.conf import BACKENDS
from planaria.elastic import events, metrics
from planaria.elastic.agent.server.api import WorkerSpec
from planaria.elastic.agent.server.local_elastic_agent import LocalElasticAgent, _AliveCallbackProxy
from planaria.elastic.multiprocessing import DefaultLogsSpecs
from planaria.elastic.multiprocessing.errors import ChildFailedError
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous import registry as rdzv_registry
from planaria.elastic.rendezvous.utils import parse_rendezvous_endpoint
from planaria.elastic.utils.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.elastic.agent.server.api import RunResult
    from planaria.elastic.agent.server.health_check_server import HealthCheckServer
    from planaria.elastic.multiprocessing import LogsSpecs

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]

_SHUTDOWN_TIMEOUT = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
_RENDEZVOUS_TIMEOUT_S = 900

logger = get_logger(__name__)


@dataclass
class LaunchConfig:
    """Everything about a job but what its workers run. The same on every node.

    Without `rdzv_endpoint` a job of one node meets nobody; one of many has to name where its nodes meet. `rdzv_timeout` is
    torch's old way to say `rdzv_configs["timeout"]`. `shutdown_timeout` is how many seconds workers have to end after a
    signal: if None, `TORCH_ELASTIC_SHUTDOWN_TIMEOUT` or 30.
    """

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        self.rdzv_configs.setdefault("timeout", _RENDEZVOUS_TIMEOUT_S)
        if self.logs_specs is None:
            self.logs_specs = DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = _default_shutdown_timeout_s()
        if self.shutdown_timeout < 0:
            raise ValueError(f"shutdown_timeout must be non-negative, got {self.shutdown_timeout}")


def _default_shutdown_timeout_s() -> int:
    given = os.environ.get(_SHUTDOWN_TIMEOUT, "30")
    try:
        return int(given)
    except ValueError:
        raise ValueError(f"{_SHUTDOWN_TIMEOUT} expects a whole number of seconds, got {given!r}") from None


class elastic_launch:
    """A function or program that runs on many workers when it is called, and returns their results by global rank.

    elastic_launch(config, train)(data)                 a function
    elastic_launch(config, "python")("script.py")       a program
    """

    def __init__(
        self,
        config: LaunchConfig,
        entrypoint: Callable[..., Any] | str | None,
        health_check_server: HealthCheckServer | None = None,
    ) -> None:
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Run it with these arguments; see `launch_agent`."""
        return launch_agent(self._config, self._entrypoint, list(args), health_check_server=self._health_check_server)


def _get_entrypoint_name(entrypoint: Callable[..., Any] | str | None, args: list[Any]) -> str:
    """Return what a job is called in errors: its function, its script or its program."""
    if callable(entrypoint):
        return str(getattr(entrypoint, "__name__", type(entrypoint).__name__))
    if entrypoint == sys.executable:
        return next((arg for arg in args if not arg.startswith("-")), "")
    return entrypoint or ""


def _get_addr_and_port(rdzv_parameters: RendezvousParameters) -> tuple[str | None, int | None]:
    """Return where rank 0 is: named by a static rendezvous, found out by every other.

    Raises:
        ValueError: The endpoint of a static rendezvous, or its port, is missing.
    """
    if rdzv_parameters.backend != "static":
        return None, None
    endpoint = rdzv_parameters.endpoint.strip()
    if not endpoint:
        raise ValueError("Endpoint is missing in endpoint. Try to add --master-addr and --master-port")
    master_addr, master_port = parse_rendezvous_endpoint(endpoint, default_port=-1)
    if master_port == -1:
        raise ValueError(f"port is missing in endpoint: {endpoint}. Try to specify --master-port")
    return master_addr, master_port


def launch_agent(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str | None,
    args: list[Any],
    health_check_server: HealthCheckServer | None = None,
) -> dict[int, Any]:
    """Run the workers of this node to their end; return what they returned, by global rank.

    Raises:
        ChildFailedError: Workers failed and the restarts are used up.
        SignalException: This process got one of `signals_to_handle`. The workers were stopped; other nodes go on.
    """
    return run_agent(make_agent(config, entrypoint, args, health_check_server), config)


def run_agent(agent: LocalElasticAgent, config: LaunchConfig) -> dict[int, Any]:
    """Run an agent that was made for this configuration; see `launch_agent`."""
    result = _run(agent, config)
    if result.is_failed():
        spec = agent.get_worker_group().spec
        raise ChildFailedError(name=_get_entrypoint_name(spec.entrypoint, list(spec.args)), failures=result.failures)
    return result.return_values


def _run(agent: LocalElasticAgent, config: LaunchConfig) -> RunResult:
    """Run the agent and tell how that went, which is not how its workers did.

    Only who knows that the run is over closes the rendezvous: because everybody is done, or because the workers failed for
    good. torch closes it for everybody when an agent has an accident of its own, too, or has waited for others in vain.
    """
    metrics.initialize_metrics(metrics.MetricsConfig(config.metrics_cfg))
    try:
        result = agent.run()
    except Exception:
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    events.record(agent.get_event_succeeded(), config.event_log_handler)
    if result.is_failed() or agent._others_are_done:  # noqa: SLF001  made for each other
        agent.get_worker_group().spec.rdzv_handler.shutdown()
    return result


def make_agent(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str | None,
    args: list[Any],
    health_check_server: HealthCheckServer | None = None,
) -> LocalElasticAgent:
    """Make the agent of a launch, and its rendezvous handler, which may raise whatever its author thought of."""
    if not config.run_id:
        config.run_id = uuid.uuid4().hex
        logger.warning("config has no run_id, generated a random run_id: %s", config.run_id)
    # Not the whole configuration: `rdzv_configs` may hold a password.
    logger.info(
        "starting %s as run %s: %s nodes of %s workers, %s restarts",
        _get_entrypoint_name(entrypoint, args),
        config.run_id,
        f"{config.min_nodes}:{config.max_nodes}",
        config.nproc_per_node,
        config.max_restarts,
    )
    parameters = _parameters(config)
    master_addr, master_port = _get_addr_and_port(parameters)
    spec = WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(args),
        rdzv_handler=rdzv_registry.get_rendezvous_handler(parameters),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=master_addr,
        master_port=master_port,
        local_addr=config.local_addr,
        event_log_handler=config.event_log_handler,
        numa_options=config.numa_options,
        duplicate_stdout_filters=config.duplicate_stdout_filters,
        duplicate_stderr_filters=config.duplicate_stderr_filters,
        virtual_local_rank=config.virtual_local_rank,
    )
    if config.logs_specs is None or config.shutdown_timeout is None:
        raise AssertionError("a LaunchConfig sets both when it is made")
    agent = LocalElasticAgent(
        spec=spec,
        logs_specs=config.logs_specs,
        start_method=config.start_method,
        log_line_prefix_template=config.log_line_prefix_template,
        shutdown_timeout=config.shutdown_timeout,
        health_check_server=health_check_server,
    )
    agent._signals_to_handle = config.signals_to_handle  # noqa: SLF001  made for each other
    if health_check_server is not None and isinstance(health_check_server.alive_callback, _AliveCallbackProxy):
        health_check_server.alive_callback.set_delegate(agent._get_alive_time)  # noqa: SLF001  made for each other
    return agent


def _parameters(config: LaunchConfig) -> RendezvousParameters:
    """Return the parameters of the rendezvous; one node that names no endpoint needs none, whatever backend of ours it names.

    A handler of somebody else's may know without being told where to meet.
    """
    is_alone = config.max_nodes == 1 and not config.rdzv_endpoint and config.rdzv_backend in BACKENDS
    return RendezvousParameters(
        backend="c10d" if is_alone else config.rdzv_backend,
        endpoint="localhost:0" if is_alone else config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
