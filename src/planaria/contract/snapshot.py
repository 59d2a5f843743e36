"""One rank's snapshot in a buffer: anonymous memory that agent and worker share, or a file.

    0      header, 128 bytes: magic, version, stamp, where table and values are, checksums. Written last: the seal
    4096   tensors, each at a multiple of 64
           the table: name, kind, dtype, shape, length, offset and kind of digest of each tensor, by columns; then the digests
           the values: plain data that refers to tensors by their place in the table

A buffer is unsealed before anything in it changes, so whoever dies in between leaves a buffer that says so. A buffer that was
overwritten while it was read, or damaged, has a digest that does not fit. Two buffers take turns (`commit.slot_to_write`).
"""

from __future__ import annotations

from math import prod
from struct import Struct, error, pack, unpack
from zlib import adler32, crc32

from planaria.base.value import Value, replace
from planaria.contract import plain
from planaria.contract.commit import Stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

VERSION = 3
HEADER_BYTES = 128
BODY_AT = 4096  # a page: what is registered with a device begins at one
ALIGNMENT = 64  # a cache line, and more than any dtype needs
DIMENSIONS = 64  # of a tensor at most, as in torch and numpy
CRC32 = "crc32"  # 3.4 GB/s a core, where sha256 in software has 0.2; both kinds guard against accidents
BLOCKS = "adler32 blocks"  # sums only, so a device can compute it in one pass, and zlib here at 3 GB/s a core
BLOCK_BYTES = 1 << 15  # below 65,521, the modulus of Adler-32: two bytes of a block cannot change places unseen
_MAGIC = b"planaria"
_HEADER = Struct("<8sI3QqII4QII")  # magic, version, stamp, table, digests, values, size, two checksums
_DIGEST_BYTES = 8
_OWN_CHECKSUM = Struct("<I")


