"""One answer for all ranks, so that they stop or commit at the same step though each hears of it at its own moment."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from planaria.worker import exchange, here

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from planaria.worker.exchange import Group

NOTHING, COMMIT, STOP = 0, 1, 2
"""What a rank may want after a step; the highest counts for all."""
LONG_S = 0.5
"""After a longer step ranks wait for their answers, where one step more may be more than the grace.

On a CPU that takes a millisecond or so. On a GPU the host waits for the device: what it would do ahead is done after that."""


class Agreement:
    """The highest wish of all ranks, the same on each. Every rank asks equally often.

    With a process group of torch the wishes travel while the next step is computed, so an answer is that of a call before:
    nobody waits for the network. `every` is how many calls lie between two such messages. Where a step is long, every call is
    a question and waits for its own answer. Whether it does is agreed on too, by the answer before, for a rank that goes on
    while another stops would wait for ever; nothing is known before the first two, so these wait. Without a group, `agree` of
    the user's own decides; without that a rank decides alone.
    """

    def __init__(self, every: int = 1, agree: Callable[[int], int] | None = None) -> None:
        self._every = every
        self._agree = agree
        self._calls = 0
        self._asked_at: float | None = None
        self._is_patient = True
        self._sent: tuple[Any, Any] | None = None
        self._stream: Any = None

    @property
    def is_impossible(self) -> bool:
        """Tell whether there are other ranks, and no way to ask them."""
        return self._agree is None and here.world_size() > 1 and exchange.group() is None

    def ask(self, wish: int, now: float) -> int:
        """Return the highest wish that all ranks know of by now."""
        if self._agree is not None:
            return self._agree(wish)
        group = exchange.group()
        if group is None:
            return wish
        is_long = self._asked_at is None or now - self._asked_at > LONG_S
        self._asked_at = now
        found = self.settle()
        if self._is_patient and found != STOP:
            self._send(group, wish, is_long)
            found = max(found, self.settle())
        elif self._calls % self._every == 0 and found == NOTHING:
            # Else what was agreed on has still to be done, and is asked after.
            self._send(group, wish, is_long)
        self._calls += 1
        return found

    def settle(self) -> int:
        """Wait for the message that is under way, if there is one, and return what it says."""
        if self._sent is None:
            return NOTHING
        (work, flags), self._sent = self._sent, None
        with self._beside():
            work.wait()
            wish, is_long = flags.tolist()
        self._is_patient = bool(is_long)
        return int(wish)

    def _send(self, group: Group, wish: int, is_long: bool) -> None:
        torch: Any = sys.modules["torch"]
        if group.device != "cpu" and self._stream is None:
            self._stream = torch.cuda.Stream(group.device)
        with self._beside():
            flags = torch.tensor([wish, is_long], dtype=torch.int32, device=group.device)
            work = torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX, async_op=True)
        self._sent = work, flags

    def _beside(self) -> AbstractContextManager[object]:
        """Return the context of a stream of our own on a GPU: reading the flag must not wait for the step in progress."""
        return sys.modules["torch"].cuda.stream(self._stream) if self._stream is not None else nullcontext()
