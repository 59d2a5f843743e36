"""Whose a connection of this machine is: the kernel lists every TCP socket with the user who made it."""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Address = tuple[str, int]

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ROOT = 0


def is_ours(client: Address, server: Address) -> bool:
    """Tell whether the other end of a connection within this machine is a socket of our own user's, or of root's.

    Where the kernel lists no sockets at all nobody can be told apart, and everybody counts as ours.
    """
    tables = []
    for path in TABLES:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                tables.append(file.read())
        except OSError:
            continue
    return not tables or any(owner_in(table, client, server) in (_ROOT, os.geteuid()) for table in tables)


def owner_in(table: str, client: Address, server: Address) -> int | None:
    """Return the user of the client's socket; None when the table does not have it."""
    for pair in zip(_written(client), _written(server), strict=False):
        _, found, rest = table.partition(f": {' '.join(pair)} ")
        fields = rest.partition("\n")[0].split()  # state, queues, timer, retransmits, user, timeout, inode
        if found and len(fields) > 6 and fields[6] != "0":  # a socket that its process has left is nobody's
            return int(fields[4])
    return None


def _written(address: Address) -> Iterator[str]:
    """Yield an address as the tables may have it: one of IPv4 may be that of an IPv6 socket."""
    host, port = ip_address(address[0].partition("%")[0]), address[1]
    if isinstance(host, IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    if isinstance(host, IPv4Address):
        yield f"{_words(host.packed)}:{port:04X}"
        host = IPv6Address(b"\0" * 10 + b"\xff\xff" + host.packed)
    yield f"{_words(host.packed)}:{port:04X}"


def _words(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
