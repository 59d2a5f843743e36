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


class Agreement:
    """The highest wish of all ranks, the same on each. Every rank asks equally often.

    With a process group of torch the wishes travel while the next step is computed, so an answer is that of a call before:
    nobody waits for the network. `every` is how many calls lie between two such messages. Without a group, `agree` of the
    user's own decides; without that a rank decides alone.
    """

    def __init__(self, every: int = 1, agree: Callable[[int], int] | None = None) -> None:
        self._every = every
        self._agree = agree
        self._calls = 0
        self._sent: tuple[Any, Any] | None = None
        self._stream: Any = None

    @property
    def is_impossible(self) -> bool:
        """Tell whether there are other ranks, and no way to ask them."""
        return self._agree is None and here.world_size() > 1 and exchange.group() is None

    def ask(self, wish: int) -> int:
        """Return the highest wish that all ranks know of by now."""
        if self._agree is not None:
            return self._agree(wish)
        group = exchange.group()
        if group is None:
            return wish
        found = self.settle()
        if self._calls % self._every == 0 and found == NOTHING:  # what was agreed on has still to be done: ask after it
            self._send(group, wish)
        self._calls += 1
        return found

    def settle(self) -> int:
        """Wait for the message that is under way, if there is one, and return what it says."""
        if self._sent is None:
            return NOTHING
        (work, flag), self._sent = self._sent, None
        with self._beside():
            work.wait()
            return int(flag.item())

    def _send(self, group: Group, wish: int) -> None:
        torch: Any = sys.modules["torch"]
        if group.device != "cpu" and self._stream is None:
            self._stream = torch.cuda.Stream(group.device)
        with self._beside():
            flag = torch.tensor([wish], dtype=torch.int32, device=group.device)
            work = torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX, async_op=True)
        self._sent = work, flag

    def _beside(self) -> AbstractContextManager[object]:
        """Return the context of a stream of our own on a GPU: reading the flag must not wait for the step in progress."""
        return sys.modules["torch"].cuda.stream(self._stream) if self._stream is not None else nullcontext()
