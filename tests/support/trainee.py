"""The training of every campaign: a model of 10 M parameters under DDP that notes all it does. A crew's job; see `crew.py`.

    python job.py --samples 168 --epochs 2 --global-batch 16 --waits node,buddy

What it notes, one line each (`notes.py`), always before the commit that makes it count:

    step    the step's number, epoch, loss, and of each sample this rank had: index and what its augmentation drew
    digest  at the end of an epoch: of weights with buffers, optimizer, schedule and random numbers
    kept    a step whose commit has reached a tier, after the wait for it

A step that was computed in two lives was noted twice: the later one counts.
With `--joins` a standby runs it up to here, with torch imported: the notes ask for the rank.
"""

import sys

if "--joins" in sys.argv:
    import torch

    from planaria import worker

    worker.join()

from notes import *  # noqa: F403  isort: skip
import argparse
import hashlib
import os
import random
import time
import warnings
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from notes import RANK, ROOM, WORLD, note, stamp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from planaria import worker
from planaria.worker import ElasticState
from planaria.worker.data import ElasticSampler, accumulating, weighted

TOKENS, CLASSES, WIDTH = 4, 8, 256
WORDS = 40_000  # times WIDTH: 10.2 M parameters in a layer that is cheap to run


class Texts:
    """Samples that follow from their index, then augmented by all three global generators."""

    def __init__(self, samples: int, words: int) -> None:
        self._samples = samples
        self._words = words

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[int, float, torch.Tensor, int]:
        rng = np.random.default_rng(int(index))
        label = int(index) % CLASSES
        words = torch.from_numpy(rng.integers(0, 40, TOKENS) * CLASSES + label)
        drawn = random.random() + np.random.rand() + torch.rand(1).item()
        words[random.randrange(TOKENS)] = np.random.randint(self._words)  # one word is replaced by another
        return int(index), drawn, words, label


def build(words: int, norm: str) -> nn.Module:
    return nn.Sequential(
        nn.Embedding(words, WIDTH),
        nn.Flatten(),
        nn.Linear(TOKENS * WIDTH, 64),
        nn.BatchNorm1d(64) if norm == "batch" else nn.LayerNorm(64),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(64, CLASSES),
    )


def told() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name, usual in (("samples", 168), ("epochs", 2), ("batch", 8), ("global-batch", 16), ("loaders", 4)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--norm", choices=("batch", "layer"), default="batch")
    until = "until a change is announced, or there is `hurry`"
    parser.add_argument("--stays", type=int, default=0, help=f"wait after so many steps of a life {until}")
    parser.add_argument("--meets", default="", help=f"wait after these steps, as 20,40, {until}")
    parser.add_argument("--keeps-buckets", action="store_true", help="DDP that does not rebuild its buckets")
    parser.add_argument("--joins", action="store_true", help="let standbys come to where the rank is needed")
    parser.add_argument("--waits", default="node", help="what commits wait for, in turn: none,node,buddy,disk")
    return parser.parse_args()


class Training:
    """One life of the run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        torch.manual_seed(1)
        # DDP that looks for unused parameters never rebuilds its buckets: see "Bit by bit" in docs/state.md.
        self.model = DistributedDataParallel(
            build(options.words, options.norm), find_unused_parameters=options.keeps_buckets
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.002)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 400)
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(100 + RANK)
        data = Texts(options.samples, options.words)
        self.sampler = ElasticSampler(data, options.batch, seed=5, global_batch=options.global_batch)
        self.loader = self.sampler.count(
            DataLoader(
                self.sampler.seeded(data),
                batch_sampler=self.sampler,
                num_workers=options.loaders,
                persistent_workers=options.loaders > 0,
            )
        )
        self.state = ElasticState(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, sampler=self.sampler, step=0
        )
        self._samples: list[tuple[int, str]] = []
        self._loss = 0.0
        self._began = 0

    def run(self) -> None:
        synced = self.state.sync()
        note("met", step=self.state.step, synced=synced.stamp is not None)
        self._began = self.state.step
        for epoch in self.sampler.epochs(self.options.epochs):
            for batch in self.loader:
                portion = self.loader.portion
                self._turn(batch, portion)
                if portion.closes and self._close(epoch):
                    note("left", step=self.state.step)
                    worker.leave()
        note("ended", step=self.state.step)

    def _turn(self, batch: Any, portion: Any) -> None:
        index, drawn, words, label = batch
        self._samples += [(one, value.hex()) for one, value in zip(index.tolist(), drawn.tolist(), strict=True)]
        with accumulating(self.model, portion):
            loss = weighted(nn.functional.cross_entropy(self.model(words), label), portion)
            self._loss += loss.item() / WORLD
            (loss * (1 + random.random() * np.random.rand() / 8)).backward()  # the loop's own random numbers matter

    def _close(self, epoch: int) -> bool:
        """End a step; tell whether to leave, all ranks alike."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        state = self.state
        state.step += 1
        loss = torch.tensor(self._loss, dtype=torch.float64)
        dist.all_reduce(loss)
        note("step", step=state.step, epoch=epoch, loss=loss.item(), samples=self._samples)
        self._samples, self._loss = [], 0.0
        if not self.sampler.steps_left:
            note("digest", epoch=epoch, **self.digests())
        waits = self.options.waits.split(",")
        wait = waits[state.step % len(waits)]
        reached = state.commit(wait=None if wait == "none" else wait).reached
        if reached:
            note("kept", step=state.step, tier=reached)
        stamp()
        worker.report_progress(state.step)
        stays = 0 < self.options.stays <= state.step - self._began
        while (stays or str(state.step) in self.options.meets.split(",")) and not has_notice():
            time.sleep(0.01)  # what the test does now happens at this step, however long it takes
        return worker.should_stop()

    def digests(self) -> dict[str, str]:
        optimizer = [part for one in self.optimizer.state.values() for part in one.values()]
        mine = [random.getstate(), np.random.get_state(), torch.get_rng_state().tolist()]
        return {
            "weights": digest(self.model.state_dict().values()),
            "optimizer": digest(optimizer),
            "random": hashlib.sha256(repr(mine).encode()).hexdigest(),
            "schedule": repr(self.scheduler.state_dict()),
        }


def has_notice() -> bool:
    """Tell whether nodes come or go, or this one ends; or nobody will."""
    return bool(worker.resize_notice() or worker.drain_notice()) or os.path.exists(f"{ROOM}/hurry")


def digest(tensors: Any) -> str:
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def main() -> None:
    warnings.filterwarnings("ignore", "This DataLoader will create")  # more loaders than cores, on purpose
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    try:
        Training(told()).run()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
