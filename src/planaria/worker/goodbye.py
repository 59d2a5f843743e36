"""How a rank takes its leave: how long its last commit may take, and the words for what became of its steps. Pure."""

from __future__ import annotations

from planaria.contract.commit import MOST_WAIT_S, TIERS
from planaria.contract.control import Resize

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.commit import Stamp, Tier
    from planaria.contract.control import Drain

    Notice = Drain | Resize

GRACE_S = 30.0  # where nobody says how long a goodbye may take
USABLE = 0.8  # of a grace; the rest is for the process to end in
NEARLY_OVER = 0.9  # of a grace: a step that still runs then will hardly be committed
LEAST_S = 0.1  # a commit that comes too late is worth a try: the agent may be slow to kill
UNCOMMITTED = "this rank stops"
COMMITTED = "this rank has committed and stops"


def commit_s(notice: Notice | None, now: float) -> float:
    """Return how long the last commit may take, of a grace that has run since the notice was given.

    After a step that has taken most of it, that is half of what is left: more than nothing, and the process has to end too.
    """
    if notice is None:
        return USABLE * GRACE_S
    since = _since(notice, now)
    return max(LEAST_S, USABLE * notice.grace_s - since, (notice.grace_s - since) / 2)


def until_nearly_over_s(notice: Notice, now: float) -> float:
    """Return how long it takes until hardly anything is left of the grace."""
    return min(MOST_WAIT_S, max(0.0, NEARLY_OVER * notice.grace_s - _since(notice, now)))


def _since(notice: Notice, now: float) -> float:
    """Return how old a notice is; one of an agent that does not say counts from now on."""
    return 0.0 if notice.at is None else max(0.0, now - notice.at)


def after_commit(wanted: Tier, reached: Tier | None) -> str:
    """Say that a rank stops after a commit, and what the commit did not come to."""
    if reached is None:
        return (
            f"{UNCOMMITTED}, and its commit has not reached {wanted} in time: the commit before it may be what is left"
        )
    if TIERS.index(reached) < TIERS.index(wanted):
        return f"this rank has committed, which has reached {reached} and not {wanted}, and stops"
    return COMMITTED


def without_commit(steps: int, stamp: Stamp | None) -> str:
    """Say that a rank stops where it cannot commit, because others may stand at another step."""
    return f"{UNCOMMITTED} at the last commit that all ranks have; {lost(steps, stamp)}"


def lost(steps: int, stamp: Stamp | None) -> str:
    """Say how many steps since this rank's last commit are lost."""
    many = f"{steps} step{'s' * (steps != 1)}"
    are = "is" if steps == 1 else "are"
    if stamp is None:
        return f"{many} {are} lost, for nothing was committed"
    return f"{many} since its own last commit (step {stamp.step}) {are} lost"


def line(words: str, notice: Notice) -> str:
    """Return the words with the reason."""
    kind = "the world changes" if isinstance(notice, Resize) else "this node drains"
    return f"{words}: {kind} ({notice.reason})"
