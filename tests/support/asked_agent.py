"""An agent of somebody else's: a SimpleElasticAgent whose only worker is a shell, with a handler of ours, asked now and then.

`python asked_agent.py BACKEND ENDPOINT MIN MAX FOLDER`: the worker writes `RANK WORLD_SIZE LIFE` to FOLDER/log and waits until
somebody opens the other end of the FIFO FOLDER/finish. Rank 1 fails in its first life, once rank 0 has said through the FIFO
FOLDER/begun, which somebody keeps open, that it has written its line. The last line says how it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from planaria.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerGroup, WorkerSpec, WorkerState
from planaria.elastic.multiprocessing.errors import ProcessFailure
from planaria.elastic.rendezvous import RendezvousParameters
from planaria.elastic.rendezvous.registry import get_rendezvous_handler

WORKER = """
[ "$RANK $LIFE" = "1 0" ] && read -r word < begun
echo "$RANK $WORLD_SIZE $LIFE" >> log
[ "$RANK" = 0 ] && echo yes > begun
[ "$RANK $LIFE" = "1 0" ] && exit 3
: < finish
"""


class Asked(SimpleElasticAgent):
    def __init__(self, spec: WorkerSpec, folder: str) -> None:
        super().__init__(spec)
        self.folder = folder
        self.worker: subprocess.Popen[bytes] | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        (worker,) = worker_group.workers
        life = worker_group.spec.max_restarts - self._remaining_restarts
        told = {"RANK": worker.global_rank, "WORLD_SIZE": worker.world_size, "LIFE": life}
        environ = os.environ | {name: str(value) for name, value in told.items()}
        self.worker = subprocess.Popen(["sh", "-c", WORKER], cwd=self.folder, env=environ)
        return {0: self.worker.pid}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        assert self.worker is not None
        rank, status = worker_group.workers[0].global_rank, self.worker.poll()
        if status is None:
            return RunResult(WorkerState.HEALTHY)
        if status == 0:
            return RunResult(WorkerState.SUCCEEDED, return_values={rank: None})
        return RunResult(WorkerState.FAILED, failures={rank: ProcessFailure(0, self.worker.pid, status, "")})

    def _stop_workers(self, worker_group: WorkerGroup) -> None:  # noqa: ARG002
        self._shutdown()

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = 30) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(death_sig)
            self.worker.wait(timeout)


def main(backend: str, endpoint: str, least: str, most: str, folder: str) -> None:
    params = RendezvousParameters(backend, endpoint, "job", int(least), int(most), last_call_timeout=1)
    handler = get_rendezvous_handler(params)
    spec = WorkerSpec(
        role="asked", local_world_size=1, entrypoint="sh", rdzv_handler=handler, max_restarts=3, monitor_interval=0.05
    )
    result = Asked(spec, folder).run()
    handler.shutdown()
    print(result.state.value)


if __name__ == "__main__":
    main(*sys.argv[1:])
