"""What a leader says to people while it waits, and why a round changes. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.rendezvous.messages import Quit
    from planaria.rendezvous.model import Settings

MOST_NAMES = 5
MOST_HOSTS = 8


def waiting(settings: Settings, hosts: Sequence[str], count: int, *, first: bool) -> str:
    """Say who is here, how many are missing and, for a first round, until when we wait for them."""
    fixed = settings.min_nodes == settings.max_nodes
    wanted = f"{settings.max_nodes}" if fixed else f"{settings.min_nodes} to {settings.max_nodes}"
    text = f"{count} of {wanted} nodes are here"
    if count <= MOST_HOSTS:
        text += f" ({', '.join(sorted(hosts))})"
    if count >= settings.min_nodes:
        return text + "; starting in a moment, unless more come"
    text += f"; waiting for {settings.min_nodes - count} more"
    return text + (f", at most {settings.join_timeout_s:g} s" if first else "")


def too_late(settings: Settings, count: int, away: Sequence[str]) -> str:
    """Say why the first round did not open in time."""
    if count < settings.min_nodes:
        return f"only {count} of {settings.min_nodes} nodes came within {settings.join_timeout_s:g} s"
    why = f"{', '.join(away[:MOST_NAMES])} did not come back" if away else "last_call_timeout was not over"
    return f"{count} nodes were here, but {why} within {settings.join_timeout_s:g} s"


def holding(here: int, size: int, number: int) -> str:
    """Say that too few members of a round are left to go on without the others."""
    return (
        f"holding: {here} of {size} members of round {number} are here, which is no majority; "
        "waiting for the others (--on-lost-majority decides what else to do)"
    )


def another_run(run_id: str) -> str:
    """Say why a node cannot go on with the run it was in."""
    return f"run {run_id!r} that this node was in is over, and another with the same --rdzv-id has begun"


def stopped(said: Quit, host: str) -> str:
    """Say who ended the run."""
    return f"{said.reason} (on node {host})"


def joined(hosts: Sequence[str]) -> str:
    """Say who came."""
    return f"node {', '.join(hosts[:MOST_NAMES])}{' and others' if len(hosts) > MOST_NAMES else ''} joined"
