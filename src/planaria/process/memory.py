"""Ask the memory cgroup whether the kernel's OOM killer was at work, and how much memory is left.

`oom_kill` counts processes of this cgroup killed by any OOM killer, its own or the machine's. A worker that died of SIGKILL
which we did not send, while the counter rose, was most likely one of them.
"""

from __future__ import annotations

from planaria.base import linux


def counter_paths(proc_cgroup: bytes, mounts: bytes) -> list[tuple[str, str]]:
    """Return the files that may hold the counter, from the contents of /proc/self/cgroup and /proc/self/mounts.

    Each comes with a second place to look: a container that shares the host's cgroup names is told the host's path, but
    its own cgroup is what is mounted.
    """
    roots: dict[str, str] = {}
    for line in mounts.decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] == "cgroup2":
            roots["unified"] = _unescaped(fields[1])
        elif len(fields) > 3 and fields[2] == "cgroup" and "memory" in fields[3].split(","):
            roots["memory"] = _unescaped(fields[1])
    found = []
    for line in proc_cgroup.decode("utf-8", "replace").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and "unified" in roots:
            found.append(_places(roots["unified"], path, "memory.events"))
        elif "memory" in controllers.split(",") and "memory" in roots:
            found.append(_places(roots["memory"], path, "memory.oom_control"))
    return found


def free_bytes() -> int:
    """Return how much memory this process and its children may still take: what the machine has, and what cgroups allow."""
    found = [_available(linux.read_file("/proc/meminfo"))]
    for places in counter_paths(linux.read_file("/proc/self/cgroup"), linux.read_file("/proc/self/mounts")):
        for folder in {path.rpartition("/")[0] for path in places}:
            for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
                allowed, used = (linux.read_file(f"{folder}/{name}").strip() for name in (limit, usage))
                if allowed.isdigit() and used.isdigit():
                    found.append(int(allowed) - int(used))
    return max(min(found), 0)


def _available(meminfo: bytes) -> int:
    for line in meminfo.splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _unescaped(mount_point: str) -> str:
    return mount_point.replace("\\040", " ").replace("\\134", "\\")


def _places(root: str, path: str, name: str) -> tuple[str, str]:
    return f"{root}{path.rstrip('/')}/{name}", f"{root}/{name}"


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
