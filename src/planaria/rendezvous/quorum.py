"""Count members: who may go on, and until when. Pure.

A leader that holds the tie-break (the store's lease, or being the incumbent) needs half of a round, anybody else more than
half: so two sides of a split can never both go on.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

NEVER = float("-inf")
ALWAYS = float("inf")


def needed(size: int, *, tie_break: bool) -> int:
    """Return how many members of a round of `size` have to be there."""
    return (size + 1) // 2 if tie_break else size // 2 + (size > 0)


def is_enough(present: int, size: int, *, tie_break: bool) -> bool:
    """Tell whether `present` members may decide for a round of `size`."""
    return present >= needed(size, tie_break=tie_break)


def valid_until(heard_at: Iterable[float], size: int, lease_s: float, *, tie_break: bool) -> float:
    """Return the end of a leader's validity, given when it last heard from each member of a round of `size`.

    It lasts `lease_s` from the newest moment at which enough of them were known to hold to this leader.
    """
    count = needed(size, tie_break=tie_break)
    if count == 0:
        return ALWAYS
    newest = sorted(heard_at, reverse=True)
    return newest[count - 1] + lease_s if len(newest) >= count else NEVER
