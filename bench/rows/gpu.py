"""One GPU and 1.6 GB of state: kill -9 of the worker to its next step, and what a commit takes from the training."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import partial
from typing import TYPE_CHECKING

from harness.gpu_lives import environment, has_stepped, lives, ways_of
from harness.model import OURS, Bench, MeasurementError, Metric, Sample

from rows.launch import script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_DEVICE = "/dev/nvidiactl"
_STEPS = 60
_COMMIT_S = 300.0
_FIGURES = {
    "call": "commit() call, ms",
    "call_behind": "commit() call behind loss.item(), ms",
    "wait": "synchronous commit, ms",
    "longer": "step time more, %",
    "save": "torch.save: stall, ms",
    "async_save": "torch.distributed.checkpoint.async_save: stall, ms",
}


def _model(settings: Settings) -> tuple[str, tuple[str, ...]]:
    return ("tiny", ("cpu",)) if settings.tiny else ("1.6 GB", ())


def _kill(kind: str, launcher: Launcher, settings: Settings) -> Sample:
    """Kill the worker several times. A launcher without a state of its own goes back to its checkpoint on disk."""
    way = next(one for one in ways_of([launcher]) if one.kind == (kind if one.is_ours else "disk"))
    size, device = _model(settings)
    with tempfile.TemporaryDirectory(dir=settings.scratch) as folder:
        words = (script(settings, "gpu_recover.py"), way.kind, size, folder, *device)
        found = lives([*way.command, *words], settings.kills_per_launch)
    came_back = sum(map(has_stepped, found))
    if came_back < settings.kills_per_launch:
        raise MeasurementError(
            f"{came_back} of {settings.kills_per_launch} kills came to a step, {len(found) - came_back} did not"
        )
    lost = sum(one.get("kept steps lost", 0) for one in found)
    facts = {"steps lost that were kept": f"{lost:.0f}"}
    if way.is_ours:
        facts["had a standby"] = f"{sum(one['stood by'] for one in found):.0f} of {len(found)}"
    return Sample({"step": [one["stepped"] for one in found], "group": [one["group"] for one in found]}, facts)


def _commit(launcher: Launcher, settings: Settings) -> Sample:
    """Take the medians that one process finds."""
    size, device = _model(settings)
    output = os.path.join(settings.scratch, "commits.json")
    words = (script(settings, "gpu_commit.py"), size, output, str(8 if settings.tiny else _STEPS), *device)
    argv = (*launcher.command, "--nproc-per-node=1", "--max-restarts=0", *words)
    done = subprocess.run(argv, env=environment(), stdout=subprocess.DEVNULL, timeout=_COMMIT_S, check=False)
    if done.returncode != 0:
        raise MeasurementError(f"exit status {done.returncode}")
    with open(output, encoding="utf-8") as file:
        found = json.load(file)
    medians = {
        key: found[name]["median"] if isinstance(found[name], dict) else found[name]
        for key, name in _FIGURES.items()
        if name in found
    }
    return Sample(
        {key: [float(value)] for key, value in medians.items()},
        {"restored bytes are the committed ones": str(found.get("restored bytes are the committed ones"))},
    )


def _why_not(settings: Settings) -> str | None:
    return None if settings.tiny or os.path.exists(_DEVICE) else "no NVIDIA GPU is here"


_METHOD = (
    "one rank with 1.6 GB of AdamW state commits at every step; kill -9 once a standby is ready, several kills a launch, to "
    "the first step of the next life. Another launcher than planaria saves a checkpoint to disk every 20 steps, and goes back "
    "to it."
)
BENCHES = (
    Bench(
        name="gpu-kill-join",
        title="GPU: kill -9 of the worker → next step, script with `join()`",
        method=f"`--standbys=auto`; {_METHOD}",
        metrics=(
            Metric("step", "GPU, 1.6 GB: kill -9 of the worker → next step, script with `join()`", "s", goal=0.7),
            Metric("group", "… → process group ready", "s"),
        ),
        measure=partial(_kill, "join"),
        few_rounds=3,
        skip_reason=_why_not,
    ),
    Bench(
        name="gpu-kill-plain",
        title="GPU: kill -9 of the worker → next step, script without `join()`",
        method=f"`--standbys=auto`, the same without `join()`: {_METHOD}",
        metrics=(
            Metric("step", "GPU, 1.6 GB: kill -9 of the worker → next step, without `join()`", "s", goal=3.5),
            Metric("group", "… → process group ready, without `join()`", "s"),
        ),
        measure=partial(_kill, "plain"),
        only=frozenset({OURS}),
        skip_reason=_why_not,
    ),
    Bench(
        name="gpu-commit",
        title="GPU: what a commit of 1.6 GB takes",
        method=f"each round is a process, whose medians of {_STEPS} steps or more count; what torch itself offers is measured "
        "in the same process. `bench/gpu.py commits` tells all it finds, and of 12 GB.",
        metrics=(
            Metric("call", "GPU, 1.6 GB: stall of a commit, copied beside the program", "ms", goal=1.0),
            Metric("call_behind", "… in a program that waits for its loss in every step", "ms", goal=1.0),
            Metric("wait", "GPU, 1.6 GB: stall of a commit that is waited for", "ms", goal=32.0),
            Metric("longer", "GPU, 1.6 GB: step with a commit in each, longer by", "%", goal=1.0),
            Metric("save", "beside it: stall of `torch.save`", "ms", compared=False),
            Metric("async_save", "beside it: stall of `async_save`", "ms", compared=False),
        ),
        measure=_commit,
        only=frozenset({OURS}),
        skip_reason=_why_not,
    ),
)
