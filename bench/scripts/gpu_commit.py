"""Measure commits and restores of one size, in this process; write what was found to a file. Run by bench/gpu.py.

planaria run --nproc-per-node=1 gpu_commit.py SIZE OUTPUT STEPS [device]
"""
# ruff: noqa: SLF001, BLE001  it measures from inside, and one figure that cannot be had must not cost the others

import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress

import torch
import torch.distributed as dist
from gpu_model import batch, build, tensors, train

from planaria.errors import StateRefused
from planaria.worker import ElasticState
from planaria.worker.vault import LocalVault

SIZE, OUTPUT, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cuda"
SMALL = SIZE != "12 GB"
STEP_S = 0.066
found: dict[str, object] = {"size": SIZE, "torch": torch.__version__, "python": sys.version.split()[0]}


def note(name: str, value: object) -> None:
    found[name] = value
    print(f"{name}: {value}", flush=True)
    with open(OUTPUT, "w") as file:
        json.dump(found, file, indent=1)


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "mean": statistics.fmean(ordered),
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[-1 - len(ordered) // 10],
        "most": ordered[-1],
        "n": len(ordered),
    }


def timed(call: Callable[[], object]) -> float:
    synchronize()
    begin = time.perf_counter()
    call()
    synchronize()
    return 1000 * (time.perf_counter() - begin)


class Clock:
    """Moments on the device, in ms; on the CPU, of the program."""

    def __init__(self) -> None:
        self._marks: list[object] = []

    def mark(self) -> None:
        if DEVICE == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def steps(self) -> list[float]:
        synchronize()
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if DEVICE == "cuda":
            return [one.elapsed_time(other) for one, other in pairs]  # type: ignore[attr-defined]
        return [1000 * (other - one) for one, other in pairs]  # type: ignore[operator]


model, optimizer = build(SIZE, DEVICE)
rows = 4
words = batch(SIZE, rows, DEVICE)
for _ in range(3):
    train(model, optimizer, words)


def step_ms() -> float:
    return timed(lambda: [train(model, optimizer, words) for _ in range(5)]) / 5


first = step_ms()
for _ in range(3 if SIZE == "1.6 GB" and DEVICE == "cuda" else 0):  # small batches wait for the CPU: go there by steps
    rows = max(1, round(rows * 1000 * STEP_S / first))
    words = batch(SIZE, rows, DEVICE)
    for _ in range(3):
        train(model, optimizer, words)
    first = step_ms()
bytes_of_state = sum(part.numel() * part.element_size() for part in tensors(model, optimizer))
note("state bytes", bytes_of_state)
note("tensors", len(tensors(model, optimizer)))
note("batch", rows)


def state_here() -> ElasticState:
    """The agent's memory where it lends so much, else this process's: some machines' memory grows only when it is used."""
    state = ElasticState(model=model, optimizer=optimizer, step=0)
    try:
        note("first commit, ms", timed(lambda: state.commit(wait="node")))
        note("vault", type(state._vault).__name__)
    except StateRefused as problem:
        note("agent refused", str(problem))
        state = ElasticState(model=model, optimizer=optimizer, step=0, vault=LocalVault(free_bytes=lambda: 1 << 50))
        note("first commit, ms", timed(lambda: state.commit(wait="node")))
        note("vault", type(state._vault).__name__)
    return state


state = state_here()
note("second commit, ms", timed(lambda: state.commit(wait="node")))
note("third commit, ms", timed(lambda: state.commit(wait="node")))


def run(count: int, *, commits: bool) -> tuple[list[float], list[float]]:
    stalls, clock = [], Clock()
    clock.mark()
    for _ in range(count):
        train(model, optimizer, words)
        if commits:
            state.step += 1
            begin = time.perf_counter()
            state.commit()
            stalls.append(1000 * (time.perf_counter() - begin))
        clock.mark()
    return clock.steps(), stalls


