"""An agent whose workers do what a script says, and a rendezvous that notes who asks: for torch's agent and for ours."""

from types import SimpleNamespace


class MemoryStore:
    """As much of a store as one agent alone needs."""

    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode() if isinstance(value, str) else value

    def get(self, key):
        return self.values[key]

    def add(self, key, amount):
        self.values[key] = self.values.get(key, 0) + amount
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def multi_get(self, keys):
        return [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


class Handler:
    """A foreign handler: no class of ours, only the interface. `waiting` says how many nodes wait at each look."""

    use_agent_store = False

    def __init__(self, calls, *, store=None, rank=0, world_size=1, waiting=()):
        self.calls = calls
        self.store = store if store is not None else MemoryStore()
        self.rank, self.world_size = rank, world_size
        self.waiting = list(waiting)
        self.raises = None

    def next_rendezvous(self):
        self.calls.append("next_rendezvous")
        if self.raises is not None:
            raise self.raises
        place = SimpleNamespace(master_addr="127.0.0.1", master_port=4711)
        return SimpleNamespace(store=self.store, rank=self.rank, world_size=self.world_size, bootstrap_store_info=place)

    def num_nodes_waiting(self):
        self.calls.append("num_nodes_waiting")
        return self.waiting.pop(0) if self.waiting else 0

    def get_run_id(self):
        return "run"

    def get_backend(self):
        return "foreign"

    def shutdown(self):
        self.calls.append("handler.shutdown")
        return True


def scripted(api, states, *, max_restarts=1, **handler):
    """Return an agent of this API (torch's module or ours) and the list of the calls it gets.

    `states` are names of states, or exceptions to raise, one for each look at the workers.
    """
    calls = []

    class Agent(api.SimpleElasticAgent):
        def _start_workers(self, worker_group):
            calls.append(f"start {[worker.global_rank for worker in worker_group.workers]}")
            return {worker.local_rank: f"id{worker.local_rank}" for worker in worker_group.workers}

        def _stop_workers(self, worker_group):  # noqa: ARG002
            calls.append("stop")

        def _monitor_workers(self, worker_group):
            said = states.pop(0)
            calls.append(f"monitor {said}")
            if isinstance(said, BaseException):
                raise said
            values = {worker.global_rank: "value" for worker in worker_group.workers} if said == "SUCCEEDED" else {}
            return api.RunResult(state=api.WorkerState[said], return_values=values)

        def _shutdown(self, death_sig=15, timeout=30):
            calls.append(f"shutdown {int(death_sig)} {timeout}")

    spec = api.WorkerSpec(
        role="trainer",
        local_world_size=2,
        rdzv_handler=Handler(calls, **handler),
        entrypoint="program",
        max_restarts=max_restarts,
        monitor_interval=0.001,
    )
    return Agent(spec, exit_barrier_timeout=5, shutdown_timeout=7), calls
