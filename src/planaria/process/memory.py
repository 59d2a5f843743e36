"""Ask the memory cgroup whether the kernel's OOM killer was at work.

`oom_kill` counts processes of this cgroup killed by any OOM killer, its own or the machine's. A worker that died of SIGKILL
which we did not send, while the counter rose, was most likely one of them.
"""

from __future__ import annotations

from planaria.base import linux
from planaria.base.memory import counter_paths


class OomKills:
    """The counter since this object was made."""

    def __init__(self) -> None:
        self._paths = counter_paths(linux.read_file("/proc/self/cgroup"), linux.read_file("/proc/self/mounts"))
        self._before = self._count()

    def so_far(self) -> int:
        """Return how many processes of our cgroup the OOM killer has ended since."""
        return self._count() - self._before

    def _count(self) -> int:
        return sum(read_counter(linux.read_file(path) or linux.read_file(other)) for path, other in self._paths)


def read_counter(content: bytes) -> int:
    """Return the number after `oom_kill` in memory.events (cgroup v2) or memory.oom_control (v1); 0 without one."""
    for line in content.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"oom_kill" and number.strip().isdigit():
            return int(number)
    return 0
