from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.base.value import replace
from planaria.contract import plain
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp
from planaria.contract.snapshot import ALIGNMENT, BLOCK_BYTES, BLOCKS, BODY_AT, CRC32, HEADER_BYTES, Tensor

STAMP = Stamp(1, 2, 3, 4, 2, 1)
CONTENTS = (b"\x01" * 100, b"", b"\x02" * 64, b"\x03" * 7)


def made(generation: int = 3, contents: tuple[bytes, ...] = CONTENTS, values: bytes = b"values") -> memoryview:
    tensors = [Tensor(f"t{number}", "torch", "uint8", (len(one),), len(one)) for number, one in enumerate(contents)]
    layout = snapshots.arrange(tensors, values)
    buffer = memoryview(bytearray(layout.size_bytes + 50))
    for tensor, content in zip(layout.tensors, contents, strict=True):
        buffer[tensor.offset : tensor.offset + tensor.length] = content
    snapshots.seal(buffer, layout, replace(STAMP, generation=generation))
    return buffer


def whole(buffer: memoryview) -> snapshots.Snapshot:
    found = snapshots.read(buffer)
    assert found
    snapshots.verify(buffer, found)
    return found


@given(st.lists(st.binary(max_size=200), max_size=8).map(tuple), st.binary(max_size=50))
def test_what_was_sealed_is_read(contents: tuple[bytes, ...], values: bytes) -> None:
    buffer = made(contents=contents, values=values)
    found = whole(buffer)
    assert found.stamp == STAMP
    assert found.values == values
    for tensor, content in zip(found.tensors, contents, strict=True):
        assert tensor.offset % ALIGNMENT == 0
        assert buffer[tensor.offset : tensor.offset + tensor.length] == content
        assert tensor.digest == crc32(content)


def test_an_empty_or_unsealed_buffer_holds_nothing() -> None:
    assert snapshots.read(memoryview(b"")) is None
    assert snapshots.read(memoryview(bytes(9999))) is None
    buffer = made()
    snapshots.unseal(buffer)
    assert snapshots.read(buffer) is None


def test_every_single_byte_that_matters_is_guarded() -> None:
    buffer = made()
    found = whole(buffer)
    padding = {*range(HEADER_BYTES, BODY_AT), *range(found.size_bytes, len(buffer))}
    for tensor, after in zip(found.tensors, [*(t.offset for t in found.tensors[1:]), found.table_at], strict=True):
        padding |= {*range(tensor.offset + tensor.length, after)}
    for place in range(len(buffer)):
        if place in padding:
            continue
        buffer[place] ^= 0x20
        with pytest.raises(ValueError, match=r"damaged|cut short|version|overwritten"):
            whole(buffer)
        buffer[place] ^= 0x20
    assert whole(buffer) == found


def test_every_length_that_is_too_short_is_noticed() -> None:
    buffer = made()
    size = whole(buffer).size_bytes
    for length in range(HEADER_BYTES, size):
        with pytest.raises(ValueError, match="cut short"):
            snapshots.read(buffer[:length])
    assert snapshots.read(buffer[:size])


def test_a_buffer_that_is_overwritten_while_it_is_read_is_noticed() -> None:
    buffer = made(generation=3)
    found = whole(buffer)
    buffer[: len(buffer)] = made(generation=5)
    with pytest.raises(ValueError, match="overwritten"):
        snapshots.verify(buffer, found)


def test_the_newest_whole_buffer_wins() -> None:
    one, two = made(3), made(4)
    assert snapshots.newest([one, two])[0] == 1  # type: ignore[index]
    two[BODY_AT] ^= 1
    assert snapshots.newest([one, two])[0] == 0  # type: ignore[index]
    snapshots.unseal(one)
    assert snapshots.newest([one, two]) is None
    assert snapshots.newest([]) is None


def test_another_version_is_named() -> None:
    buffer = bytearray(made())
    buffer[8] = 9
    size = snapshots._HEADER.size
    buffer[size - 4 : size] = crc32(buffer[: size - 4]).to_bytes(4, "little")
    with pytest.raises(ValueError, match="version 9 wrote this snapshot"):
        snapshots.read(memoryview(buffer))


