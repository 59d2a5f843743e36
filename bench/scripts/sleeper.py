"""Say who I am and when my first line was reached (`rank pid restart_count monotonic_ns`), then sleep until killed."""

import os
import time

now = time.monotonic_ns()
environ = os.environ
line = f"{environ.get('RANK', '0')} {os.getpid()} {environ.get('TORCHELASTIC_RESTART_COUNT', '0')} {now}\n"
os.write(1, line.encode())
time.sleep(600)
