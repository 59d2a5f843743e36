"""Call a function on four workers, lose one of them on the way, and get everybody's result. No torch; about two seconds.

    python examples/embed.py

This program is no script of a launcher: it brings the launcher along. Each worker adds up its part of a series for pi. In
its first life rank 2 kills itself; the agent inside of this program starts all four again, and the call returns what each
of them returned, by rank. With torch the first import would read `from torch.distributed.launcher import ...`.
"""

from __future__ import annotations

import os
import signal

from planaria.launcher import LaunchConfig, elastic_launch

WORKERS = 4


def part_of_pi(terms: int) -> float:
    """Add up every fourth term of 4/1 - 4/3 + 4/5 - ..., beginning with this worker's rank."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        print("rank 2: I die by SIGKILL, without a word to anybody", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return sum((-1) ** term * 4 / (2 * term + 1) for term in range(rank, terms, world_size))


def main() -> None:
    """Run it, and show what came back."""
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=WORKERS, run_id="pi", max_restarts=1)
    parts = elastic_launch(config, part_of_pi)(100_000)
    for rank, part in parts.items():
        print(f"rank {rank} returned {part:+.6f}")
    print(f"pi is about {sum(parts.values()):.4f}")


if __name__ == "__main__":  # spawned workers import this file, too
    main()
