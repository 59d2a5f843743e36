"""How much memory there is to take, as the kernel and this process's cgroup say."""

from __future__ import annotations

from planaria.base.linux import read_file

_CGROUPS = (  # as a container sees its own: limit and use, version 2 and version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def free_bytes() -> int:
    """Return what the kernel has available, or what is left of the cgroup's limit where that is less."""
    found = [left for limit, used in _CGROUPS if (left := _left(read_file(limit), read_file(used))) is not None]
    return min([available_bytes(read_file("/proc/meminfo")), *found])


def available_bytes(meminfo: bytes) -> int:
    """Return `MemAvailable` of /proc/meminfo; 0 where there is none."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(b":")
        if name == b"MemAvailable":
            return int(rest.split()[0]) << 10
    return 0


def _left(limit: bytes, used: bytes) -> int | None:
    try:
        return max(int(limit) - int(used), 0)
    except ValueError:  # no such file, or "max"
        return None
