"""Gather facts about this machine: clocks, shared memory, limits, folders, kernel. Nothing is judged here."""

from __future__ import annotations

import errno
import os
import resource
import select
import sys
import time

from planaria.base import memory
from planaria.base.linux import read_file
from planaria.doctor.clock import ClockFacts
from planaria.doctor.disk import Folder
from planaria.doctor.limits import LimitFacts
from planaria.doctor.shm import SHM, ShmFacts
from planaria.doctor.system import SystemFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PROBE_BYTES = 1 << 20
_READINGS = 100
_STA_UNSYNC = 0x40
_TIMEX_BYTES = 256  # more than any architecture's struct timex
_TIME_ERROR = 5
_FIRST_PIDS = "pid:[4026531836]"  # the kernel's own number for the namespace in which all processes are seen


def clock_facts(wall_s: float) -> ClockFacts:
    """Read the clocks."""
    readings = [time.monotonic() for _ in range(_READINGS)]
    while time.monotonic() <= readings[0] and len(readings) < 1_000_000:  # a coarse clock needs a moment
        readings.append(time.monotonic())
    readings.append(time.monotonic())
    synchronised, error_s = _adjtimex()
    source = _text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return ClockFacts(tuple(readings), wall_s, synchronised, error_s, source)


def _adjtimex() -> tuple[bool | None, float]:
    """Ask the kernel what it knows of the wall clock, and change nothing (modes 0)."""
    import ctypes
    import struct

    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None, 0.0
    if state < 0:
        return None, 0.0
    # unsigned modes; long offset, freq, maxerror (microseconds), esterror; int status
    _, _, _, maximum, _, status = struct.unpack_from("IxxxxqqqqI" if sys.maxsize > 1 << 32 else "IiiiiI", buffer)
    return state != _TIME_ERROR and not status & _STA_UNSYNC, maximum / 1_000_000


def shm_facts(workers: int) -> ShmFacts:
    """Look at /dev/shm."""
    problem = _write_problem(SHM, 4096)
    try:
        found = os.statvfs(SHM)
    except OSError as trouble:
        return ShmFacts(workers, problem=trouble.strerror or "it cannot be asked")
    is_full = bool(problem) and found.f_bavail * found.f_frsize < _PROBE_BYTES
    left, left_bytes = _left_in_shm()
    shmmax = _text("/proc/sys/kernel/shmmax")
    return ShmFacts(
        workers,
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        _kind_of(SHM),
        "" if is_full else problem,
        left_bytes,
        left,
        int(shmmax) if shmmax.isdigit() else None,
    )


def _left_in_shm() -> tuple[tuple[str, ...], int]:
    """Return torch's files, which have the pid of their maker in their names, where nobody has that pid any more.

    Who lives in a pid namespace of its own does not see everybody who may share this memory, and so cannot know.
    """
    left, total = [], 0
    try:
        entries = list(os.scandir(SHM)) if os.readlink("/proc/self/ns/pid") == _FIRST_PIDS else []
    except OSError:
        return (), 0
    for entry in entries:
        pid = entry.name.split("_")[1] if entry.name.startswith("torch_") and "_" in entry.name[6:] else ""
        if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
            left.append(entry.name)
    return tuple(left), total


