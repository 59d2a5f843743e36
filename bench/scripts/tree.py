"""Grow the worker tree of the no-orphans row, five processes that each write `kind pid` into the file of argv[1].

The worker; a child; a daemon (own session, forked twice, empty environment, closed descriptors, TERM and HUP ignored);
a child with its own session, and a child of that one. All sleep until killed, or for 10 minutes.
"""

import os
import signal
import sys
import time

SLEEP = ["sleep", "600"]


def tell(kind: str) -> None:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{kind} {os.getpid()}\n".encode())
    os.close(file)


def become_sleep(kind: str, environment: dict[str, str]) -> None:
    tell(kind)
    os.execvpe(SLEEP[0], SLEEP, environment)


def daemon() -> None:
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    tell("daemon")
    os.closerange(0, 1100)
    os.execve("/bin/sleep", SLEEP, {})


def session() -> None:
    os.setsid()
    if os.fork() == 0:
        become_sleep("session-child", dict(os.environ))
    become_sleep("session", dict(os.environ))


if os.fork() == 0:
    become_sleep("child", dict(os.environ))
middle = os.fork()
if middle == 0:
    daemon()
os.waitpid(middle, 0)
if os.fork() == 0:
    session()
tell("worker")
time.sleep(600)
