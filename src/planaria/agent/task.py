"""A commit on its way to a tier, as a council keeps book of it. Pure."""

from __future__ import annotations

from planaria.agent.council_messages import Copy, Write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.commit import Order

BUDDY, DISK = "buddy", "disk"


class Task:
    """A commit on its way to a tier: which ranks each slot was told, and who has answered what."""

    def __init__(self, number: int, order: Order, ranks: Mapping[int, tuple[int, ...]]) -> None:
        self.number = number
        self.order = order
        self.ranks = ranks
        self.asked: set[int] = set()
        self.answers: dict[int, str] = {}
        self.is_whole = False


def request(tier: str, task: Task, slot: int) -> Copy | Write:
    """Return what the member of a slot is asked to do for it."""
    kind = Copy if tier == BUDDY else Write
    return kind(task.number, task.order, task.ranks[slot])