plain: list[float] = []
with_commits: list[float] = []
stalls: list[float] = []
run(5, commits=True)
for turn in range(8):
    steps, found_stalls = run(STEPS // 4 + 1, commits=bool(turn % 2))  # the first of a turn does not count
    (with_commits if turn % 2 else plain).extend(steps[1:])
    stalls += found_stalls
note("step without commits, ms", spread(plain))
note("step with a commit each, ms", spread(with_commits))
note("step time more, %", 100 * (statistics.fmean(with_commits) / statistics.fmean(plain) - 1))
note("step time more by medians, %", 100 * (statistics.median(with_commits) / statistics.median(plain) - 1))
note("commit() call, ms", spread(stalls))


def with_waits(count: int) -> list[float]:
    """The call in a program that waits for its loss in every step, so that it never runs ahead of the device."""
    calls = []
    for _ in range(count):
        train(model, optimizer, words).item()
        state.step += 1
        begin = time.perf_counter()
        state.commit()
        calls.append(1000 * (time.perf_counter() - begin))
    return calls


note("commit() call behind loss.item(), ms", spread(with_waits(STEPS // 5)))


def parts_of_a_call() -> dict[str, float]:
    """Where the time of a commit() call goes, each measured by itself."""
    from planaria.worker import capture
    from planaria.worker.readiness import marks_of

    state.commit(wait="node")
    before = state._captured
    walks = [timed(lambda: capture.Captured(state._kept_here(), before=before)) for _ in range(20)]
    near = state._runway.near
    hasty = [timed(lambda: capture.Captured(state._kept_here(), before=before, near=near)) for _ in range(20)]
    ready = [timed(lambda: marks_of(before.tensors() or [])) for _ in range(20)] if before else [0.0]
    sealer = state._sealer
    given = [timed(lambda: sealer.submit(int)) for _ in range(20)] if sealer else [0.0]
    whole = [timed(lambda: capture.Captured(state._kept_here())) for _ in range(5)]
    opens = [timed(lambda: state._vault.open(before.layout.size_bytes)) for _ in range(20)] if before else [0.0]
    found = {"walk again": min(walks), "walk again, median": statistics.median(walks), "whole walk": min(whole)}
    found |= {"walk in haste, median": statistics.median(hasty), "made ready, median": statistics.median(ready)}
    return found | {"open": statistics.median(opens), "giving to the thread": statistics.median(given)}


with suppress(Exception):
    note("parts of a call, ms", parts_of_a_call())
note("synchronous commit, ms", spread([timed(lambda: state.commit(wait="node")) for _ in range(20 if SMALL else 8)]))


def parts_of_a_flight() -> dict[str, float]:
    """Where the time of the sealing thread goes."""
    from planaria.worker import flight
    from planaria.worker import state as states

    found: dict[str, list[float]] = {}

    def watch(owner: object, name: str) -> tuple[object, str, object]:
        whole = getattr(owner, name)

        def timed_call(*args: object, **named: object) -> object:
            begin = time.perf_counter()
            try:
                return whole(*args, **named)
            finally:
                found.setdefault(name, []).append(1000 * (time.perf_counter() - begin))

        setattr(owner, name, timed_call)
        return owner, name, whole

    device = state._runway.device
    kept = [
        *(watch(flight.Flight, name) for name in ("issue", "digests", "land")),
        *(watch(flight.Gather, name) for name in ("ask", "spread")),
        watch(flight.Pad, "large"),
        *(watch(type(device), name) for name in ("register", "copy_many", "sum_blocks")),
        *(watch(states.snapshots, name) for name in ("write_table", "write_header")),
        watch(type(state._vault), "open"),
        watch(type(state._vault), "wait"),
    ]
    for _ in range(10 if SMALL else 4):
        state.commit(wait="node")
    for owner, name, whole in kept:
        setattr(owner, name, whole)
    return {name: statistics.median(times) for name, times in found.items()}


if DEVICE == "cuda":
    try:
        note("parts of a synchronous commit, ms", parts_of_a_flight())
    except Exception as problem:
        note("parts of a synchronous commit, ms", repr(problem))

# What is restored is what was committed, however training went on meanwhile.
same, restores = [], []
for _ in range(5 if SIZE == "1.6 GB" else 2):
    train(model, optimizer, words)
    state.step += 1
    wanted = [part.clone() for part in tensors(model, optimizer)]
    state.commit()
    for _ in range(3):
        train(model, optimizer, words)
    restores.append(timed(state.restore))
    same.append(all(torch.equal(one, other) for one, other in zip(wanted, tensors(model, optimizer), strict=True)))
    del wanted
note("restored bytes are the committed ones", all(same))
note("restore in this process, ms", spread(restores))


def digests() -> dict[str, float]:
    from planaria.contract.snapshot import BLOCK_BYTES
    from planaria.worker.device import Cuda, block_sums

    device = Cuda(0)
    large = [part for part in tensors(model, optimizer) if part.numel() * part.element_size() >= BLOCK_BYTES]
    blocks = device.blocks(large)
    begin = time.perf_counter()
    device._kernel.launch(blocks, torch.cuda.current_stream().cuda_stream)
    first_ms = 1000 * (time.perf_counter() - begin)
    by_groups = {}
    for groups in (device._kernel.groups, 16, 132, 264):  # how much of the device it takes, the one that is used first
        device._kernel.groups = groups
        by_groups[f"kernel, {groups} groups"] = min(timed(lambda: device.sum_blocks(blocks, large)) for _ in range(5))
    wanted = torch.cat([block_sums(part) for part in large])
    return {
        "kernel, first": first_ms,
        **by_groups,
        "torch's operations": min(timed(lambda: [block_sums(part) for part in large]) for _ in range(3)),
        "kernel is right": float(torch.equal(wanted, blocks.sums)),
    }


def moves() -> dict[str, float]:
    """Ways to bring shared memory onto the device and back, GB/s, for 1.6 GB that another mapping has touched."""
    from planaria.worker.bounce import Bounce

    count = 1 << 30
    descriptor = os.memfd_create("bench")
    os.ftruncate(descriptor, count)
    one = torch.frombuffer(memoryview(mmap.mmap(descriptor, count)), dtype=torch.uint8)
    fresh_s = timed(lambda: one.fill_(3)) / 1000
    target = torch.empty(count, dtype=torch.uint8, device=DEVICE)
    found = {"touch": fresh_s}

    def mapping() -> torch.Tensor:
        return torch.frombuffer(memoryview(mmap.mmap(descriptor, count)), dtype=torch.uint8)

    found["pageable, new mapping"] = timed(lambda: target.copy_(mapping())) / 1000
    found["pinning for the bounce"] = 0.0
    begin = time.perf_counter()
    bounce = Bounce(target.device)
    found["pinning for the bounce"] = time.perf_counter() - begin
    found["bounce, new mapping"] = timed(lambda: bounce.send([(target, mapping())])) / 1000
    again = mapping()
    found["register, new mapping"] = (
        timed(lambda: torch.cuda.cudart().cudaHostRegister(again.data_ptr(), count, 0)) / 1000
    )
    found["registered, up"] = timed(lambda: target.copy_(again, non_blocking=True)) / 1000
    found["registered, down"] = timed(lambda: again.copy_(target, non_blocking=True)) / 1000
    found["unregister"] = timed(lambda: torch.cuda.cudart().cudaHostUnregister(again.data_ptr())) / 1000
    os.close(descriptor)
    return {name: count / 1e9 / seconds if seconds else 0.0 for name, seconds in found.items()}


if DEVICE == "cuda":
    for name, call in (("digests, ms", digests), ("moves, GB/s", moves)):
        try:
            note(name, call())
        except Exception as problem:
            note(name, repr(problem))


def beside(name: str, call: Callable[[str], object], count: int) -> None:
    """Another way to save the same state: the stall, and what the next steps cost."""
    stalls, after = [], []
    for _ in range(count):
        folder = tempfile.mkdtemp(dir="/dev/shm" if shutil.disk_usage("/dev/shm").free > 3 * bytes_of_state else None)
        try:
            synchronize()
            begin = time.perf_counter()
            future = call(folder)
            stalls.append(1000 * (time.perf_counter() - begin))
            after += run(5, commits=False)[0]
            if hasattr(future, "result"):
                future.result()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    note(f"{name}: stall, ms", spread(stalls))
    note(f"{name}: the steps after it, ms", spread(after))


def everything() -> dict[str, object]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def with_dcp(folder: str) -> object:
    from torch.distributed.checkpoint import async_save
    from torch.distributed.checkpoint.state_dict import get_state_dict

    parts = get_state_dict(model, optimizer)
    return async_save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=folder)


count = 3 if SIZE == "1.6 GB" else 1
beside("torch.save", lambda folder: torch.save(everything(), f"{folder}/all.pt"), count)
try:
    dist.init_process_group("cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo")
    beside("torch.distributed.checkpoint.async_save", with_dcp, count)
    dist.destroy_process_group()
except Exception as problem:
    note("torch.distributed.checkpoint.async_save", repr(problem))
note("complete", True)
