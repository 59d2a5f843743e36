"""64 workers that talk: is every line shown, whole and in order, and how late."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.children import LIMIT_S, Child
from harness.model import OURS, Bench, MeasurementError, Metric, Sample
from harness.processes import Usage, children_of_all, usage
from harness.stats import quantile

from rows.launch import script
from rows.tee_lines import parse, verdict, written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.model import Launcher, Settings

WORKERS = 64
_LOOK_EVERY_S = 0.2
_PEERS_S = 2.0  # enough to see what it does


@dataclass(frozen=True, slots=True)
class _Writers:
    """Who writes: 1,000 lines a second each, `burst` writes one after the other and then a sleep of `burst` ms."""

    name: str
    language: str
    burst: int


@dataclass(frozen=True, slots=True)
class _Heard:
    """What came out of stdout and when, and the launcher's share of one core meanwhile, in per cent."""

    chunks: list[tuple[int, bytes]]
    on_cpu: float
    on_queue: float


def _measure(writers: _Writers, launcher: Launcher, settings: Settings) -> Sample:
    logs = os.path.join(settings.scratch, "tee-logs")
    seconds = settings.tee_s if launcher.name == OURS else min(settings.tee_s, _PEERS_S)
    flags = ("--standalone", f"--nproc-per-node={WORKERS}", "-t", "3", "--log-dir", logs)
    if writers.language == "C":
        program: tuple[str, ...] = ("--no-python", _compiled(settings))
    else:
        program = (script(settings, "chatty.py"),)
    try:
        return _listen((*launcher.command, *flags, *program), writers, settings, seconds, prefixed=True)
    finally:
        shutil.rmtree(logs, ignore_errors=True)


def _without_launcher(writers: _Writers, settings: Settings) -> Sample:
    program = (_compiled(settings),) if writers.language == "C" else (settings.python, script(settings, "chatty.py"))
    start = (settings.python, script(settings, "start_all.py"), str(WORKERS), *program)
    sample = _listen(start, writers, settings, settings.tee_s, prefixed=False)
    return Sample({key: numbers for key, numbers in sample.values.items() if key not in ("cpu", "queue")}, sample.facts)


def _listen(
    command: tuple[str, ...], writers: _Writers, settings: Settings, seconds: float, *, prefixed: bool
) -> Sample:
    side, go = os.path.join(settings.scratch, "tee-side"), os.path.join(settings.scratch, "tee-go")
    with open(side, "wb"):
        pass
    try:
        argv = (*command, side, go, str(round(seconds * 1000)), str(writers.burst))
        with Child(argv, settings.scratch) as child:
            own = _wait_until_ready(child, side)
            with _ahead_of_the_others():
                heard = _read_all(child, own, side, go, LIMIT_S + seconds)
            child.expect_success()
    finally:
        if os.path.exists(go):
            os.unlink(go)
    shown, done = parse(heard.chunks, prefixed=prefixed), written(_read(side))
    if not shown.lags_ms:
        raise MeasurementError("no line was shown")
    return Sample(
        {
            "lag": [quantile(shown.lags_ms, 0.5)],
            "lag_p99": [quantile(shown.lags_ms, 0.99)],
            "lag_max": [shown.lags_ms[-1]],
            "cpu": [heard.on_cpu],
            "queue": [heard.on_queue],
            "rate": [sum(count / elapsed_ns * 1e9 for count, elapsed_ns in done.values()) / WORKERS],
        },
        {"every line shown, whole, in order": verdict(shown, done, WORKERS)},
    )


def _wait_until_ready(child: Child, side: str) -> list[int]:
    """Wait for all workers; return the launcher's own pids: the one started, and a child of it that has the workers."""
    deadline = time.monotonic() + LIMIT_S
    while _read(side).count(b"ready\n") < WORKERS:
        if time.monotonic() > deadline:
            raise MeasurementError(f"{_read(side).count(b'ready')} of {WORKERS} workers began{child.last_words()}")
        time.sleep(0.05)
    below = children_of_all()
    own, front = [], [child.pid]
    while front:
        own += front
        front = [pid for parent in front for pid in below.get(parent, ()) if len(below.get(pid, ())) >= WORKERS]
    return own


