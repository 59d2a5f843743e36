"""How long a worker waits for memory that the disk's writer reads: a slow disk must not stop the training."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planaria.agent.disk import Disk
    from planaria.agent.slots import Slots
    from planaria.base.loop import Loop, Timer

FIRST_S = 10.0
MOST_S = 120.0


class Patience:
    """Takes memory away from the disk when a worker has waited for it long enough. Called on the loop.

    Each time the disk gets twice as long, up to `MOST_S`: one that is slow and not stuck shall have a commit some time, and
    begins anew when it has one. One that is stuck holds nothing else (`Disk.write`), so it costs no second wait.
    """

    def __init__(self, loop: Loop, slots: Slots, disk: Disk, say: Callable[[str], object]) -> None:
        self._loop = loop
        self._slots = slots
        self._disk = disk
        self._say = say
        self._limit_s = FIRST_S
        self._said_s = 0.0
        self._written = 0
        self._timer: Timer | None = None

    def look(self, waiting: Iterable[int]) -> None:
        """Hear which local ranks wait for memory now."""
        is_held = any(map(self._slots.waits_for_disk, waiting))
        if is_held and self._timer is None:
            if self._written != self._disk.written:
                self._written, self._limit_s = self._disk.written, FIRST_S
            self._timer = self._loop.call_later(self._limit_s, self._give_up)
        elif not is_held and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._limit_s > self._said_s:
            self._said_s = self._limit_s
            self._say(
                f"a commit is still being written to disk, a rank has waited {self._limit_s:.0f} s for its memory, and there "
                "is no room for more: it is given up on disk, and training goes on (said again when one waits longer)"
            )
        self._limit_s = min(2 * self._limit_s, MOST_S)
        self._disk.give_up()
