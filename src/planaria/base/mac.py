"""HMAC-SHA256 (RFC 2104) with the key worked in once, on the bare C hash: `hashlib` costs 8 ms to import, this 0.3."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256

    from _typeshed import ReadableBuffer
else:
    # Not `_hashlib`: it halves the 0.9 us of a small message and takes 2.3 ms to load, which most nodes never earn back.
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:  # a build that leaves all hashes to OpenSSL
            from hashlib import sha256

_BLOCK_BYTES = 64
_INNER = bytes(number ^ 0x36 for number in range(256))
_OUTER = bytes(number ^ 0x5C for number in range(256))


class Mac:
    """Makes 32-byte codes that only holders of `key` can make."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK_BYTES:
            key = sha256(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def code(self, head: ReadableBuffer, body: ReadableBuffer = b"") -> bytes:
        """Return the code of `head` and `body` in one piece."""
        inner = self._inner.copy()
        inner.update(head)
        inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()
