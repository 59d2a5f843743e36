"""The numbers of one agent, as a Prometheus server reads them. `docs/events.md` has a line for each."""

from __future__ import annotations

from planaria.agent.phases import KINDS, PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sized

    from planaria.agent.model import Group
    from planaria.agent.phases import Restart
    from planaria.observe.metrics import Registry

RESULTS = ("ok", "failed", "stopped")
STARTS = ("promoted", "cold")


class Meters:
    """Sets what the agent saw. Counters that have labels show a 0 for each from the start, so that a first step is seen."""

    def __init__(self, registry: Registry) -> None:
        self._restarts = registry.counter("planaria_restarts_total", "Restarts of all workers, by reason.", ("reason",))
        self._charged = registry.counter(
            "planaria_restarts_charged_total", "Restarts that were charged to --max-restarts."
        )
        self._exits = registry.counter("planaria_worker_exits_total", "Ends of workers, by result.", ("result",))
        self._starts = registry.counter(
            "planaria_worker_restarts_total", "Workers started again where standbys are kept, by how.", ("how",)
        )
        self._rounds = registry.counter("planaria_rounds_total", "Rounds that this node has started workers in.")
        self._phases = registry.histogram(
            "planaria_restart_phase_seconds", "Time in each phase of a restart.", ("phase",)
        )
        self._total = registry.histogram("planaria_restart_seconds", "Time of a whole restart.")
        self._world_size = registry.gauge("planaria_world_size", "Workers in the current round, on all nodes.")
        self._nodes = registry.gauge("planaria_nodes", "Nodes in the current round.")
        self._round = registry.gauge("planaria_round", "Number of the current round.")
        self._running = registry.gauge("planaria_workers_running", "Workers that run on this node.")
        self._left = registry.gauge("planaria_restarts_left", "Restarts that the budget still allows.")
        self._step = registry.gauge("planaria_progress_step", "Highest step a worker of this life has reported.")
        self._started = registry.gauge(
            "planaria_run_start_time_seconds", "When the agent began, in seconds since 1970."
        )
        for kind in KINDS:
            self._restarts.add(0, reason=kind)
        for how in STARTS:
            self._starts.add(0, how=how)
        for result in RESULTS:
            self._exits.add(0, result=result)

    def begin(self, wall_s: float) -> None:
        """Note when the agent began."""
        self._started.set(wall_s)

    def group(self, group: Group) -> None:
        """Show the group as it is now."""
        self._running.set(len(group.running))
        self._left.set(max(0, group.max_restarts - group.restarts))

    def round(self, number: int, world_size: int, nodes: int) -> None:
        """Show the round whose workers start."""
        self._rounds.add()
        self._round.set(number)
        self._world_size.set(world_size)
        self._nodes.set(nodes)
        self._step.clear()

    def exited(self, result: str) -> None:
        """Count the end of a worker."""
        self._exits.add(result=result)

    def progressed(self, step: int) -> None:
        """Show how far this life has come."""
        self._step.set(max(step, self._step.value() or 0))

    def restarted(self, restart: Restart, starts: Mapping[str, Sized]) -> None:
        """Count a restart, how its workers were started, and where its time went."""
        self._restarts.add(reason=restart.kind)
        self._charged.add(int(restart.charged))
        for how in STARTS:
            self._starts.add(len(starts[how]), how=how)
        self._total.observe(restart.total_s)
        for phase in PHASES:
            self._phases.observe(getattr(restart, f"{phase}_s"), phase=phase)
