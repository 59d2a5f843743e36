"""Take memory away from the disk's writer when a worker has waited for it long enough."""

from __future__ import annotations

from planaria.archive.patience import Patience

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planaria.agent.disk import Disk
    from planaria.agent.slots import Slots
    from planaria.base.loop import Loop, Timer


class DiskWait:
    """Watches who waits for memory that the disk holds. Called on the loop.

    A disk that is stuck in what was given up holds nothing else (`Disk.write`).
    """

    def __init__(self, loop: Loop, slots: Slots, disk: Disk, say: Callable[[str], object]) -> None:
        self._loop = loop
        self._slots = slots
        self._disk = disk
        self._say = say
        self._patience = Patience()
        self._written = 0
        self._timer: Timer | None = None

    def look(self, waiting: Iterable[int]) -> None:
        """Hear which local ranks wait for memory now."""
        is_held = any(map(self._slots.waits_for_disk, waiting))
        if is_held and self._timer is None:
            if self._written != self._disk.written:
                self._written = self._disk.written
                self._patience.written()
            self._timer = self._loop.call_later(self._patience.limit_s, self._give_up)
        elif not is_held and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        waited_s = self._patience.limit_s
        if self._patience.over():
            self._say(
                f"a commit is still being written to disk, a rank has waited {waited_s:.0f} s for its memory, and there "
                "is no room for more: it is given up on disk, and training goes on (said again when one waits longer)"
            )
        self._disk.give_up()