def test_the_fingerprint_is_that_of_everything() -> None:
    seen = set()
    for buffer in (made(), made(4), made(contents=(b"x",)), made(values=b"other"), made()):
        seen.add(snapshots.fingerprint(buffer, whole(buffer)))
    assert len(seen) == 4


WRONG_SHAPES = [
    ([1], [-1]),
    ([1], ["4"]),
    ([1], [3]),
    ([2], [4, 0]),
    ([65], [2**62] * 65),
    ([2], [4]),
    ([0], [4]),
    ([1, 0], [4]),
    ([-1], []),
]
# Names, words, which words a row has, dimensions, shapes one behind the other, lengths, offsets.
TABLE = (["t"], ["crc32", "torch", "uint8"], [1, 2, 0], [1], [4], [4], [BODY_AT])


def read_table(table: object) -> tuple[snapshots.Tensor, ...]:
    return snapshots._read_table(plain.encode(table), bytes(8), BODY_AT + 4)


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        TABLE[:-1],
        (*TABLE, [1]),
        *((*TABLE[:at], bad, *TABLE[at + 1 :]) for at in (0, 1) for bad in (None, [b"x"], [None], [], "t")),
        *((*TABLE[:2], bad, *TABLE[3:]) for bad in ([1, 2], [1, 2, 3], [1, 2, -1], ["1", 2, 0], (1, 2, 0))),
        *((*TABLE[:3], ranks, shapes, *TABLE[5:]) for ranks, shapes in WRONG_SHAPES),
        *((*TABLE[:5], [bad], TABLE[6]) for bad in (-4, 2**70, 5000, "4", True)),
        *((*TABLE[:6], [bad]) for bad in (0, -1, BODY_AT - 1, 2**70)),
    ],
    ids=repr,
)
def test_a_table_that_leads_astray_is_refused(table: object) -> None:
    with pytest.raises(ValueError, match="the snapshot's table"):
        read_table(table)


def test_a_good_table_is_not_refused() -> None:
    assert read_table(TABLE)[0] == snapshots.Tensor("t", "torch", "uint8", (4,), 4, BODY_AT)
    assert read_table((*TABLE[:3], [64], [1] * 64, *TABLE[5:]))[0].shape == (1,) * 64


def test_a_table_without_a_digest_for_each_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="a digest each"):
        snapshots._read_table(plain.encode(TABLE), bytes(7), BODY_AT + 4)


@pytest.mark.parametrize("rank", [2, 3])
def test_a_rank_outside_of_its_world_is_refused(rank: int) -> None:
    layout = snapshots.arrange([], b"")
    buffer = memoryview(bytearray(layout.size_bytes))
    snapshots.seal(buffer, layout, replace(STAMP, rank=rank))
    with pytest.raises(ValueError, match="header is damaged"):
        snapshots.read(buffer)


def test_a_number_that_does_not_fit_is_not_sealed() -> None:
    layout = snapshots.arrange([], b"")
    buffer = memoryview(bytearray(layout.size_bytes))
    with pytest.raises(ValueError, match="does not fit into a header"):
        snapshots.seal(buffer, layout, replace(STAMP, step=2**63))
    assert snapshots.read(buffer) is None


def test_a_digest_of_another_kind_is_not_taken_on_trust() -> None:
    found = replace(whole(buffer := made()).tensors[0], digest_kind="sum64")
    with pytest.raises(ValueError, match="sum64"):
        snapshots.verify(buffer, replace(whole(buffer), tensors=(found,)))


@settings(max_examples=300)
@given(st.randoms(use_true_random=False))
def test_reading_a_damaged_buffer_returns_or_raises_a_value_error(rng: object) -> None:
    buffer = made()
    table_at = whole(buffer).table_at
    for _ in range(5):
        place = rng.choice([rng.randrange(HEADER_BYTES), rng.randrange(table_at, len(buffer))])  # type: ignore[attr-defined]
        buffer[place] = rng.randrange(256)  # type: ignore[attr-defined]
    with suppress(ValueError):
        whole(buffer)
    size = snapshots._HEADER.size  # and with checksums that fit, as a hostile writer would have them
    buffer[size - 4 : size] = crc32(buffer[: size - 4]).to_bytes(4, "little")
    with suppress(ValueError):
        whole(buffer)
    with suppress(ValueError):
        snapshots._read_table(bytes(buffer[table_at:]), bytes(8 * rng.randrange(6)), table_at)  # type: ignore[attr-defined]


