"""How much memory there is to take, and where this process's memory cgroup has its files."""

from __future__ import annotations

from planaria.base import linux

_LIMITS = (  # of versions 2 and 1: what is allowed, what is used, and which of that are files that the kernel gives back
    ("memory.max", "memory.current", (b"active_file", b"inactive_file", b"slab_reclaimable")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", (b"total_active_file", b"total_inactive_file")),
)


def free_bytes() -> int:
    """Return how much memory this process and its children may still take: what the machine has, and what cgroups allow."""
    found = [_available(linux.read_file("/proc/meminfo"))]
    for places in counter_paths(linux.read_file("/proc/self/cgroup"), linux.read_file("/proc/self/mounts")):
        for folder in {path.rpartition("/")[0] for path in places}:
            for limit, usage, cached in _LIMITS:
                allowed, used = (linux.read_file(f"{folder}/{name}").strip() for name in (limit, usage))
                if allowed.isdigit() and used.isdigit():
                    given_back = _sum_of(linux.read_file(f"{folder}/memory.stat"), cached)
                    found.append(int(allowed) - max(int(used) - given_back, 0))
    return max(min(found), 0)


def counter_paths(proc_cgroup: bytes, mounts: bytes) -> list[tuple[str, str]]:
    """Return the files that may hold the OOM killer's counter, from the contents of /proc/self/cgroup and /proc/self/mounts.

    The limits lie beside it. Each comes with a second place to look: a container that shares the host's cgroup names is told
    the host's path, but its own cgroup is what is mounted.
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


def _sum_of(stat: bytes, names: tuple[bytes, ...]) -> int:
    """Return the sum of some rows of a memory.stat. Data that a training has read once fills a cgroup to its limit."""
    rows = (line.split() for line in stat.splitlines())
    return sum(int(row[1]) for row in rows if len(row) == 2 and row[0] in names and row[1].isdigit())


def _available(meminfo: bytes) -> int:
    for line in meminfo.splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _unescaped(mount_point: str) -> str:
    return mount_point.replace("\\040", " ").replace("\\134", "\\")


def _places(root: str, path: str, name: str) -> tuple[str, str]:
    return f"{root}{path.rstrip('/')}/{name}", f"{root}/{name}"
