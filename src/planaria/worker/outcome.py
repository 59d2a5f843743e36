"""What comes of a commit, and of a sync."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.commit import Stamp, Tier


class Commit(Value):
    """What came of a commit. `reached` is None while it is still being sealed."""

    stamp: Stamp
    size_bytes: int
    reached: Tier | None


class Synced(Value):
    """What came of a sync: the commit that all ranks stand on, None at a first start, and the rank the state came from."""

    stamp: Stamp | None
    from_rank: int
