from __future__ import annotations

import pytest

from planaria.base import memory


def files(monkeypatch: pytest.MonkeyPatch, **content: bytes) -> None:
    monkeypatch.setattr(memory, "read_file", lambda path: content.get(path.rpartition("/")[2].replace(".", "_"), b""))


def test_what_the_kernel_has_available_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files(
        monkeypatch,
        meminfo=b"MemTotal: 99 kB\nMemAvailable:   12 kB\nBuffers: 1 kB\n",
        memory_max=b"max\n",
        memory_current=b"5\n",
    )
    assert memory.free_bytes() == 12 << 10


def test_what_is_left_of_the_cgroup_s_limit_counts_where_it_is_less(monkeypatch: pytest.MonkeyPatch) -> None:
    files(monkeypatch, meminfo=b"MemAvailable: 12 kB\n", memory_max=b"9000\n", memory_current=b"1000\n")
    assert memory.free_bytes() == 8000
    files(
        monkeypatch, meminfo=b"MemAvailable: 12 kB\n", memory_limit_in_bytes=b"9000\n", memory_usage_in_bytes=b"9500\n"
    )
    assert memory.free_bytes() == 0


def test_this_machine_has_some() -> None:
    assert memory.free_bytes() > 1 << 20
    assert memory.available_bytes(b"") == 0
