from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cgroups import LEGACY, UNIFIED

from planaria.base import linux
from planaria.process.memory import OomKills, read_counter

if TYPE_CHECKING:
    from pathlib import Path


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
