from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract.commit import Stamp
from planaria.contract.manifest import Manifest, ShardFile, decode, encode

MANIFEST = Manifest(1, 2, 3, 4, 2, (ShardFile(0, "a", 5, "ff"), ShardFile(1, "b", 6, "ee")))


def test_a_manifest_survives_its_file() -> None:
    assert decode(encode(MANIFEST)) == MANIFEST
    assert MANIFEST.order == (1, 2, 3)
    assert MANIFEST.stamp(1) == Stamp(1, 2, 3, 4, 2, 1)


def test_a_manifest_that_is_cut_anywhere_is_none() -> None:
    content = encode(MANIFEST)
    for length in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            decode(content[:length])


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"run": -1},
        {"round": "1"},
        {"step": 1.5},
        {"generation": True},
        {"world_size": 3},
        {"world_size": 1},
        {"world_size": 0, "files": []},
        {"files": None},
        {"files": [1, 2]},
        {"files": [{"rank": 1, "name": "a", "size_bytes": 5, "sha256": ""}] * 2},
        {"files": [{"rank": rank, "name": "../a", "size_bytes": 5, "sha256": ""} for rank in (0, 1)]},
        {"files": [{"rank": rank, "name": ".", "size_bytes": 5, "sha256": ""} for rank in (0, 1)]},
        {"files": [{"rank": rank, "name": "a", "size_bytes": -5, "sha256": ""} for rank in (0, 1)]},
        {"files": [{"rank": rank, "name": "a", "size_bytes": 5} for rank in (0, 1)]},
    ],
    ids=repr,
)
def test_a_manifest_that_says_something_impossible_is_none(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps(json.loads(encode(MANIFEST)) | change).encode())


@given(st.binary() | st.binary().map(lambda tail: encode(MANIFEST)[:-9] + tail) | st.just(b"[" * 100_000))
def test_reading_anything_returns_a_manifest_or_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        decode(content)
