"""Ports for servers of tests, from where the system takes none for connections of its own."""

from __future__ import annotations

import _socket
import errno
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = 10240
SLICES = 16  # as many workers of pytest-xdist have ports of their own


def _slice() -> range:
    """Return the ports of this process: those of one worker of pytest-xdist, below the system's own."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        end = int(file.read().split()[0])
    if end < 2 * FIRST:
        end = 30000  # the system takes ports from everywhere: all that is left is to look
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    number = int(worker) % SLICES if worker.isdecimal() else 0
    size = (end - FIRST) // SLICES
    return range(FIRST + number * size, FIRST + (number + 1) * size)


def _pairs() -> Iterator[int]:
    """Give every other port of the slice, over and over. Where it begins depends on the process: sessions may run at once."""
    ports = _slice()[:-1:2]
    start = os.getpid() * 7919 % len(ports)
    return itertools.cycle((*ports[start:], *ports[:start]))


_NEXT = _pairs()


def _is_free(host: str, port: int) -> bool:
    probe = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET)
    try:
        probe.bind((host, port))
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            raise
        return False
    finally:
        probe.close()
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of `host` that nobody has at this moment, nor the one above it."""
    return next(port for port in _NEXT if _is_free(host, port) and _is_free(host, port + 1))


def free_ports(count: int) -> list[int]:
    """Return so many different ones."""
    return [free_port() for _ in range(count)]
