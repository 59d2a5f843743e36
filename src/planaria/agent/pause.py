"""What waits for something to be over, and for so long at the most."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer


class Pause:
    """Keeps what is to be done, in its order, until it is released or the time of the first is over."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._kept: list[Callable[[], object]] = []
        self._timer: Timer | None = None

    def keep(self, go_on: Callable[[], object], within_s: float) -> None:
        """Do this later."""
        self._kept.append(go_on)
        if self._timer is None:
            self._timer = self._loop.call_later(within_s, self.release)

    def release(self) -> None:
        """Do now all that was kept."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        kept, self._kept = self._kept, []
        for go_on in kept:
            go_on()