@contextmanager
def _ahead_of_the_others() -> Iterator[None]:
    """Let this reader run before 64 busy writers, for every launcher alike: its own waiting is not the tee's lag."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
        _set_group_priority(-15)
    except OSError:  # not root: then the lag has the reader's waiting in it
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        _set_group_priority(0)


def _set_group_priority(nice: int) -> None:
    if os.path.exists("/proc/self/autogroup"):
        with open("/proc/self/autogroup", "w") as group:
            group.write(str(nice))


def _read_all(child: Child, own: list[int], side: str, go: str, limit_s: float) -> _Heard:
    """Say go and read to the end, doing next to nothing else; the launcher's use is that while everybody writes."""
    chunks: list[tuple[int, bytes]] = []
    began_ns, before = time.monotonic_ns(), usage(own)
    ended_ns, after = began_ns + 1, before
    with open(go, "wb"):
        pass
    deadline = time.monotonic() + limit_s
    look_at = time.monotonic() + _LOOK_EVERY_S
    while (now := time.monotonic()) < deadline:
        chunk = child.read_chunk(look_at - now)
        if chunk is not None and not chunk[1]:
            return _Heard(chunks, *_shares(before, after, ended_ns - began_ns))
        if chunk is not None:
            chunks.append(chunk)
        if now >= look_at:
            look_at = now + _LOOK_EVERY_S
            if b"done" not in _read(side):
                ended_ns, after = time.monotonic_ns(), usage(own)
    raise MeasurementError(f"stdout did not end within {limit_s:.0f} s{child.last_words()}")


def _shares(before: Usage, after: Usage, window_ns: int) -> tuple[float, float]:
    on_cpu, on_queue = after.cpu_ns - before.cpu_ns, after.waited_ns - before.waited_ns
    return on_cpu / window_ns * 100, on_queue / window_ns * 100


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compiled(settings: Settings) -> str:
    program = os.path.join(settings.scratch, "chatty")
    if not os.path.exists(program):
        subprocess.run(["cc", "-O2", "-o", program, script(settings, "chatty.c")], check=True, timeout=60)
    return program


def _why_not(writers: _Writers, _settings: Settings) -> str | None:
    return "there is no C compiler here" if writers.language == "C" and not shutil.which("cc") else None


def _bench(writers: _Writers) -> Bench:
    pace = "a write every ms" if writers.burst == 1 else f"{writers.burst} writes every {writers.burst} ms"
    goal = 100.0 if writers.burst == 1 else None  # bursts are easier than what the goal is about: they only explain
    what = f"tee, {WORKERS} {writers.language} workers, {pace}"
    return Bench(
        name=writers.name,
        title=f"{what}: 1,000 lines of 80 bytes a second each",
        method=f"`-t 3`, {WORKERS} workers in {writers.language}, one write a line, {pace}, each line with the "
        "moment it was written; lag to its arrival at the reader of the launcher's stdout, who parses only "
        "afterwards. One number a round; the launcher's CPU time and its time ready to run but without a CPU are "
        "taken while all write. Floor: the same writers straight into one pipe, which may slow them: see the rate. "
        f"torchrun: rounds of {_PEERS_S:.0f} s.",
        metrics=(
            Metric("lag", f"{what}: median lag", "ms", goal=goal),
            Metric("lag_p99", f"{what}: p99 lag", "ms", goal=goal),
            Metric("lag_max", f"{what}: largest lag", "ms", goal=goal),
            Metric("cpu", f"{what}: CPU of the launcher", "% of a core"),
            Metric("queue", f"{what}: launcher waiting for a CPU", "% of the time, all threads", compared=False),
            Metric("rate", f"{what}: rate the writers reached (1,000 wanted)", "lines/s each", compared=False),
        ),
        measure=partial(_measure, writers),
        floors={"no launcher, one pipe": partial(_without_launcher, writers)},
        skip_reason=partial(_why_not, writers),
    )


BENCHES = tuple(
    _bench(writers)
    for writers in (_Writers("tee-c", "C", 1), _Writers("tee-bursts", "C", 10), _Writers("tee-python", "Python", 1))
)
