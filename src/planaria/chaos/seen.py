"""What the agents of a job say of themselves, put together. Pure."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from planaria.chaos.model import Loss

_SAFE_TIERS: Mapping[str, Sequence[str]] = {
    "nothing": ("node", "buddy"),
    "workers": ("node", "buddy"),
    "node": ("buddy",),
    "all": (),
}
"""Where a commit has to be to survive a loss. What is on disk is asked of the disk: we damage it ourselves."""


class World(Value):
    """A round in which all nodes are at work. `step` is what every rank has reached; None: some have not told any.

    `commits` has the newest complete commit by tier: its step and its round.
    """

    round: int
    step: int | None
    commits: Mapping[str, tuple[int, int]]


def world(statuses: Sequence[Mapping[str, Any] | None], size: int) -> World | None:
    """Return the round that all nodes work in; None: there is none at this moment."""
    told = [status for status in statuses if status and status.get("ready") and status.get("round")]
    if len(told) != len(statuses):
        return None
    rounds = {(status["round"]["number"], status["round"]["world_size"]) for status in told}
    ranks = [worker["rank"] for status in told for worker in status["workers"] if worker["state"] == "running"]
    if len(rounds) != 1 or sorted(ranks) != list(range(size)):
        return None
    known = [one["step"] for status in told for one in status["progress"].values() if one and one["step"] is not None]
    lowest = min(known) if len(known) == size else None
    return World(next(iter(rounds))[0], lowest, _commits(told))


def _commits(told: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[tuple[int, int, int], tuple[int, int]]] = {}
    for status in told:
        for tier, commit in status["newest_commit"].items():
            if commit:
                order = commit["run"], commit["round"], commit["generation"]
                newest = found.setdefault(tier, (order, (commit["step"], commit["round"])))
                found[tier] = max(newest, (order, (commit["step"], commit["round"])))
    return {tier: commit for tier, (_, commit) in found.items()}


def is_safe(seen: World) -> bool:
    """Tell whether the job has two copies of something of this round, if it makes copies at all: one more loss is bearable."""
    return "buddy" not in seen.commits or seen.commits["buddy"][1] == seen.round


def floor(seen: World, loss: Loss) -> int | None:
    """Return the step that the job goes on from after such a loss, or from a later one; None: it has promised none."""
    steps = [seen.commits[tier][0] for tier in _SAFE_TIERS[loss] if tier in seen.commits]
    return max(steps, default=None)
