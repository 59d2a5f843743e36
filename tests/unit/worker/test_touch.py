from __future__ import annotations

import os

import pytest

from planaria.worker import touch

SIZE = 3 * 4096 + 5


@pytest.mark.parametrize("is_refused", [False, True])
def test_every_page_is_touched_and_nothing_is_changed(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    monkeypatch.setattr(touch, "_PART_BYTES", 4096)
    if is_refused:  # as by a kernel that is older than the call
        monkeypatch.setattr(touch, "_MADV_POPULATE_WRITE", 9999)
    descriptor = os.memfd_create("touched", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, SIZE)
        os.pwrite(descriptor, b"x", 4096)
        with touch.mapped(descriptor) as memory:
            assert os.fstat(descriptor).st_blocks * 512 == 4 * 4096
            assert memory[:] == bytes(4096) + b"x" + bytes(SIZE - 4097)
    finally:
        os.close(descriptor)
