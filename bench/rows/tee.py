"""64 workers that talk: is every line shown, whole and in order, and how late."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.children import LIMIT_S, Child
from harness.model import Bench, MeasurementError, Metric, Sample
from harness.processes import children_of_all, usage
from harness.stats import quantile

from rows.launch import script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

WORKERS = 64
_LOOK_EVERY_S = 0.2
_TORCHRUN_S = 2.0  # it needs minutes for what it could not show in time


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the reader of the launcher's stdout saw."""

    lags_ms: list[float]
    next_number: dict[int, int]
    disordered: int
    torn: int


def _measure(kind: str, launcher: Launcher, settings: Settings) -> Sample:
    side, go, logs = (os.path.join(settings.scratch, f"tee-{name}") for name in ("side", "go", "logs"))
    with open(side, "wb"):
        pass
    seconds = min(settings.tee_s, _TORCHRUN_S) if launcher.name == "torchrun" else settings.tee_s
    writer = ("--no-python", _compiled(settings)) if kind == "C" else (script(settings, "chatty.py"),)
    flags = ("--standalone", f"--nproc-per-node={WORKERS}", "-t", "3", "--log-dir", logs)
    argv = (*launcher.command, *flags, *writer, side, go, str(round(seconds * 1000)))
    try:
        with Child(argv, settings.scratch) as child:
            own = _wait_until_ready(child, side)
            chunks, busy_percent = _read_all(child, own, side, go, LIMIT_S + seconds)
            child.expect_success()
        done = _done(side)
        return _judge(_parse(chunks), done, busy_percent)
    finally:
        if os.path.exists(go):
            os.unlink(go)
        shutil.rmtree(logs, ignore_errors=True)


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


def _read_all(
    child: Child, own: list[int], side: str, go: str, limit_s: float
) -> tuple[list[tuple[int, bytes]], float]:
    """Say go and read to the end, doing nothing else than that; return the chunks and the launcher's CPU use."""
    chunks: list[tuple[int, bytes]] = []
    began_ns, before = time.monotonic_ns(), usage(own)
    busy_percent = 0.0
    with open(go, "wb"):
        pass
    deadline = time.monotonic() + limit_s
    look_at = time.monotonic() + _LOOK_EVERY_S
    while (now := time.monotonic()) < deadline:
        chunk = child.read_chunk(look_at - now)
        if chunk is not None and not chunk[1]:
            return chunks, busy_percent
        if chunk is not None:
            chunks.append(chunk)
        if now >= look_at:
            look_at = now + _LOOK_EVERY_S
            if b"done" not in _read(side):  # while everybody writes
                busy_percent = (usage(own).cpu_ns - before.cpu_ns) / (time.monotonic_ns() - began_ns) * 100
    raise MeasurementError(f"stdout did not end within {limit_s:.0f} s{child.last_words()}")


def _parse(chunks: list[tuple[int, bytes]]) -> _Shown:
    """Take the stream apart: `[default3]:3 17 123456789 ....` is line 17 of rank 3, written at that moment."""
    lags: list[float] = []
    next_number: dict[int, int] = {}
    disordered = torn = 0
    partial_line = b""
    for arrived_ns, data in chunks:
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            prefix, _, text = line.partition(b"]:")
            words = text.split()
            if len(text) != 79 or len(words) != 4 or prefix != b"[default" + words[0]:
                torn += 1
                continue
            rank, number = int(words[0]), int(words[1])
            disordered += number != next_number.get(rank, 0)
            next_number[rank] = number + 1
            lags.append((arrived_ns - int(words[2])) / 1e6)
    return _Shown(sorted(lags), next_number, disordered, torn + bool(partial_line))


def _judge(shown: _Shown, done: dict[int, tuple[int, int]], busy_percent: float) -> Sample:
    written = sum(count for count, _ in done.values())
    if not shown.lags_ms:
        raise MeasurementError("no line was shown")
    missing = written - len(shown.lags_ms)
    is_good = len(done) == WORKERS and not (missing or shown.disordered or shown.torn)
    flaws = f"no: {missing:,} missing, {shown.disordered:,} out of order, {shown.torn:,} not whole"
    return Sample(
        {
            "lag": [quantile(shown.lags_ms, 0.5)],
            "lag_p99": [quantile(shown.lags_ms, 0.99)],
            "lag_max": [shown.lags_ms[-1]],
            "cpu": [busy_percent],
            "rate": [sum(count / elapsed_ns * 1e9 for count, elapsed_ns in done.values()) / WORKERS],
        },
        {"every line shown, whole, in order": "yes" if is_good else flaws},
    )


def _done(side: str) -> dict[int, tuple[int, int]]:
    """Return by rank how many lines each worker wrote, and in which time."""
    lines = (line.split() for line in _read(side).splitlines() if line.startswith(b"done "))
    return {int(rank): (int(count), int(elapsed_ns)) for _, rank, count, elapsed_ns in lines}


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _compiled(settings: Settings) -> str:
    program = os.path.join(settings.scratch, "chatty")
    if not os.path.exists(program):
        subprocess.run(["cc", "-O2", "-o", program, script(settings, "chatty.c")], check=True, timeout=60)
    return program


def _no_compiler(_settings: Settings) -> str | None:
    return None if shutil.which("cc") else "there is no C compiler here"


def _bench(kind: str) -> Bench:
    what = f"tee of {WORKERS} {kind} workers"
    return Bench(
        name=f"tee-{kind.lower()}",
        title=f"{what}, 1,000 lines of 80 bytes a second each",
        method=f"`-t 3`, {WORKERS} workers in {kind}, one write a line, paced to 1 ms, each line with the moment it was "
        "written; lag to its arrival at the reader of the launcher's stdout, who parses only afterwards. Each number is "
        f"of one round; CPU of the launcher while all write. torchrun: one round of {_TORCHRUN_S:.0f} s.",
        metrics=(
            Metric("lag", f"{what}: median lag", "ms", goal=100.0),
            Metric("lag_p99", f"{what}: p99 lag", "ms", goal=100.0),
            Metric("lag_max", f"{what}: largest lag", "ms", goal=100.0),
            Metric("cpu", f"{what}: CPU of the launcher", "% of a core"),
            Metric("rate", f"{what}: rate the writers reached (1,000 wanted)", "lines/s each", compared=False),
        ),
        measure=partial(_measure, kind),
        once=frozenset({"torchrun"}),
        skip_reason=_no_compiler if kind == "C" else lambda _settings: None,
    )


BENCHES = (_bench("C"), _bench("Python"))
