"""`python -m planaria.run`: the same as `planaria run`, for those who type `python -m torch.distributed.run` today."""

from __future__ import annotations

import sys

from planaria.__main__ import leave
from planaria.launch.main import run

if __name__ == "__main__":
    leave(run, sys.argv[1:])
