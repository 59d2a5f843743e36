"""Write 1,000 lines a second, one write each, for argv[3] milliseconds: `rank number monotonic_ns ....`, 80 bytes.

argv[1]: a file to append `ready` and `done rank lines elapsed_ns` to; argv[2]: a file whose appearance means go;
argv[4]: how many lines follow each other before the next sleep. `chatty.c` is the same in C.
"""

import os
import sys
import time

LINE_BYTES = 80
PERIOD_NS = 1_000_000

side = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
rank = int(os.environ["RANK"])
os.write(side, b"ready\n")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
start = due = time.monotonic_ns()
end = start + int(sys.argv[3]) * PERIOD_NS
burst = int(sys.argv[4])
count = 0
while (now := time.monotonic_ns()) < end:
    if now < due:
        time.sleep((due - now) / 1e9)
    for _ in range(burst):
        os.write(1, (b"%d %d %d " % (rank, count, time.monotonic_ns())).ljust(LINE_BYTES - 1, b".") + b"\n")
        count += 1
    due += burst * PERIOD_NS
os.write(side, b"done %d %d %d\n" % (rank, count, time.monotonic_ns() - start))
