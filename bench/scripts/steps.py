"""Report a step PACE times a second, and write down what the reports cost this process.

    steps.py SIDE GO STEPS PACE

A line `ready` goes to SIDE; when the file GO is there, STEPS steps are reported, each with samples and a loss and every tenth
with a phase around it; then `done CPU_NS`, the CPU time of all that, and the process stays until GO is gone.
"""

import os
import sys
import time

from planaria import worker

side_path, go = sys.argv[1:3]
steps, pace = int(sys.argv[3]), int(sys.argv[4])
side = os.open(side_path, os.O_WRONLY | os.O_APPEND)
worker.report_progress(0)

os.write(side, b"ready\n")
while not os.path.exists(go):
    time.sleep(0.02)
began_ns = time.monotonic_ns()
cpu_ns = 0
for step in range(1, steps + 1):
    time.sleep(max(0.0, began_ns / 1e9 + step / pace - time.monotonic()))
    before_ns = time.thread_time_ns()
    if step % 10:
        worker.report_progress(step, samples=step * 64, loss=0.5)
    else:
        with worker.phase("evaluation"):
            worker.report_progress(step, samples=step * 64, loss=0.5)
    cpu_ns += time.thread_time_ns() - before_ns
os.write(side, b"done %d\n" % cpu_ns)
while os.path.exists(go):
    time.sleep(0.02)
