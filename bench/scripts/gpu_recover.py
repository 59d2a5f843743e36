"""Train on a GPU with a process group of one, and say when what was done. Killed by bench/gpu.py.

gpu_recover.py join|plain|disk SIZE FOLDER [device]
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def say(word: str, number: int = 0) -> None:
    os.write(1, f"@ {word} {os.getpid()} {time.monotonic_ns()} {number}\n".encode())


say("begin")
WAY, SIZE, FOLDER = sys.argv[1:4]
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cuda"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from gpu_model import batch, build, gradients, train  # noqa: E402

say("imported")
from planaria.worker import ElasticState, join  # noqa: E402

EVERY = 20  # steps between checkpoints on disk
ROWS = {"1.6 GB": 20, "12 GB": 2, "tiny": 2}[SIZE]


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def warm_up() -> None:
    """What the first step would pay for: loading the kernels for these shapes. Parameters stay as they are."""
    small, its_optimizer = build("tiny", DEVICE)
    train(small, its_optimizer, batch("tiny", 2, DEVICE))
    gradients(model, words)
    optimizer.zero_grad(set_to_none=True)
    synchronize()


model, optimizer = build(SIZE, DEVICE)
words = batch(SIZE, ROWS, DEVICE)
state = ElasticState(model=model, optimizer=optimizer, step=0) if WAY != "disk" else None
if WAY == "join":
    warm_up()
    assert state is not None
    state.prepare()
    synchronize()
    join()
say("built")
device = torch.device("cuda", torch.cuda.current_device()) if DEVICE == "cuda" else None
# The state comes back while NCCL starts: most of that is waiting, and neither needs the other.
restoring = ThreadPoolExecutor(1).submit(state.restore) if state is not None else None
dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", device_id=device)
dist.all_reduce(torch.ones(1, device=DEVICE))
synchronize()
say("group")
path = f"{FOLDER}/checkpoint.pt"
step = 0
if state is not None and restoring is not None:
    restoring.result()
    step = state.step
elif os.path.exists(path):
    found = torch.load(path, map_location=DEVICE, weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    step = found["step"]
synchronize()
say("restored", step)
first = True
while True:
    train(model, optimizer, words)
    step += 1
    if first:
        synchronize()
        say("stepped", step)
        first = False
    if state is not None:
        state.step = step
        state.commit(wait="node" if step % 5 == 0 else None)
        if step % 5 == 0:
            say("kept", step)
    elif step % EVERY == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
        say("kept", step)
