"""`python -m planaria.run`: the same as `planaria run`, for those who type `python -m torch.distributed.run` today."""

from __future__ import annotations

import os
import sys

from planaria.launch.main import run

if __name__ == "__main__":
    os._exit(run(sys.argv[1:]))