class Tensor(Value):
    """One row of the table. `kind` and `dtype` are words of whoever made the tensor; here it is `length` bytes."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    offset: int = 0
    digest: int = 0
    digest_kind: str = CRC32


class Layout(Value):
    """Where everything of a snapshot will be, decided before a byte is copied.

    `table` is the one of the tensors, encoded once: a commit every step has no time to do that anew. Digests follow it.
    """

    tensors: tuple[Tensor, ...]
    values: bytes
    table: bytes
    table_at: int
    digests_at: int
    values_at: int
    size_bytes: int


class Snapshot(Value):
    """What a sealed buffer says: the stamp, the table, the values. The tensors are verified apart, they are the bulk."""

    stamp: Stamp
    tensors: tuple[Tensor, ...]
    values: bytes
    table_at: int
    size_bytes: int


def arrange(tensors: Iterable[Tensor], values: bytes) -> Layout:
    """Give each tensor its place; the length of the table is known, since digests have a fixed size."""
    at, placed = BODY_AT, []
    for tensor in tensors:
        placed.append(replace(tensor, offset=at, digest=0))
        at += -(-tensor.length // ALIGNMENT) * ALIGNMENT
    table = _table(placed)
    digests_at = at + len(table)
    values_at = digests_at + _DIGEST_BYTES * len(placed)
    return Layout(tuple(placed), values, table, at, digests_at, values_at, values_at + len(values))


def with_values(layout: Layout, values: bytes) -> Layout:
    """Return the layout for the same tensors beside other values, which lie last."""
    at = layout.table_at, layout.digests_at, layout.values_at
    return Layout(layout.tensors, values, layout.table, *at, layout.values_at + len(values))


def unseal(buffer: memoryview) -> None:
    """Say that what is in the buffer is no snapshot any more, before any of it changes."""
    buffer[:HEADER_BYTES] = bytes(HEADER_BYTES)


def seal(buffer: memoryview, layout: Layout, stamp: Stamp) -> None:
    """Digest the tensors that have been copied to their places, add table and values, and write the header last."""
    write_header(buffer, layout, stamp, write_table(buffer, layout))


def write_table(buffer: memoryview, layout: Layout, known: Mapping[int, int] | None = None) -> int:
    """Write table, digests and values; return what the header says of them.

    `known` has digests that were computed elsewhere, by the number of the tensor; all others must be at their places.
    """
    known = known or {}
    digests = [
        known[number] if number in known else _digest(buffer, tensor) for number, tensor in enumerate(layout.tensors)
    ]
    table = layout.table + pack(f"<{len(digests)}Q", *digests)
    buffer[layout.table_at : layout.values_at] = table
    buffer[layout.values_at : layout.size_bytes] = layout.values
    return crc32(layout.values, crc32(table))


def write_header(buffer: memoryview, layout: Layout, stamp: Stamp, checksum: int) -> None:
    """Seal a snapshot that is in its place; `checksum` is what `write_table` returned."""
    buffer[:HEADER_BYTES] = _header(stamp, layout, checksum)


def table_at(buffer: memoryview) -> int:
    """Return where the table begins, of which header and tensors lie in front, as the header says.

    Raises:
        ValueError: The header is damaged, or another version wrote it.
    """
    return _read_header(bytes(buffer[:HEADER_BYTES]))[1][0]


def stamp_of(header: bytes) -> Stamp:
    """Return which commit of which rank a sealed snapshot is, by its header alone.

    Raises:
        ValueError: It is damaged, or of no snapshot.
    """
    if len(header) < HEADER_BYTES:
        raise ValueError("the header is cut short")
    return _read_header(header)[0]


def read(buffer: memoryview) -> Snapshot | None:
    """Return what a buffer holds, or None when it is not sealed. Tensors are not looked at: `verify` does.

    Raises:
        ValueError: It was sealed and is damaged, or another version wrote it.
    """
    if len(buffer) < HEADER_BYTES or not any(buffer[:HEADER_BYTES]):
        return None
    stamp, (table_at, digests_at, values_at, size_bytes), checksum = _read_header(bytes(buffer[:HEADER_BYTES]))
    if not BODY_AT <= table_at <= digests_at <= values_at <= size_bytes <= len(buffer):
        raise ValueError("the snapshot is cut short")
    table, values = bytes(buffer[table_at:values_at]), bytes(buffer[values_at:size_bytes])
    if crc32(values, crc32(table)) != checksum:
        raise ValueError("the snapshot's table or values are damaged")
    rows, digests = table[: digests_at - table_at], table[digests_at - table_at :]
    return Snapshot(stamp, _read_table(rows, digests, table_at), values, table_at, size_bytes)


def verify(buffer: memoryview, snapshot: Snapshot, leave: Collection[str] = ()) -> None:
    """Compare every tensor with its digest, and the header with what was read: the buffer may have been in use meanwhile.

    Tensors whose digests are of a kind to `leave` are left to the caller, who has a device that is faster.

    Raises:
        ValueError: Something is damaged or was overwritten; the message names it.
    """
    for tensor in snapshot.tensors:
        if tensor.digest_kind not in leave:
            verify_tensor(buffer, tensor)
    stamp, (table_at, _, values_at, size_bytes), checksum = _read_header(bytes(buffer[:HEADER_BYTES]))
    is_same = (stamp, table_at, size_bytes) == (snapshot.stamp, snapshot.table_at, snapshot.size_bytes)
    if not is_same or crc32(buffer[values_at:size_bytes], crc32(buffer[table_at:values_at])) != checksum:
        raise ValueError("the snapshot was overwritten while it was read")


def verify_tensor(buffer: memoryview, tensor: Tensor) -> None:
    """Compare one tensor with its digest.

    Raises:
        ValueError: It is damaged.
    """
    if _digest(buffer, tensor) != tensor.digest:
        raise ValueError(f"{tensor.name} is damaged")


def fingerprint(buffer: memoryview, snapshot: Snapshot) -> str:
    """Return a hash of header, table and values. The table has the digests of the tensors, so it stands for all of it."""
    from hashlib import sha256

    found = sha256(buffer[:HEADER_BYTES])
    found.update(buffer[snapshot.table_at : snapshot.size_bytes])
    return found.hexdigest()


def newest(buffers: Sequence[memoryview], leave: Collection[str] = ()) -> tuple[int, Snapshot] | None:
    """Return the newest buffer that is sealed and whole, with its number; one that is torn or damaged is passed over.

    `leave` is as in `verify`.
    """
    sealed = []
    for number, buffer in enumerate(buffers):
        try:
            snapshot = read(buffer)
        except ValueError:
            continue
        if snapshot:
            sealed.append((snapshot.stamp.order, number, snapshot))
    for _, number, snapshot in sorted(sealed, key=lambda found: found[:2], reverse=True):
        try:
            verify(buffers[number], snapshot, leave)
        except ValueError:
            continue
        return number, snapshot
    return None


def _digest(buffer: memoryview, tensor: Tensor) -> int:
    content = buffer[tensor.offset : tensor.offset + tensor.length]
    if tensor.digest_kind == CRC32:
        return crc32(content)
    if tensor.digest_kind == BLOCKS:
        blocks = (content[at : at + BLOCK_BYTES] for at in range(0, len(content), BLOCK_BYTES))
        return of_blocks(b"".join(adler32(block).to_bytes(4, "little") for block in blocks))
    raise ValueError(f"{tensor.name} has a digest of a kind that is not known here: {tensor.digest_kind[:20]!r}")


def of_blocks(sums: bytes | memoryview) -> int:
    """Return the digest of a tensor from the Adler-32 of each of its blocks, four bytes each, in their order."""
    return crc32(sums) | adler32(sums) << 32


def _table(tensors: Sequence[Tensor]) -> bytes:
    """Encode rows by columns: reading a thousand rows one by one takes longer than copying their tensors to a GPU."""
    words = sorted({word for t in tensors for word in (t.kind, t.dtype, t.digest_kind)})
    at = {word: number for number, word in enumerate(words)}
    columns = (
        [t.name for t in tensors],
        words,
        [at[word] for t in tensors for word in (t.kind, t.dtype, t.digest_kind)],
        [len(t.shape) for t in tensors],
        [part for t in tensors for part in t.shape],
        [t.length for t in tensors],
        [t.offset for t in tensors],
    )
    return plain.encode(columns)


def _header(stamp: Stamp, layout: Layout, checksum: int) -> bytes:
    fields = (stamp.run, stamp.round, stamp.generation, stamp.step, stamp.world_size, stamp.rank)
    try:
        content = _HEADER.pack(_MAGIC, VERSION, *fields, *_places(layout), checksum, 0)
    except error as exc:
        raise ValueError(f"{stamp} has a number that does not fit into a header") from exc
    content = content[: -_OWN_CHECKSUM.size]
    return (content + _OWN_CHECKSUM.pack(crc32(content))).ljust(HEADER_BYTES, b"\0")


def _read_header(header: bytes) -> tuple[Stamp, tuple[int, ...], int]:
    magic, version, *rest = _HEADER.unpack_from(header)
    content = header[: _HEADER.size - _OWN_CHECKSUM.size]
    if magic != _MAGIC or crc32(content) != rest[-1] or any(header[_HEADER.size :]):
        raise ValueError("the snapshot's header is damaged")
    if version != VERSION:
        raise ValueError(f"version {version} wrote this snapshot; version {VERSION} can be read")
    run, round_, generation, step, world_size, rank, *places, checksum, _ = rest
    if rank >= world_size:
        raise ValueError("the snapshot's header is damaged")
    return Stamp(run, round_, generation, step, world_size, rank), tuple(places), checksum


def _places(layout: Layout) -> tuple[int, int, int, int]:
    return layout.table_at, layout.digests_at, layout.values_at, layout.size_bytes


def _read_table(table: bytes, digests: bytes, end: int) -> tuple[Tensor, ...]:
    match plain.decode(table):
        case (list(names), list(words), *columns) if all(type(one) is str for one in (*names, *words)):
            return tuple(_rows(names, words, columns, _digests(digests, len(names)), end))
    raise ValueError("the snapshot's table has no columns of names and words")


def _digests(content: bytes, count: int) -> tuple[int, ...]:
    if len(content) != _DIGEST_BYTES * count:
        raise ValueError("the snapshot's table is not one of tensors with a digest each")
    return unpack(f"<{count}Q", content)


def _rows(
    names: list[str], words: list[str], columns: list[object], digests: tuple[int, ...], end: int
) -> Iterator[Tensor]:
    found = [*map(_numbers, columns)]
    count = len(names)
    if len(found) != 5 or [*map(len, found)] != [3 * count, count, sum(found[1]), count, count]:
        raise ValueError("the snapshot's table has columns of different lengths")
    kinds, ranks, parts, lengths, offsets = found
    if max(kinds, default=-1) >= len(words) or max(ranks, default=0) > DIMENSIONS:
        raise ValueError("the snapshot's table has a number that stands for nothing")
    at = 0
    for number, (name, rank, length, offset) in enumerate(zip(names, ranks, lengths, offsets, strict=True)):
        shape = tuple(parts[at : at + rank])
        at += rank
        size = prod(shape)
        if not BODY_AT <= offset <= offset + length <= end or (length % size if size else length):
            raise ValueError("the snapshot's table has a row that is not a tensor's")
        kind, dtype, digest_kind = (words[one] for one in kinds[3 * number : 3 * number + 3])
        yield Tensor(name, kind, dtype, shape, length, offset, digests[number], digest_kind)


def _numbers(column: object) -> list[int]:
    if not isinstance(column, list) or not {*map(type, column)} <= {int} or min(column, default=0) < 0:
        raise ValueError("the snapshot's table has a column that is not one of numbers")
    return column
