"""Shared memory that a job leaves, in a folder of our own."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from planaria.chaos import shared

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_is_new_and_nobodys_is_left(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    before = shared.names(str(tmp_path))
    assert shared.left(before, (), str(tmp_path)) == ()
    (tmp_path / "psm_1f").write_text("")
    assert shared.left(before, (), str(tmp_path)) == (str(tmp_path / "psm_1f"),)


def test_what_a_living_process_holds_is_not(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("x")
    (tmp_path / "mapped").write_text("x")
    with open(tmp_path / "open", "rb"):
        descriptor = os.open(tmp_path / "mapped", os.O_RDONLY)
        with mmap.mmap(descriptor, 1, prot=mmap.PROT_READ):
            os.close(descriptor)
            assert shared.left((), (), str(tmp_path)) == ()
    assert len(shared.left((), (), str(tmp_path))) == 2


def test_what_the_undisturbed_job_leaves_as_well_is_not(tmp_path: Path) -> None:
    for name in ("torch_12_9", "psm_2e"):
        (tmp_path / name).write_text("")
    assert shared.left((), ("/dev/shm/torch_7_3",), str(tmp_path)) == (str(tmp_path / "psm_2e"),)


def test_what_is_another_users_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").write_text("")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert shared.names(str(tmp_path)) == frozenset()


def test_a_machine_without_shared_memory_leaves_none(tmp_path: Path) -> None:
    assert shared.left((), (), str(tmp_path / "none")) == ()
