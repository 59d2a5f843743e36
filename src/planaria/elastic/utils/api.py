"""Environment variables, free ports, and the one macro of a worker's arguments."""

from __future__ import annotations

import os
import socket
from typing import Any

from planaria.process.command import LOCAL_RANK_MACRO, filled


def get_env_variable_or_raise(env_name: str) -> str:
    """Return the value of a variable, also an empty one.

    Raises:
        ValueError: The variable is not set.
    """
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value


def get_socket_with_port() -> socket.socket:
    """Return a socket that listens at a free port of localhost. The port is the caller's until it closes the socket.

    Raises:
        RuntimeError: No address of localhost could be bound.
    """
    for family, kind, protocol, _, _ in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
        found = socket.socket(family, kind, protocol)
        try:
            found.bind(("localhost", 0))
            found.listen(0)
        except OSError:
            found.close()
        else:
            return found
    raise RuntimeError("Failed to create a socket")


class macros:
    """What may stand in a worker's arguments for a value that only the agent knows."""

    local_rank = LOCAL_RANK_MACRO

    @staticmethod
    def substitute(args: list[Any], local_rank: str) -> list[Any]:
        """Return the arguments with `${local_rank}` replaced; nothing else is, so `$$` and `$HOME` stay as they are."""
        return list(filled(args, local_rank))
