"""Plain values as bytes and back: safe data, never code. What a snapshot keeps beside its tensors.

None, bool, int of any size, float (each NaN as it is), str, bytes, list, tuple, dict, set, frozenset, and the two dicts that
torch's own states use, OrderedDict and Counter. Types are kept exactly; a subclass of one of them is another type. What the
caller keeps elsewhere, such as a tensor, is a number here, a reference. Everything else is refused, and the refusal names
the place of the value.

Reading is bounded: lengths are checked against what is left, an item has a byte at least, nesting ends at `DEPTH_LIMIT`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from struct import Struct, error, pack, unpack_from

from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Keep = Callable[[object, str], int | None]
    """Take in a value that is not plain; return its number, or None when it cannot be kept. A ValueError says why not."""

DEPTH_LIMIT = 64
SIZE_LIMIT_BYTES = 1 << 30
BULK = 16  # from this length on, lists of only small ints or only floats are packed at once: RNG states, permutations
_COUNT, _INT, _FLOAT = Struct("<I"), Struct("<q"), Struct("<d")
_COLLECTIONS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"s", frozenset: b"z"}
_DICTS: dict[type, bytes] = {dict: b"d", OrderedDict: b"o", Counter: b"c"}
_MAKERS: dict[bytes, type] = {tag: kind for kinds in (_COLLECTIONS, _DICTS) for kind, tag in kinds.items()}
_BULK = {int: (b"q", "q"), float: (b"e", "d")}
_BULK_CODES = dict(_BULK.values())


def encode(value: object, keep: Keep | None = None, name: str = "the value") -> bytes:
    """Return the bytes of a value; what is not plain is given to `keep` with its path, which begins with `name`.

    Raises:
        StateRefused: A value, named by its path, is neither plain nor kept, or is nested too deeply.
    """
    encoder = _Encoder(keep, name)
    encoder.add(value)
    return b"".join(encoder.parts)


def path_text(path: Iterable[object]) -> str:
    """Return a path as its owner would write it: `optimizer['state'][0]`."""
    first, *rest = path
    return "".join([str(first), *(f"[{_short(key)}]" for key in rest)])


def _short(key: object) -> str:
    shown = repr(key)
    return shown if len(shown) <= 80 else shown[:77] + "..."


class _Encoder:
    """One walk through a value; `path` is where it is now."""

    def __init__(self, keep: Keep | None, name: str) -> None:
        self.parts: list[bytes] = []
        self._path: list[object] = [name]
        self._keep = keep

    def add(self, value: object) -> None:
        kind = type(value)
        if kind is str:
            self._add_bytes(b"u", value.encode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]  # checked by its exact type
        elif kind is int:
            self._add_int(value)  # type: ignore[arg-type]  # as above
        elif kind is float:
            self.parts += b"f", _FLOAT.pack(value)
        elif value is None or kind is bool:
            self.parts.append(b"n" if value is None else b"y" if value else b"x")
        elif kind is bytes:
            self._add_bytes(b"b", value)  # type: ignore[arg-type]  # as above
        elif kind in _COLLECTIONS:
            self._add_collection(kind, value)  # type: ignore[arg-type]  # as above
        elif kind in _DICTS:
            self._add_dict(kind, value)  # type: ignore[arg-type]  # as above
        else:
            self._add_kept(value)

    def _add_bytes(self, tag: bytes, content: bytes) -> None:
        self._check_size(len(content))
        self.parts += tag, _COUNT.pack(len(content)), content

    def _add_int(self, value: int) -> None:
        try:
            self.parts += b"i", _INT.pack(value)
        except error:
            self._add_bytes(b"j", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def _add_collection(self, kind: type, value: list[object]) -> None:
        self._begin(_COLLECTIONS[kind], len(value))
        if kind in (list, tuple) and len(value) >= BULK and self._add_bulk(value):
            return
        for place, item in enumerate(value):
            self._path.append(place)
            self.add(item)
            self._path.pop()

    def _add_bulk(self, value: list[object]) -> bool:
        kinds = {*map(type, value)}
        if len(kinds) > 1 or not kinds <= _BULK.keys():
            return False
        tag, code = _BULK[kinds.pop()]
        try:
            content = pack(f"<{len(value)}{code}", *value)
        except error:  # an int of more than 64 bits
            return False
        self.parts += tag, content
        return True

    def _add_dict(self, kind: type, value: dict[object, object]) -> None:
        self._begin(_DICTS[kind], len(value))
        for key, item in value.items():
            self._path.append(key)
            self.add(key)
            self.add(item)
            self._path.pop()

    def _begin(self, tag: bytes, count: int) -> None:
        if len(self._path) > DEPTH_LIMIT:
            raise StateRefused(
                f"{path_text(self._path[:4])}... is nested more than {DEPTH_LIMIT} deep",
                hint="a list or dict that contains itself cannot be kept",
            )
        self._check_size(count)
        self.parts += tag, _COUNT.pack(count)

    def _check_size(self, count: int) -> None:
        if count > SIZE_LIMIT_BYTES:
            raise StateRefused(
                f"{path_text(self._path)} has {count} bytes or items, more than {SIZE_LIMIT_BYTES}",
                hint="keep large data in a tensor or an array",
            )

    def _add_kept(self, value: object) -> None:
        place = path_text(self._path)
        try:
            number = self._keep(value, place) if self._keep else None
        except ValueError as exc:
            raise StateRefused(f"{place} cannot be kept: {exc}") from exc
        if number is None:
            kind = type(value)
            raise StateRefused(
                f"{place} cannot be kept: it is a {kind.__module__}.{kind.__qualname__}",
                hint="plain data, tensors and arrays can; give an object state_dict() and load_state_dict(), or leave it out",
            )
        self.parts += b"r", _COUNT.pack(number)


def decode(data: bytes | memoryview, kept: Callable[[int], object] | None = None) -> object:
    """Return the value in `data`; `kept` returns what a reference stands for.

    Raises:
        ValueError: The data is not ours or damaged. `kept` may raise it too.
    """
    decoder = _Decoder(bytes(data), kept)
    value = decoder.take(0)
    if decoder.at != len(decoder.data):
        raise ValueError("something follows the value")
    return value


class _Decoder:
    """One walk through bytes; `at` is the next."""

    def __init__(self, data: bytes, kept: Callable[[int], object] | None) -> None:
        self.data = data
        self.at = 0
        self._kept = kept

    def take(self, depth: int) -> object:
        tag = self._bytes(1)
        if tag == b"u":
            return str(self._bytes(self._count()), "utf-8", "surrogatepass")
        if tag == b"i":
            return _INT.unpack(self._bytes(8))[0]
        if tag == b"f":
            return _FLOAT.unpack(self._bytes(8))[0]
        if tag in (b"n", b"y", b"x"):
            return None if tag == b"n" else tag == b"y"
        if tag == b"b":
            return self._bytes(self._count())
        if tag == b"j":
            return int.from_bytes(self._bytes(self._count()), "little", signed=True)
        if tag == b"r" and self._kept:
            return self._kept(self._count())
        if tag not in _MAKERS or depth >= DEPTH_LIMIT:
            raise ValueError(f"{tag!r} is not a value here")
        return self._collection(_MAKERS[tag], depth + 1)

    def _collection(self, maker: type, depth: int) -> object:
        count = self._count()
        if maker in (list, tuple) and count >= BULK and (code := _BULK_CODES.get(self.data[self.at : self.at + 1])):
            self.at += 1
            start = self.at
            self._bytes(8 * count)
            return maker(unpack_from(f"<{count}{code}", self.data, start))
        try:
            if maker in _DICTS:
                return maker({self.take(depth): self.take(depth) for _ in range(count)})
            return maker([self.take(depth) for _ in range(count)])
        except TypeError as exc:
            raise ValueError("a list or dict cannot be a key") from exc

    def _count(self) -> int:
        count: int = _COUNT.unpack(self._bytes(4))[0]
        return count

    def _bytes(self, count: int) -> bytes:
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise ValueError("cut short")
        return self.data[start : self.at]
