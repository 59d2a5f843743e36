"""What an agent remembers of commits through rounds. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.commit import Order, Stamp


class Ledger:
    """What an agent remembers through rounds: its run, the last round it took part in, the newest commit of each tier."""

    def __init__(self) -> None:
        self.run = 0
        self.last_round = 0
        self.newest: dict[str, Stamp] = {}

    def order(self, tier: str) -> tuple[int, ...]:
        """Return the newest commit that is known to have reached a tier, empty for none."""
        return self.newest[tier].order if tier in self.newest else ()

    def forget_since(self, tier: str, order: Order | None) -> None:
        """Forget that a commit newer than this reached a tier: it is lost."""
        if tier in self.newest and (order is None or self.newest[tier].order > order):
            del self.newest[tier]
