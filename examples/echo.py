"""Print what the agent told this worker, then form a process group with the others.

    planaria run --standalone --nproc-per-node=2 examples/echo.py

The same file runs under torchrun. Without torch it prints the environment and leaves out the process group.
"""

from __future__ import annotations

import os
import pprint
import sys

NAMES = (
    "GROUP_RANK",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "WORLD_SIZE",
)
LINE = "=" * 54


def say(text: str) -> None:
    """Write everything at once: two workers share this terminal, and two writes could be interleaved."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def banner() -> str:
    """Return the variables that a process group is made from."""
    told = pprint.pformat({name: os.environ[name] for name in NAMES})
    return f"{LINE}\nEnvironment variables set by the agent on PID {os.getpid()}:\n{told}\n{LINE}\n"


def main() -> None:
    """Print the environment, join the process group, say so, leave it."""
    if "RANK" not in os.environ:
        sys.exit("start me with: planaria run --standalone --nproc-per-node=2 examples/echo.py")
    say(banner())
    try:
        import torch.distributed as dist  # takes a second: the banner need not wait for it
    except ModuleNotFoundError:
        rank, world_size = os.environ["RANK"], os.environ["WORLD_SIZE"]
        say(f"On PID {os.getpid()}, torch is not installed: no process group, rank={rank}, world_size = {world_size}\n")
        return
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    say(f"On PID {os.getpid()}, after init process group, rank={rank}, world_size = {world_size}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
