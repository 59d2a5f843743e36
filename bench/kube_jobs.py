"""How an operator does with many jobs: `python bench/kube_jobs.py [--jobs 500] [--rest-s 360] [--kubeconfig FILE]`.

Writes RESULTS-operator.md and results-operator.json beside this file (`--output`, `--json`), and says on standard error how far
it is. Without a kubeconfig it starts the API server of the tests (`scripts/kubernetes` builds it). No pod runs anywhere: what
is measured is the operator. Jobs are elastic, with one worker each, at their maximum.

    burst      all jobs are created at once: from each one's creation until its worker's pod is there
    steady     all jobs stand; one after the other gets a change of its pod: from the change until the job's status says so
    rest       all jobs train, and their agents are played: each pushes progress and events every 10 s; what that costs
    restart    the operator is killed and started again: from its start until all jobs were looked at
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import signal
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import machine
from harness.operator_report import report

from planaria.contract import glimpse
from planaria.contract.progress import KEY, Record, write
from planaria.kube.api import connect
from planaria.kube.crd import definition
from planaria.kube.install import apply
from planaria.kube.resources import CONFIG_MAP, JOB, NAMESPACE, POD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from planaria.kube.api import Api

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUPPORT = ROOT / "tests" / "support"
PROBES = 100
AT_ONCE = 16
PUSH_S = 10.0  # what agents do
REST_S = 360.0  # by default; longer than samples wait at rest
STARTED = "2022-09-11T12:08:29Z"
RESTARTS = 6  # of which agents tell


def job(namespace: str, name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "bench/none:1"}]}}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "enableElastic": True,
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 1},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}},
        },
    }


def summary(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "median_s": round(statistics.median(ordered), 4),
        "p99_s": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 4),
        "most_s": round(ordered[-1], 4),
    }


class Operator:
    """`planaria operator run`, as a process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self._port = port
        self.listening: asyncio.Future[None] | None = None

    @classmethod
    async def start(cls, kubeconfig: str, namespace: str) -> Operator:
        words = [
            sys.executable,
            "-m",
            "planaria",
            "operator",
            "run",
            "--kubeconfig",
            kubeconfig,
            "--namespace",
            namespace,
        ]
        words += ["--lease", f"{namespace}/operator", "--identity", "bench", "--host", "127.0.0.1", "--port", "0"]
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        found = cls(process, int(line.rsplit(" ", 1)[1]))
        found.listening = asyncio.ensure_future(found.listen(process.stderr))
        return found

    async def listen(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            sys.stderr.write(line.decode())

    def memory_mib(self) -> float:
        with open(f"/proc/{self.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def cpu_s(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def metric(self, name: str) -> float:
        def read() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as answer:
                return str(answer.read().decode())

        text = await asyncio.to_thread(read)
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def seen(api: Api, kind: Any, namespace: str) -> AsyncIterator[tuple[float, dict[str, Any]]]:
    version = (await api.list(kind, namespace)).version
    while True:
        async for change in api.watch(kind, namespace, version):
            version = change.obj["metadata"]["resourceVersion"]
            if change.kind in ("ADDED", "MODIFIED"):
                yield time.monotonic(), change.obj


async def burst(api: Api, namespace: str, names: list[str]) -> list[float]:
    made: dict[str, float] = {}
    there: dict[str, float] = {}

    async def look() -> None:
        async for at, pod in seen(api, POD, namespace):
            there.setdefault(pod["metadata"]["labels"]["job-name"], at)
            if len(there) == len(names):
                return

    looking = asyncio.ensure_future(look())
    gate = asyncio.Semaphore(AT_ONCE)

    async def create(name: str) -> None:
        async with gate:
            made[name] = time.monotonic()
            await api.create(job(namespace, name))

    await asyncio.gather(*(create(name) for name in names))
    async with asyncio.timeout(600):
        await looking
    return [there[name] - made[name] for name in names]


def running(since: str = STARTED) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    containers = [container | {"state": {"running": {"startedAt": since}}}]
    ready = {"type": "Ready", "status": "True"}
    return {"status": {"phase": "Running", "containerStatuses": containers, "conditions": [ready]}}


async def steady(api: Api, namespace: str, names: list[str]) -> list[float]:
    """Let one pod after the other run, and wait until its job says so."""
    found: dict[str, asyncio.Future[float]] = {}

    async def look() -> None:
        async for at, obj in seen(api, JOB, namespace):
            active = (obj.get("status") or {}).get("replicaStatuses", {}).get("Worker", {}).get("active", 0)
            waiting = found.get(obj["metadata"]["name"])
            if active and waiting is not None and not waiting.done():
                waiting.set_result(at)

    looking = asyncio.ensure_future(look())
    await asyncio.sleep(1.0)  # until the watch is there
    took = []
    for name in names[:PROBES]:
        found[name] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        await api.patch(POD, namespace, f"{name}-worker-0", running(), "status")
        took.append(await asyncio.wait_for(found[name], 60) - began)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return took


def events(name: str, seconds: float) -> str:
    """Return what an agent pushes beside its progress, some KB: its only worker was started again a few times."""
    from journals import Node

    node = Node(f"{name}-worker-0", 0, workers=1).begins(0.0, 100).starts(1.0, 0, nodes=1)
    for number in range(1, RESTARTS + 1):
        at_s = 60.0 * number
        node.exits(at_s, number - 1, 0).starts(at_s + 0.2, number, nodes=1, reason="rank 0 failed", count=number)
        node.restarts(at_s + 0.3, number, "rank 0 failed", detect_s=0.01, start_s=0.1, ready_s=0.2)
    at_s = 60.0 * (RESTARTS + 1) + seconds
    for tier in ("node", "disk"):
        node.tell(at_s, "commit", tier=tier, run=1, round=RESTARTS, step=int(seconds), generation=int(seconds))
    return glimpse.write(node.host, node.steps(at_s, RESTARTS, int(seconds)).events)


async def rest(api: Api, operator: Operator, namespace: str, names: list[str], rest_s: float) -> dict[str, float]:
    """Let all jobs train and push; count the operator's calls and its processor time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def train(name: str, number: int) -> None:
        async with gate:
            await api.patch(POD, namespace, f"{name}-worker-0", running(), "status")
        await asyncio.sleep(PUSH_S * number / len(names))  # not all in the same moment
        began = time.monotonic()
        while True:
            seconds = time.monotonic() - began
            record = Record("planaria bench", 1, 1, 1, int(seconds), 100 * seconds, seconds)
            news = {KEY: write(record), glimpse.KEY: events(name, seconds)}
            async with gate:
                await api.patch(CONFIG_MAP, namespace, f"{name}-progress", {"data": news})
            await asyncio.sleep(PUSH_S)  # that is how agents are

    training = [asyncio.ensure_future(train(name, number)) for number, name in enumerate(names)]
    try:
        await asyncio.sleep(2 * PUSH_S)  # until all run
        calls, cpu_s, began = await operator.metric("planaria_operator_calls_total"), operator.cpu_s(), time.monotonic()
        await asyncio.sleep(rest_s)  # the time over which is counted
        took_s = time.monotonic() - began
        made = await operator.metric("planaria_operator_calls_total") - calls
        return {"calls_per_s": round(made / took_s, 2), "cpu_share": round((operator.cpu_s() - cpu_s) / took_s, 4)}
    finally:
        for task in training:
            task.cancel()
        await asyncio.gather(*training, return_exceptions=True)


async def quiet(operator: Operator) -> None:
    """Wait until no job has waited to be looked at for a while; the number is told every second."""
    idle = 0
    while idle < 5:
        idle = 0 if await operator.metric("planaria_operator_queue_length") else idle + 1
        await asyncio.sleep(1.0)


def circumstances() -> dict[str, Any]:
    """Return when, where and with what this is measured, as the other reports have it."""
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return {"date": date, "machine": machine.describe(), "versions": machine.versions(), "load_before": machine.load()}


def tell(results: dict[str, Any]) -> None:
    """Say how far it is."""
    sys.stderr.write(json.dumps(results) + "\n")


async def measure(kubeconfig: str, count: int, rest_s: float) -> dict[str, Any]:
    api = await connect(kubeconfig)
    namespace = f"bench-{secrets.token_hex(4)}"
    await apply(api, [definition()], lambda _name, _result: None)
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    operator = await Operator.start(kubeconfig, namespace)
    try:
        while not await operator.metric("planaria_operator_leads"):
            await asyncio.sleep(0.1)
        empty = operator.memory_mib()
        names = [f"job-{index}" for index in range(count)]
        results: dict[str, Any] = {
            "jobs": count,
            "burst": summary(await burst(api, namespace, names)),
        }
        tell(results)
        await quiet(operator)
        results["burst"] |= {
            "operator_cpu_s": operator.cpu_s(),
            "calls": await operator.metric("planaria_operator_calls_total"),
        }
        results["steady"] = summary(await steady(api, namespace, names))
        tell(results)
        results["rest"] = await rest(api, operator, namespace, names, rest_s)
        tell(results)
        results["memory_mib"] = {"without_jobs": round(empty, 1), "with_jobs": round(operator.memory_mib(), 1)}
        await operator.kill()
        began = time.monotonic()
        operator = await Operator.start(kubeconfig, namespace)
        while await operator.metric("planaria_operator_looks_total") < count:
            await asyncio.sleep(0.1)
        results["restart"] = {"all_looked_at_s": round(time.monotonic() - began, 2)}
        await quiet(operator)
        results["restart"] |= {
            "memory_mib": round(operator.memory_mib(), 1),
            "calls": await operator.metric("planaria_operator_calls_total"),
        }
        return results
    finally:
        with contextlib.suppress(ProcessLookupError):
            await operator.kill()
        await api.delete(NAMESPACE, "", namespace)
        await api.close()


@contextlib.contextmanager
def api_server(kubeconfig: str) -> Iterator[str]:
    if kubeconfig:
        yield kubeconfig
        return
    from kube_cluster import Cluster

    with Cluster.start() as cluster:
        yield cluster.kubeconfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--rest-s", type=float, default=REST_S)
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--output", default=str(HERE / "RESULTS-operator.md"), help="the report")
    parser.add_argument("--json", default=str(HERE / "results-operator.json"), help="the raw numbers")
    asked = parser.parse_args()
    sys.path.insert(0, str(SUPPORT))
    results = circumstances() | {"rest_s": asked.rest_s}
    with api_server(asked.kubeconfig) as kubeconfig:
        results |= asyncio.run(measure(kubeconfig, asked.jobs, asked.rest_s))
    results["load_after"] = machine.load()
    Path(asked.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    Path(asked.output).write_text(report(results), encoding="utf-8")
    sys.stderr.write(f"written: {asked.output}, {asked.json}\n")


if __name__ == "__main__":
    main()
