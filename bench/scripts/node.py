"""Say `begin rank world_size restart_count pid monotonic_ns`, then sleep until killed: a worker that never communicates."""

import os
import time

now = time.monotonic_ns()
names = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
os.write(1, f"begin {' '.join(os.environ[name] for name in names)} {os.getpid()} {now}\n".encode())
time.sleep(600)
