"""Build a model, join, say `begin ...`; say `ready ...` after the first step with DDP and AdamW, and go on until killed."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from planaria import worker


def say(word: str) -> None:
    now = time.monotonic_ns()
    names = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    os.write(1, f"{word} {' '.join(os.environ[name] for name in names)} {os.getpid()} {now}\n".encode())


model = torch.nn.Linear(64, 64)
worker.join()
say("begin")
dist.init_process_group("gloo")
parallel = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(parallel.parameters())  # imports torch._dynamo, which takes as long as torch itself


def step() -> None:
    parallel(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


step()
say("ready")
while True:
    step()
    time.sleep(0.02)
