"""Look at several things at once, none of which may hold up the others."""

from __future__ import annotations

import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from typing import TypeVar

    Key = TypeVar("Key", bound=Hashable)
    Found = TypeVar("Found")


def together(looks: Mapping[Key, Callable[[], Found]], within_s: float) -> tuple[dict[Key, Found], set[Key]]:
    """Return what was found, and what had not been when the time was over. What is in neither ended with an error.

    Each has a thread: names, disks and drivers may block for as long as they like, in calls that nothing interrupts. The
    threads are the process's to take along when it ends.
    """
    found: dict[Key, Found] = {}

    def keep(key: Key) -> None:
        found[key] = looks[key]()

    threads = {key: threading.Thread(target=keep, args=(key,), daemon=True) for key in looks}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    hanging = {key for key, thread in threads.items() if thread.is_alive()}
    in_time = dict(found)  # a copy: who is late may come yet
    return in_time, hanging - in_time.keys()
