"""What tests have for the program of KubeDL's tutorial: it takes the same words, and prints the same lines.

It trains a small model with torch, and waits for each sample. All workers share a batch: so a step, which is dominated by these
waits, truly takes less time with more workers, whatever the number of processors. What is told is what it took by the clock.
With `--pace` nothing is trained and nobody needs torch: a step takes so many seconds with one worker, with two, and so on.

It goes on from its checkpoint, and makes no step before there is a file `begin` beside that.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from pathlib import Path

STEPS = 1000  # of an epoch
SAVE_STEPS = 5
FEATURES, CLASSES = 32, 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--arch")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--print-freq", type=int)
    parser.add_argument("--checkpoint-file", type=Path)
    parser.add_argument("--wait", type=float, default=0.05, help="seconds for each sample")
    parser.add_argument("--pace", type=float, nargs="*", help="seconds of a step with one worker, with two, ...")
    options = parser.parse_args()
    assert os.path.isdir(options.data)
    if options.pace:
        pace(options)
    else:
        train(options)


def begin(options: argparse.Namespace) -> None:
    while not options.checkpoint_file.with_name("begin").exists():
        time.sleep(0.05)  # the test tells by a file, on a volume of another machine


def tell(step: int, took_s: float, data_s: float = 0.0, loss: float = 0.0) -> None:
    times = (f"{name}{seconds:7.3f} ({seconds:6.3f})" for name, seconds in (("Time", took_s), ("Data", data_s)))
    print(f"Epoch: [{step // STEPS}][{step % STEPS:4d}/{STEPS}]", *times, f"Loss {loss:.4e}", sep="\t", flush=True)


def pace(options: argparse.Namespace) -> None:
    seconds = options.pace[int(os.environ["WORLD_SIZE"]) - 1]
    begin(options)
    for step in itertools.count():
        time.sleep(seconds)  # what a step takes: that is what is measured
        tell(step, seconds)


def train(options: argparse.Namespace) -> None:
    """Neither DistributedDataParallel nor an optimizer: both import torch's compiler, which takes as long as torch itself."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    share = -(-options.batch_size // dist.get_world_size())
    weights = torch.zeros(FEATURES, CLASSES, requires_grad=True)
    first = 0
    if options.checkpoint_file.exists():
        kept = torch.load(options.checkpoint_file, weights_only=True)
        first = kept["step"] + 1
        weights.data.copy_(kept["weights"])
    begin(options)
    for step in range(first, options.epochs * STEPS):
        began = time.monotonic()
        time.sleep(options.wait * share)  # what reading takes, one sample after the other: that is what is measured
        read_s = time.monotonic() - began
        images, labels = torch.randn(share, FEATURES), torch.randint(CLASSES, (share,))
        loss = torch.nn.functional.cross_entropy(images @ weights, labels)
        (gradient,) = torch.autograd.grad(loss, weights)
        dist.all_reduce(gradient)
        weights.data.sub_(gradient, alpha=0.1 / dist.get_world_size())
        if step % options.print_freq == 0:
            tell(step, time.monotonic() - began, read_s, loss.item())
        if step % SAVE_STEPS == 0 and dist.get_rank() == 0:
            half = options.checkpoint_file.with_suffix(".half")
            torch.save({"step": step, "weights": weights.data}, half)
            half.rename(options.checkpoint_file)


if __name__ == "__main__":
    main()