def of_blocks(content: bytes) -> int:
    """Digest by blocks, slowly: Adler-32 as its definition has it, in plain numbers."""
    sums = b""
    for at in range(0, len(content), BLOCK_BYTES):
        block = content[at : at + BLOCK_BYTES]
        first = (1 + sum(block)) % 65521
        second = (len(block) + sum((len(block) - place) * byte for place, byte in enumerate(block))) % 65521
        sums += (second << 16 | first).to_bytes(4, "little")
    return snapshots.of_blocks(sums)


def digest_of(content: bytes) -> int:
    tensor = Tensor("t", "torch", "uint8", (len(content),), len(content), digest_kind=BLOCKS)
    return snapshots._digest(memoryview(content), tensor)


LARGE = bytes(place * 7 % 251 for place in range(2 * BLOCK_BYTES + 100))


def test_a_digest_by_blocks_is_what_its_definition_says() -> None:
    for content in (b"", b"a", LARGE[:BLOCK_BYTES], LARGE, b"\xff" * BLOCK_BYTES):
        assert digest_of(content) == of_blocks(content)


@settings(max_examples=60)
@given(st.data())
def test_a_digest_by_blocks_sees_what_happens_by_accident(data: st.DataObject) -> None:
    place, other = (data.draw(st.integers(0, len(LARGE) // 4 - 1)) * 4 for _ in range(2))
    content = bytearray(LARGE)
    match data.draw(st.sampled_from(["bit", "words", "blocks", "cut", "zeros", "ended by zeros"])):
        case "bit":
            content[place] ^= 1 << data.draw(st.integers(0, 7))
        case "words":
            content[place : place + 4], content[other : other + 4] = LARGE[other : other + 4], LARGE[place : place + 4]
        case "blocks":
            content[:BLOCK_BYTES], content[BLOCK_BYTES : 2 * BLOCK_BYTES] = (
                LARGE[BLOCK_BYTES : 2 * BLOCK_BYTES],
                LARGE[:BLOCK_BYTES],
            )
        case "cut":
            del content[place:]
        case "zeros":
            content[place:] = bytes(len(content) - place)
        case "ended by zeros":
            content += bytes(4 + place)
    assert (digest_of(bytes(content)) == digest_of(LARGE)) == (content == LARGE)


def test_zeros_of_other_lengths_have_other_digests() -> None:
    lengths = (0, 4, 8, 32, BLOCK_BYTES - 4, BLOCK_BYTES, BLOCK_BYTES + 4, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES)
    assert len({digest_of(bytes(length)) for length in lengths}) == len(lengths)


def test_digests_that_are_known_are_taken_and_kinds_to_leave_are_left() -> None:
    tensors = [
        Tensor(str(number), "torch", "uint8", (8,), 8, digest_kind=kind) for number, kind in enumerate((CRC32, BLOCKS))
    ]
    layout = snapshots.arrange(tensors, b"values")
    buffer = memoryview(bytearray(layout.size_bytes))
    snapshots.write_header(buffer, layout, STAMP, snapshots.write_table(buffer, layout, {1: 77}))
    found = whole_but_tensors(buffer)
    assert found.tensors[1].digest == 77
    snapshots.verify(buffer, found, leave=(BLOCKS,))
    with pytest.raises(ValueError, match="1 is damaged"):
        snapshots.verify(buffer, found)
    longer = snapshots.with_values(layout, b"more values")
    assert longer == snapshots.arrange(tensors, b"more values")


def whole_but_tensors(buffer: memoryview) -> snapshots.Snapshot:
    found = snapshots.read(buffer)
    assert found
    return found
