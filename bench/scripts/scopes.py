"""Open and close watchdog scopes, PACE a second or, with 0, as fast as possible.

    scopes.py socket|pipe SIDE GO PAIRS LIMIT_S PACE

A line `ready` goes to SIDE; when the file GO is there, PAIRS scopes are opened and closed, then it waits until the agent has
heard all of them, and writes `done BEGAN_NS ENDED_NS`. A release that was lost would end this process LIMIT_S later: it
stays for that long.
"""

import fcntl
import os
import struct
import sys
import termios
import time

kind, side_path, go = sys.argv[1:4]
pairs, limit_s, pace = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
side = os.open(side_path, os.O_WRONLY | os.O_APPEND)

if kind == "socket":
    from planaria import worker

    expires = worker.expires
    worker.drain_notice()  # connects

    def unheard() -> int:
        link = worker._LINK._socket  # noqa: SLF001  what the agent has not read yet is known to the kernel alone
        return struct.unpack("i", fcntl.ioctl(link, termios.TIOCOUTQ, bytes(4)))[0]
else:
    from planaria.elastic.timer import FileTimerClient, configure, expires

    path = os.environ["TORCHELASTIC_TIMER_FILE"]
    configure(FileTimerClient(path))
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def unheard() -> int:
        return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


os.write(side, b"ready\n")
while not os.path.exists(go):
    time.sleep(0.02)
began_ns = time.monotonic_ns()
for number in range(pairs):
    with expires(limit_s, "step"):
        pass
    if pace:
        time.sleep(max(0.0, began_ns / 1e9 + (number + 1) / pace - time.monotonic()))
while unheard():
    time.sleep(0.001)
os.write(side, b"done %d %d\n" % (began_ns, time.monotonic_ns()))
time.sleep(limit_s + 0.5)
