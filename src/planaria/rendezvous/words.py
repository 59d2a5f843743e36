"""What a leader says to people while it waits, and why a round changes. Pure."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.rendezvous.model import Rules, Settings

MOST_NAMES = 5
MOST_HOSTS = 8


def rounded_up(left_s: float) -> float:
    """Return about how long is left: to the minute, at last to ten seconds, so that a line stays true for a while."""
    grain_s = 60.0 if left_s > 120 else 10.0
    return math.ceil(left_s / grain_s) * grain_s if left_s > 10 else 10.0


def shorter(left_s: float) -> float:
    """Return what of `left_s`, rounded up, is left when it has to be rounded anew."""
    return left_s - (60.0 if left_s > 120 else 10.0)


def waiting(settings: Settings, hosts: Sequence[str], away: Sequence[str], left_s: float | None) -> str:
    """Say who is here, who or how many are missing and, for a first round, how long we wait for them."""
    count = len(hosts)
    fixed = settings.min_nodes == settings.max_nodes
    wanted = f"{settings.max_nodes}" if fixed else f"{settings.min_nodes} to {settings.max_nodes}"
    text = f"{count} of {wanted} nodes are here"
    if count <= MOST_HOSTS:
        text += f" ({', '.join(sorted(hosts))})"
    if count >= settings.min_nodes:
        return text + "; starting in a moment, unless more come"
    text += f"; waiting for {settings.min_nodes - count} more"
    if away:
        text += (
            f" ({', '.join(sorted(away)[:MOST_NAMES])}{' and others' if len(away) > MOST_NAMES else ''} went missing)"
        )
    return text + (f", at most {left_s:g} s" if left_s is not None else "")


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


def other_rules(ours: Rules, theirs: Rules, host: str) -> str:
    """Say which flag of a node differs from what the run was started with; empty when all agree."""
    for flag, here, there in (
        ("--rdzv-conf ttl", f"{theirs.ttl_s:g} s", f"{ours.ttl_s:g} s"),
        ("--nnodes", _nodes(theirs), _nodes(ours)),
        ("--max-restarts", f"{theirs.max_restarts}", f"{ours.max_restarts}"),
    ):
        if here != there:
            return f"{flag} is {here} on this node and {there} on {host}: it has to be the same on every node of a run"
    return ""


def _nodes(rules: Rules) -> str:
    fixed = rules.min_nodes == rules.max_nodes
    return f"{rules.max_nodes}" if fixed else f"{rules.min_nodes}:{rules.max_nodes}"


def another_run(run_id: str) -> str:
    """Say why a node cannot go on with the run it was in."""
    return f"run {run_id!r} that this node was in is over, and another with the same --rdzv-id has begun"


def asked(reason: str, host: str) -> str:
    """Say where an owner asked for the end of the run."""
    return f"{reason} (on node {host})"


def reminded(number: int) -> str:
    """Say that a store which was emptied, or set up anew, can be relied on again."""
    return f"the store had nothing of this run any more; it knows round {number} again"


def joined(hosts: Sequence[str]) -> str:
    """Say who came."""
    return f"node {', '.join(hosts[:MOST_NAMES])}{' and others' if len(hosts) > MOST_NAMES else ''} joined"


def buried(name: str) -> str:
    """Say why a node that fell silent is waited for no longer."""
    return f"{name} is not waited for any more: it is gone for good, by its own word or that of the cluster"
