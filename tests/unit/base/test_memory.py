from __future__ import annotations

import os

import pytest
from cgroups import HYBRID, LEGACY, UNIFIED

from planaria.base import linux
from planaria.base.memory import counter_paths, free_bytes


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (UNIFIED, ["/sys/fs/cgroup/user.slice/a.scope/memory.events"]),
        (LEGACY, ["/sys/fs/cgroup/memory/docker/1/memory.oom_control"]),
        (HYBRID, ["/sys/fs/cgroup/memory/docker/1/memory.oom_control", "/sys/fs/cgroup/unified/y/memory.events"]),
        ((b"0::/\n", UNIFIED[1]), ["/sys/fs/cgroup/memory.events"]),
        ((b"0::/a:b\n", UNIFIED[1]), ["/sys/fs/cgroup/a:b/memory.events"]),
        ((UNIFIED[0], b""), []),
        ((b"", UNIFIED[1]), []),
        ((b"\xff\nnonsense\n::\n", b"\xff\n\nshort line\n"), []),
    ],
)
def test_the_counter_is_looked_for_where_this_kernel_keeps_it(files: tuple[bytes, bytes], expected: list[str]) -> None:
    assert [path for path, _ in counter_paths(*files)] == expected


def test_a_mount_point_with_a_space_in_it_is_read_as_the_kernel_wrote_it() -> None:
    mounts = b"cgroup2 /my\\040cgroup\\134x cgroup2 rw 0 0\n"
    assert counter_paths(b"0::/a\n", mounts) == [("/my cgroup\\x/a/memory.events", "/my cgroup\\x/memory.events")]


def test_what_is_left_of_the_memory_is_no_more_than_the_machine_has() -> None:
    assert 0 < free_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 8 << 30),
        ({"/sys/fs/cgroup/user.slice/a.scope/memory.max": b"max\n"}, 8 << 30),
        (
            {
                "/sys/fs/cgroup/user.slice/a.scope/memory.max": b"5000\n",
                "/sys/fs/cgroup/user.slice/a.scope/memory.current": b"1000\n",
            },
            4000,
        ),
        (
            {
                "/sys/fs/cgroup/memory.max": b"5000\n",
                "/sys/fs/cgroup/memory.current": b"4900\n",
                "/sys/fs/cgroup/memory.stat": b"anon 900\nfile 4000\nshmem 600\ninactive_file 3000\nactive_file 400\nodd\n",
            },
            3500,
        ),
        (
            {
                "/sys/fs/cgroup/memory.limit_in_bytes": b"5000\n",
                "/sys/fs/cgroup/memory.usage_in_bytes": b"4900\n",
                "/sys/fs/cgroup/memory.stat": b"inactive_file 1\ntotal_inactive_file 3000\ntotal_active_file 400\n",
            },
            3500,
        ),
        ({"/sys/fs/cgroup/memory.max": b"1000\n", "/sys/fs/cgroup/memory.current": b"1001\n"}, 0),
        ({"/proc/meminfo": b""}, 0),
    ],
)
def test_a_limit_of_the_cgroup_counts_where_it_is_lower(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], left: int
) -> None:
    known = {"/proc/meminfo": b"MemFree: 1 kB\nMemAvailable: 8388608 kB\n", **files}
    known |= dict(zip(("/proc/self/cgroup", "/proc/self/mounts"), UNIFIED, strict=True))
    monkeypatch.setattr(linux, "read_file", lambda path: known.get(path, b""))
    assert free_bytes() == left
