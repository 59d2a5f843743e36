from __future__ import annotations

import pytest

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker.kernel import BULK, PLAIN, Form, form_for, source_for

HOPPER, AMPERE, SMALL = (
    232_448,
    166_912,
    101_376,
)  # bytes that the threads of a processor share: H200, A100, consumers' GPUs


@pytest.mark.parametrize(
    ("major", "shared_bytes", "form"),
    [(9, HOPPER, BULK), (10, HOPPER, BULK), (12, SMALL, PLAIN), (8, AMPERE, PLAIN), (8, HOPPER, PLAIN), (9, 0, PLAIN)],
)
def test_memory_is_brought_where_the_device_can_and_has_room(major: int, shared_bytes: int, form: Form) -> None:
    assert form_for(major, shared_bytes) is form


def test_each_warp_has_room_for_a_block_and_two_barriers() -> None:
    assert BULK.shared_bytes == BULK.threads // 32 * (BLOCK_BYTES + 2 * 8)


def test_a_source_is_of_its_form_and_of_the_size_of_blocks() -> None:
    assert source_for(BULK).splitlines()[:2] == ["#define BULK 1", f"#define HALF {BLOCK_BYTES // 2}u"]
    assert source_for(PLAIN).startswith("#define BULK 0\n")
