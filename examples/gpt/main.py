"""Train a small GPT whose parameters are sharded over ranks (FSDP2). Kill whatever you like: it goes on from its last commit.

    planaria run --standalone --nproc-per-node=2 --max-restarts=100 examples/gpt/main.py --commits=/tmp/gpt

It learns to write like its own source, letter by letter. Parameters and the optimizer's state lie in shards, so they are kept
in the folder of `--commits` and not in memory, by torch.distributed.checkpoint, every `--commit-every` steps and in the
background; a model as small as this one has the time to do so after each step. A commit can be read in a world of any size: run
it with 2 workers, then with 1 or 3.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planaria import worker
from planaria.worker.data import ElasticSampler, weighted

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS = 4


class Layer(nn.Module):
    """Attention to what came before, then a small network, each added to what it got."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Return what this layer makes of the letters seen so far."""
        batch, length, width = seen.shape
        asked = self.ask(self.first(seen)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(asked[0], asked[1], asked[2], is_causal=True)
        seen = seen + self.answer(found.transpose(1, 2).reshape(batch, length, width))
        return seen + self.think(self.second(seen))


class GPT(nn.Module):
    """Letters in, the scores of each next letter out."""

    def __init__(self, letters: int, length: int, width: int, depth: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Return scores for every place at once."""
        seen = self.letter(letters) + self.place(torch.arange(letters.shape[1], device=letters.device))
        for layer in self.layers:
            seen = layer(seen)
        return self.head(self.norm(seen))


def sharded(model: GPT, device: str) -> GPT:
    """Let every rank keep its part of each parameter: layer by layer, then the rest."""
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def checksum(model: nn.Module) -> str:
    """Return a digest of the whole weights: a collective call, since every rank has a part."""
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(parameter.full_tensor().detach().cpu().numpy().tobytes())
    return total.hexdigest()[:16]


def at_least(least: float) -> Callable[[str], float]:
    """Return how to read a number that is not lower, a whole one where `least` is: argparse says in a sentence if it is not."""
    wanted = f"a {'whole ' if isinstance(least, int) else ''}number from {least} on"

    def number(text: str) -> float:
        try:
            found = type(least)(text)
        except ValueError:
            found = -1
        if not least <= found < float("inf"):
            raise argparse.ArgumentTypeError(f"expects {wanted}, got {text!r}")
        return found

    return number


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="a small GPT with FSDP2")
    parser.add_argument(
        "--commits", metavar="DIR", default="gpt-commits", help="where the state is kept; all nodes share it"
    )
    parser.add_argument("--commit-every", type=at_least(1), default=1, help="steps")
    parser.add_argument("--epochs", type=at_least(1), default=1)
    parser.add_argument("--batch-size", type=at_least(1), default=8, help="texts of a rank in a step")
    parser.add_argument("--length", type=at_least(1), default=32, help="letters of a text")
    parser.add_argument("--width", type=at_least(1), default=64)
    parser.add_argument("--depth", type=at_least(1), default=2)
    parser.add_argument("--steps", type=at_least(1), default=60, help="of an epoch, with two ranks")
    parser.add_argument("--print-freq", type=at_least(1), default=5)
    return parser.parse_args()


def met() -> str:
    """Meet the other ranks; return the device of this one."""
    on_gpu = torch.cuda.is_available()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    return device


def main() -> None:
    """Train; rank 0 tells how it goes."""
    args = arguments()
    text = torch.frombuffer(bytearray(Path(__file__).read_bytes()), dtype=torch.uint8).long()
    torch.manual_seed(1)  # the same beginning on every rank, in every world
    model = GPT(256, args.length, args.width, args.depth)

    worker.join()  # a standby has come to here before it is needed
    if "RANK" not in os.environ:
        sys.exit("start me with: planaria run --standalone --nproc-per-node=2 --max-restarts=100 " + sys.argv[0])
    device = met()
    rank = dist.get_rank()
    model = sharded(model.to(device), device.partition(":")[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.steps)
    torch.manual_seed(100 + rank)  # dropout is each rank's own
    sampler = ElasticSampler(args.steps * 2 * args.batch_size, args.batch_size, seed=7)
    parts = {"optimizer": optimizer, "scheduler": scheduler, "sampler": sampler}
    state = worker.ShardedState(args.commits, model=model, **parts, step=0)
    epochs = sampler.epochs(args.epochs)
    batches = (batch for _ in epochs for batch in sampler.count())

    def step(state: worker.ShardedState) -> torch.Tensor:
        starts = torch.tensor(next(batches), dtype=torch.int64) * 7 % (len(text) - args.length - 1)
        letters = text[starts[:, None] + torch.arange(args.length + 1)].to(device)
        scores = model(letters[:, :-1])
        loss = weighted(nn.functional.cross_entropy(scores.flatten(0, 1), letters[:, 1:].flatten()), sampler.portion)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and state.step % args.print_freq == 0:
            print(f"epoch: {sampler.epoch}, iteration: {state.step}, loss: {loss.item():.4f}", flush=True)
        return loss.detach()

    worker.train_loop(state, step, commit_every=args.commit_every)
    total = checksum(model)
    if rank == 0:
        print(f"finished after step {state.step}: weights {total}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
