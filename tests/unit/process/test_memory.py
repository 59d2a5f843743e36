from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from planaria.base import linux
from planaria.process.memory import OomKills, counter_paths, free_bytes, read_counter

if TYPE_CHECKING:
    from pathlib import Path

UNIFIED = (b"0::/user.slice/a.scope\n", b"proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
LEGACY = (
    b"9:cpu,cpuacct:/docker/1\n8:memory:/docker/1\n1:name=systemd:/x\n",
    b"cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n",
)
HYBRID = (LEGACY[0] + b"0::/y\n", LEGACY[1] + b"cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n")


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


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"low 0\nhigh 2\nmax 5\noom 3\noom_kill 4\noom_group_kill 9\n", 4),
        (b"oom_kill_disable 1\nunder_oom 0\noom_kill 2\n", 2),
        (b"oom_kill_disable 0\nunder_oom 0\n", 0),
        (b"oom_kill x\n", 0),
        (b"", 0),
    ],
)
def test_the_counter_is_read_from_both_versions_of_the_file(content: bytes, count: int) -> None:
    assert read_counter(content) == count


def simulated(monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    monkeypatch.setattr(linux, "read_file", lambda path: files.get(path, b""))


def test_only_kills_since_the_beginning_are_told_and_as_often_as_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = "/sys/fs/cgroup/user.slice/a.scope/memory.events"
    files = {"/proc/self/cgroup": UNIFIED[0], "/proc/self/mounts": UNIFIED[1], counter: b"oom_kill 7\n"}
    simulated(monkeypatch, files)
    kills = OomKills()
    assert kills.so_far() == 0
    files[counter] = b"oom_kill 9\n"
    assert (kills.so_far(), kills.so_far()) == (2, 2)


@pytest.mark.parametrize(
    ("files", "seen"),
    [(LEGACY, "/sys/fs/cgroup/memory/memory.oom_control"), (UNIFIED, "/sys/fs/cgroup/memory.events")],
)
def test_a_container_that_sees_its_own_cgroup_as_the_root_has_a_counter(
    monkeypatch: pytest.MonkeyPatch, files: tuple[bytes, bytes], seen: str
) -> None:
    """/proc/self/cgroup names the host's path there, which does not exist below the container's mount."""
    found = {"/proc/self/cgroup": files[0], "/proc/self/mounts": files[1], seen: b"oom_kill 1\n"}
    simulated(monkeypatch, found)
    kills = OomKills()
    found[seen] = b"oom_kill 2\n"
    assert kills.so_far() == 1


def test_a_machine_without_cgroups_counts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    simulated(monkeypatch, {})
    assert OomKills().so_far() == 0


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
        ({"/sys/fs/cgroup/memory.max": b"1000\n", "/sys/fs/cgroup/memory.current": b"1001\n"}, 0),
    ],
)
def test_a_limit_of_the_cgroup_counts_where_it_is_lower(
    monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], left: int
) -> None:
    known = {"/proc/meminfo": b"MemFree: 1 kB\nMemAvailable: 8388608 kB\n", **files}
    known |= dict(zip(("/proc/self/cgroup", "/proc/self/mounts"), UNIFIED, strict=True))
    monkeypatch.setattr(linux, "read_file", lambda path: known.get(path, b""))
    assert free_bytes() == left