def limit_facts(workers: int) -> LimitFacts:
    """Read the limits of this user, this container and this machine."""
    files_soft, files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pids, used = _pids()
    free = memory.free_bytes()
    return LimitFacts(
        workers=workers,
        files_soft=_finite(files_soft) or sys.maxsize,
        files_hard=_finite(files_hard) or sys.maxsize,
        processes=_finite(resource.getrlimit(resource.RLIMIT_NPROC)[0]) if os.geteuid() else None,
        processes_used=_own_processes() if os.geteuid() else 0,
        pids=pids,
        pids_used=used,
        memlock_bytes=_finite(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
        has_rdma=bool(_names("/sys/class/infiniband")),
        memory_bytes=free,
        is_memory_limited=free < _available() - _PROBE_BYTES,
        cpus=len(os.sched_getaffinity(0)),
        cpu_quota=_cpu_quota(),
        core_bytes=_finite(resource.getrlimit(resource.RLIMIT_CORE)[0]),
        core_pattern=_text("/proc/sys/kernel/core_pattern"),
    )


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def _own_processes() -> int:
    count, user = 0, os.getuid()
    for name in _names("/proc"):
        if name.isdigit():
            try:
                count += os.stat(f"/proc/{name}").st_uid == user
            except OSError:  # it has ended
                continue
    return count


def _cgroup_folders() -> list[str]:
    """Return the folders of this process's cgroups, from its own up to the one that is mounted."""
    found: dict[str, None] = {}
    for places in memory.counter_paths(read_file("/proc/self/cgroup"), read_file("/proc/self/mounts")):
        for place in places:
            folder = place.rpartition("/")[0]
            while folder.startswith("/sys/fs/cgroup") and len(found) < 64:
                found[folder] = None
                folder = folder.rpartition("/")[0]
    return list(found)


def _pids() -> tuple[int | None, int]:
    """Return the limit that leaves least room, and what is used of it."""
    found = []
    for folder in _cgroup_folders():
        allowed, used = _text(f"{folder}/pids.max"), _text(f"{folder}/pids.current")
        if allowed.isdigit() and used.isdigit():
            found.append((int(allowed), int(used)))
    return min(found, key=lambda pair: pair[0] - pair[1], default=(None, 0))


def _cpu_quota() -> float | None:
    found = []
    for folder in _cgroup_folders():
        words = _text(f"{folder}/cpu.max").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            found.append(int(words[0]) / int(words[1]))
    return min(found, default=None)


def _available() -> int:
    for line in read_file("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def folder_facts(role: str, path: str, clock: Callable[[], float] = time.monotonic) -> Folder:
    """Look at a folder, and write a mebibyte there for a moment. One that is not there yet is judged by what is above it."""
    path = os.path.abspath(path)
    checked = path
    while not os.path.isdir(checked) and checked != "/":
        checked = os.path.dirname(checked)
    began = clock()
    problem = _write_problem(checked, _PROBE_BYTES)
    took_s = clock() - began
    try:
        found = os.statvfs(checked)
    except OSError as trouble:
        return Folder(role, path, checked, trouble.strerror or "it cannot be asked", 1 << 60)
    return Folder(
        role,
        path,
        checked,
        problem,
        found.f_bavail * found.f_frsize,
        found.f_blocks * found.f_frsize,
        found.f_favail,
        found.f_files,
        _kind_of(checked),
        took_s,
    )


def _write_problem(folder: str, size_bytes: int) -> str:
    """Write a file that has no name, or one that is removed at once; return why that cannot be done."""
    try:
        descriptor = _nameless(folder)
    except OSError as trouble:
        return trouble.strerror or str(trouble)
    try:
        left = size_bytes
        while left > 0:
            left -= os.write(descriptor, bytes(min(left, 1 << 16)))
        os.fsync(descriptor)
    except OSError as trouble:
        return trouble.strerror or str(trouble)
    finally:
        os.close(descriptor)
    return ""


def _nameless(folder: str) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as trouble:
        if trouble.errno not in (errno.EISDIR, errno.EOPNOTSUPP, errno.ENOENT, errno.EINVAL):
            raise
    path = os.path.join(folder, f".planaria-doctor-{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def _kind_of(path: str) -> str:
    """Return the kind of file system a path is on: the last mount of the longest folder that holds it."""
    kind, longest = "", -1
    for line in read_file("/proc/self/mounts").decode("utf-8", "replace").splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            holds = path == point or path.startswith(point.rstrip("/") + "/")
            if holds and len(point) >= longest:
                kind, longest = fields[2], len(point)
    return kind


def system_facts(version: str) -> SystemFacts:
    """Try what we need of the kernel."""
    trials: dict[str, Callable[[], object]] = {
        "pidfd": lambda: os.close(os.pidfd_open(os.getpid())),
        "memfd": lambda: os.close(os.memfd_create("doctor")),
        "eventfd": lambda: os.close(os.eventfd(0)),
        "epoll": lambda: select.epoll().close(),
        "proc": lambda: os.stat("/proc/self/stat"),
    }
    missing = []
    for name, trial in trials.items():
        try:
            trial()
        except (OSError, AttributeError) as trouble:
            missing.append((name, getattr(trouble, "strerror", "") or "not there"))
    return SystemFacts(os.uname().release, sys.version_info[:3], version, tuple(missing), _installed())


def _installed() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("planaria")
    except PackageNotFoundError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    return read_file(path, 4096).decode("utf-8", "replace").strip()
