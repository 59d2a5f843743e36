"""An agent whose workers are commands on other hosts, reached by a remote shell. About three seconds.

    python examples/extending/remote_agent.py

`SimpleElasticAgent` meets other agents, gives out ranks, counts restarts and decides. A subclass says with four methods what
a worker is: how to start it, to look at it, to stop it and to clean up. Here it is a command that `ssh` starts somewhere, with
`pretend_ssh` in its place, so that you can watch it on one machine. `docker run`, `kubectl exec` or `srun` fit as well.

What a remote worker needs to know goes into its command line, because `ssh` takes no variables along. How it is stopped: its
standard input is closed. That works without a second connection, and also happens by itself when this agent dies.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import Any

from planaria.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup, WorkerSpec, WorkerState
from planaria.elastic.multiprocessing.errors import ProcessFailure
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler

HERE = os.path.dirname(os.path.abspath(__file__))
WATCHED = """
exec 3<&0
{worker} & worker=$!
{{
    cat <&3; kill $worker; tries={tries}
    while [ $tries -gt 0 ] && kill -0 $worker; do sleep 0.1; tries=$((tries - 1)); done
    kill -9 $worker
}} >/dev/null 2>&1 &
watcher=$!
wait $worker 2>/dev/null; status=$?
kill $watcher 2>/dev/null; exit $status
"""
"""What runs on the other host: the worker, and beside it somebody who ends it when our end of the line is closed."""


WORKER = """
import os, sys
rank, life, host = (os.environ[name] for name in ("RANK", "TORCHELASTIC_RESTART_COUNT", "PRETEND_HOST"))
print(f"rank {rank} on {host}, life {life}", flush=True)
sys.exit(3 if (rank, life) == ("1", "0") else 0)
"""
"""What our two workers do: the second one fails in its first life."""


class RemoteAgent(SimpleElasticAgent):
    """Starts each worker on one of `hosts` with `shell HOST COMMAND`. Its id is the host and the pid of the shell here."""

    def __init__(self, spec: WorkerSpec, hosts: list[str], shell: list[str], **more: Any) -> None:
        super().__init__(spec, **more)
        self._hosts = hosts
        self._shell = shell
        self._lines: dict[int, subprocess.Popen[bytes]] = {}

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        ids = {}
        for worker in worker_group.workers:
            host = self._hosts[worker.local_rank % len(self._hosts)]
            command = self._command(worker_group, worker.local_rank)
            line = subprocess.Popen([*self._shell, host, command], stdin=subprocess.PIPE, start_new_session=True)
            self._lines[worker.local_rank] = line
            ids[worker.local_rank] = f"{host}/{line.pid}"
        return ids

    def _command(self, group: WorkerGroup, local_rank: int) -> str:
        worker, spec = group.workers[local_rank], group.spec
        variables = {
            "RANK": worker.global_rank,
            "LOCAL_RANK": local_rank,
            "WORLD_SIZE": worker.world_size,
            "MASTER_ADDR": group.master_addr,
            "MASTER_PORT": group.master_port,
            "TORCHELASTIC_RESTART_COUNT": spec.max_restarts - self._remaining_restarts,
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
        }
        told = [f"{name}={value}" for name, value in variables.items()]
        words = ["env", *told, str(spec.entrypoint), *map(str, spec.args)]
        return WATCHED.format(worker=shlex.join(words), tries=10 * self._shutdown_timeout)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        statuses = {rank: line.poll() for rank, line in self._lines.items()}
        ranks = [worker.global_rank for worker in worker_group.workers]
        failures = {
            ranks[rank]: ProcessFailure(rank, self._lines[rank].pid, status, error_file="")
            for rank, status in statuses.items()
            if status
        }
        if failures:
            return RunResult(WorkerState.FAILED, failures=failures)
        if None in statuses.values():
            return RunResult(WorkerState.HEALTHY)
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(ranks))

    def _stop_workers(self, worker_group: WorkerGroup) -> None:  # noqa: ARG002  there is only one
        self._shutdown(timeout=self._shutdown_timeout)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:  # noqa: ARG002
        for line in self._lines.values():
            line.stdin.close()  # the other end sends SIGTERM now, and SIGKILL after the grace
        for line in self._lines.values():
            try:
                line.wait(timeout + 1)
            except subprocess.TimeoutExpired:  # the other host does not answer: give up the line to it
                os.killpg(line.pid, signal.SIGKILL)
                line.wait()
        self._lines.clear()


def main() -> None:
    """Run two workers on two pretended hosts; one of them fails in its first life."""
    alone = RendezvousParameters(backend="c10d", endpoint="localhost:0", run_id="remote", min_nodes=1, max_nodes=1)
    spec = WorkerSpec(
        role="trainer",
        local_world_size=2,
        entrypoint=sys.executable,
        args=("-c", WORKER),
        rdzv_handler=get_rendezvous_handler(alone),
        max_restarts=1,
    )
    agent = RemoteAgent(spec, hosts=["alpha", "beta"], shell=[os.path.join(HERE, "pretend_ssh")], shutdown_timeout=5)
    result = agent.run()
    spec.rdzv_handler.shutdown()
    print(result.state.value)


if __name__ == "__main__":
    main()
