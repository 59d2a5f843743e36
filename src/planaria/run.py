"""`python -m planaria.run`: the same as `planaria run`, for those who type `python -m torch.distributed.run` today."""

from __future__ import annotations

import sys

from planaria.__main__ import leave


def main(argv: list[str]) -> int:
    """Run a job as the command line says; return the exit status."""
    from planaria.launch.main import run  # after `leave` has put the import path right

    return run(argv)


if __name__ == "__main__":
    leave(main, sys.argv[1:])
